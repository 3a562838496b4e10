// quire score: logprobs of given tokens, teacher-forced and batched; what evaluation harnesses need.

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answers.h"
#include "commands.h"
#include "flags.h"
#include "quire/json/reader.h"
#include "terminal.h"

namespace quire::cli {
namespace {

/// Lines in flight at once, and how many [id, logprob] pairs their answers may have together (8 bytes each, held until
/// the lines before are printed). One line is always taken, whatever its size.
constexpr std::size_t kMaxLines = 64;
constexpr std::int64_t kMaxPairs = std::int64_t{32} << 20;

struct ScoreLine {
  std::size_t number = 0;  ///< from 1
  std::int64_t pairs = 0;
  std::vector<engine::ScoreRow> rows;  ///< not yet printed
  bool finished = false;
  std::string failure;  ///< why it has no (complete) answer; printed in its turn, and then the command ends
};

Result<engine::GenerateRequest> read_request(std::string_view text) {
  QUIRE_TRY(json::Value value, json::parse(text));
  QUIRE_TRY(const json::Object* object, json::read_object(value, "line"));
  json::ObjectReader reader(*object);
  QUIRE_TRY(const json::Array* ids, reader.required_array("ids"));
  engine::GenerateRequest request;
  for (std::size_t i = 0; i < ids->size(); ++i) {
    QUIRE_TRY(auto id, json::read_int((*ids)[i], reader.path_of("ids", i), {.min = 0, .max = INT32_MAX}));
    request.prompt.push_back(TokenId{static_cast<std::int32_t>(id)});
  }
  if (request.prompt.empty()) return json::field_error("ids", "found an empty array, wanted at least one id");
  QUIRE_TRY(auto from, reader.optional_int("from", {.min = 0, .max = static_cast<std::int64_t>(ids->size()) - 1}));
  QUIRE_TRY(auto top, reader.optional_int("top", {.min = 0, .max = INT32_MAX}));
  QUIRE_TRY_VOID(reader.refuse_unknown());
  request.scoring = {.from = static_cast<std::int32_t>(from.value_or(0)),
                     .top = static_cast<std::int32_t>(top.value_or(0))};
  request.max_tokens = 0;
  request.sampling.temperature = 0;
  return request;
}

/// Shortest text that reads back as the same float.
std::string number(float value) {
  std::string text = cat(value);
  return text.find("inf") == std::string::npos && text.find("nan") == std::string::npos ? text : "null";
}

std::string as_json(const engine::ScoreRow& row) {
  std::string text = cat("{\"position\":", row.position,
                         ",\"next_logprob\":", row.next_logprob ? number(*row.next_logprob) : "null", ",\"top\":[");
  for (std::size_t i = 0; i < row.top.size(); ++i) {
    if (i != 0) text += ',';
    text += cat("[", row.top[i].token, ",", number(row.top[i].logprob), "]");
  }
  return text + "]}";
}

class Scorer {
 public:
  explicit Scorer(engine::Engine& engine) : engine_(engine) {}

  int run() {
    while (true) {
      // With answers under way only lines that are there already are taken, so that a caller may wait for each.
      while (!input_ended_ && has_room() && (lines_.empty() || input_.ready())) take_line();
      if (lines_.empty()) return kDone;
      receive();
      if (!print_ready()) return kFailed;
    }
  }

 private:
  bool has_room() const { return lines_.empty() || (lines_.size() < kMaxLines && pairs_ < kMaxPairs); }

  void take_line() {
    std::string text;
    bool got_line = input_.next(text);
    if (!got_line && input_.error().empty()) {
      input_ended_ = true;
      return;
    }
    std::size_t tag = first_ + lines_.size();
    ScoreLine& line = lines_.emplace_back();
    line.number = tag + 1;
    if (!got_line) return refuse(line, input_.error());
    auto request = read_request(text);
    if (!request.ok()) return refuse(line, request.error().message);
    std::int64_t rows = static_cast<std::int64_t>(request->prompt.size()) - request->scoring->from;
    line.pairs = rows * std::min(request->scoring->top + std::int64_t{1}, engine_.info().vocab_size);
    pairs_ += line.pairs;
    auto submitted =
        engine_.submit(std::move(*request), [this, tag](engine::Delta delta) { queue_.push(tag, std::move(delta)); });
    if (!submitted.id) refuse(line, submitted.refusal.message);
  }

  /// Nothing after a line that is refused is read.
  void refuse(ScoreLine& line, std::string why) {
    line.failure = std::move(why);
    line.finished = true;
    input_ended_ = true;
  }

  void receive() {
    if (lines_.front().finished) return;
    auto item = queue_.pop_within(std::chrono::milliseconds(20));
    if (!item) return;
    engine::Delta& delta = item->delta;
    ScoreLine& line = lines_[item->tag - first_];
    for (auto& row : delta.scores) line.rows.push_back(std::move(row));
    if (!delta.finish) return;
    line.finished = true;
    if (delta.finish->reason == engine::FinishReason::failed) line.failure = delta.finish->message;
  }

  /// Prints what the first line has, and goes on to the next while lines are done. False: the command ends.
  bool print_ready() {
    while (!lines_.empty()) {
      ScoreLine& line = lines_.front();
      for (const auto& row : line.rows) {
        if (!write_output((begun_ ? "," : "{\"rows\":[") + as_json(row))) return false;
        begun_ = true;
      }
      line.rows.clear();
      if (!line.finished) return true;
      if (!line.failure.empty()) {
        flush_output();
        report(cat("score: line ", line.number, ": ", line.failure));
        return false;
      }
      if (!write_output(begun_ ? "]}\n" : "{\"rows\":[]}\n") || !flush_output()) return false;
      begun_ = false;
      pairs_ -= line.pairs;
      lines_.pop_front();
      ++first_;
    }
    return true;
  }

  engine::Engine& engine_;
  LineReader input_;
  DeltaQueue queue_;
  std::deque<ScoreLine> lines_;
  std::size_t first_ = 0;  ///< the tag of lines_.front()
  std::int64_t pairs_ = 0;
  bool input_ended_ = false;
  bool begun_ = false;  ///< a part of the first line's answer is printed
};

struct ScoreFlags {
  engine::EngineOptions engine;
  bool json_lines = false;
};

int score(ScoreFlags flags) {
  flags.engine.max_waiting = std::max(flags.engine.max_waiting, static_cast<std::int64_t>(kMaxLines));
  auto engine = open_engine(flags.engine);
  if (!engine.ok()) return report(engine.error().message), kFailed;
  auto scorer = std::make_unique<Scorer>(**engine);
  int code = scorer->run();
  engine->reset();  // joins the engine's thread, which may still push into the scorer's queue
  return code;
}

}  // namespace

void add_score(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<ScoreFlags>();
  auto* command = app.add_subcommand(
      "score",
      "Logprobs of given tokens. Reads a line {\"ids\": [...], \"from\": k, \"top\": n} and writes a line {\"rows\": "
      "[{\"position\", \"next_logprob\", \"top\": [[id, logprob], ...]}, ...]} for positions k and on; no BOS is "
      "added");
  add_model(*command, flags->engine.model_path);
  command->add_flag("--json-lines", flags->json_lines, "JSON lines in and out: the only format, and the default");
  flags->engine.max_batch_rows = 8;  // enough to fill steps; KV memory follows from it
  add_engine_flags(*command, flags->engine);
  command->callback([flags, &chosen] { chosen = [flags] { return score(*flags); }; });
}

}  // namespace quire::cli
