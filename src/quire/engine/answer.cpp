#include "quire/engine/answer.h"

#include <utility>

namespace quire::engine {

Answer::Answer(RequestId id, std::int32_t branch, const GenerateRequest& request, const Tokenizer& tokenizer)
    : stops_(request.stop), text_(request, tokenizer), next_score_(request.scoring ? request.scoring->from : 0) {
  delta_.request = id;
  delta_.branch = branch;
  delta_.usage.prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
}

bool Answer::add(OutputToken token) {
  if (text_.matched()) return false;
  ++delta_.usage.completion_tokens;
  delta_.text += text_.push(token.token);
  delta_.tokens.push_back(std::move(token));
  return text_.matched().has_value();
}

void Answer::add_scores(std::vector<ScoreRow> rows) {
  for (ScoreRow& row : rows) {
    if (row.position < next_score_) continue;
    next_score_ = row.position + 1;
    delta_.scores.push_back(std::move(row));
  }
}

void Answer::finish(Finish finish) {
  delta_.text += text_.finish();
  if (text_.matched()) {
    finish.reason = FinishReason::stop;
    finish.stop_token.reset();
    finish.stop_string = stops_[*text_.matched()];
  }
  delta_.finish = std::move(finish);
}

bool Answer::has_delta() const {
  return !delta_.text.empty() || !delta_.tokens.empty() || !delta_.scores.empty() || delta_.finish.has_value();
}

Delta Answer::take_delta() {
  Delta taken = std::move(delta_);
  delta_ = Delta{};
  delta_.request = taken.request;
  delta_.branch = taken.branch;
  delta_.usage = taken.usage;
  return taken;
}

}  // namespace quire::engine
