#include "quire/engine/answer.h"

#include <utility>

#include "quire/base/check.h"

namespace quire::engine {

Answer::Answer(RequestId id, const GenerateRequest& request, const Tokenizer& tokenizer)
    : stops_(request.stop),
      detokenizer_(tokenizer),
      matcher_(request.stop),
      min_tokens_(request.min_tokens),
      next_score_(request.scoring ? request.scoring->from : 0) {
  delta_.request = id;
  delta_.usage.prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
}

bool Answer::add(OutputToken token) {
  const bool may_stop = delta_.usage.completion_tokens >= min_tokens_;
  ++delta_.usage.completion_tokens;
  std::string text = detokenizer_.push(token.token);
  delta_.tokens.push_back(std::move(token));
  if (!may_stop) {
    delta_.text += text;
    return false;
  }
  StopMatcher::Output output = matcher_.feed(text);
  delta_.text += output.text;
  return output.matched.has_value();
}

void Answer::add_scores(std::vector<ScoreRow> rows) {
  for (ScoreRow& row : rows) {
    if (row.position < next_score_) continue;
    next_score_ = row.position + 1;
    delta_.scores.push_back(std::move(row));
  }
}

void Answer::finish(Finish finish) {
  StopMatcher::Output last = matcher_.feed(detokenizer_.finish());
  delta_.text += last.text;
  if (last.matched) return finish_by_stop_string();
  delta_.text += matcher_.finish();
  delta_.finish = std::move(finish);
}

void Answer::finish_by_stop_string() {
  QUIRE_CHECK(matcher_.matched().has_value());
  delta_.finish = Finish{.reason = FinishReason::stop, .stop_string = stops_[*matcher_.matched()]};
}

bool Answer::has_delta() const {
  return !delta_.text.empty() || !delta_.tokens.empty() || !delta_.scores.empty() || delta_.finish.has_value();
}

Delta Answer::take_delta() {
  Delta taken = std::move(delta_);
  delta_ = Delta{};
  delta_.request = taken.request;
  delta_.usage = taken.usage;
  return taken;
}

}  // namespace quire::engine
