// Plan scripts: tests/plans/*.txt hold pools, limits and arrivals, and the exact batch expected at each step.
//
//     pool blocks=4 block_size=8 [cache=1]        [queue POLICY]        [victim POLICY]        [steps COMPOSITION]
//     limits budget=16 rows=4 context=64 watermark=0 [ageing=N]
//     submit 1 prompt=20 max=3 [stop=TOKEN min=N logits_from=N shared=N salt=N priority=N]     the first `shared`
//     tokens (all of them unless said) are those of every prompt; then, if it is refused, an indented line: refused
//         branches=N [for a beam search: beams=N returned=N]
//     ... cancel 1        fail 1 (its next row)        step
//     sample 1 TOKEN...   of its next row that samples, one for each branch; 9 unless said
//     rank 1 TOKEN...     what each row of a beam offers from now on, the first with logprob -1, the next -2, ...
//     then, indented and in this order, everything that happens:
//       preempted REQUEST, NUMBER times       fork SEQUENCE of SEQUENCE at POSITION
//       dropped SEQUENCE                      copy BLOCK to BLOCK
//       decode REQUEST at POSITION            prefill REQUEST BEGIN..END     with "branch N" if it is not 0, "blocks
//       IDS"
//                                             if it gets new ones, "logits FIRST" if wanted, "samples [NUMBER]" if it
//                                             does
//       beams of REQUEST: PARENT+TOKEN ...    returned REQUEST BRANCH score SCORE: TOKEN...
//       ended REQUEST BRANCH REASON after NUMBER, of a request with several
//       finished REQUEST REASON after NUMBER
//     state running=N waiting=N free=N
//
// A line that begins with # is a comment.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "quire/base/cat.h"
#include "quire/kv/paged_kv_manager.h"
#include "quire/sched/scheduler.h"

namespace quire {
namespace {

/// A line of a script: words, and values of the form name=number.
struct Line {
  std::string word;
  std::vector<std::string> arguments;
  std::map<std::string, std::int32_t> values;

  explicit Line(const std::string& text) {
    std::istringstream in(text);
    in >> word;
    for (std::string item; in >> item;) {
      const std::size_t equals = item.find('=');
      if (equals == std::string::npos)
        arguments.push_back(item);
      else
        values[item.substr(0, equals)] = std::stoi(item.substr(equals + 1));
    }
  }
  RequestId request() const { return RequestId{std::stoull(arguments.at(0))}; }
  /// Those behind the request.
  std::vector<std::int32_t> numbers() const {
    std::vector<std::int32_t> numbers;
    for (std::size_t i = 1; i < arguments.size(); ++i) numbers.push_back(std::stoi(arguments[i]));
    return numbers;
  }
  std::optional<std::int32_t> find(const std::string& name) const {
    auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  }
};

class ScriptRunner {
 public:
  /// Carries out a line and returns what happened, one text a line.
  std::vector<std::string> run(const Line& line) {
    if (line.word == "pool") return set_pool(line), std::vector<std::string>{};
    if (line.word == "queue") return options_.queue_policy = line.arguments.at(0), std::vector<std::string>{};
    if (line.word == "steps") return options_.step_composition = line.arguments.at(0), std::vector<std::string>{};
    if (line.word == "victim") return options_.victim_policy = line.arguments.at(0), std::vector<std::string>{};
    if (line.word == "limits") return set_limits(line), std::vector<std::string>{};
    if (line.word == "submit") return submit(line);
    if (line.word == "cancel") return cancel(line.request());
    if (line.word == "fail") return failing_.push_back(line.request()), std::vector<std::string>{};
    if (line.word == "sample") return samples_[line.request()] = line.numbers(), std::vector<std::string>{};
    if (line.word == "rank") return ranked_[line.request()] = line.numbers(), std::vector<std::string>{};
    if (line.word == "step") return step();
    if (line.word == "state") return check_state(line), std::vector<std::string>{};
    ADD_FAILURE() << "unknown word " << line.word;
    return {};
  }

 private:
  void set_pool(const Line& line) {
    options_.num_blocks = line.values.at("blocks");
    options_.block_size = line.values.at("block_size");
    options_.prefix_cache = line.find("cache").value_or(0) != 0;
  }

  void set_limits(const Line& line) {
    options_.token_budget = line.values.at("budget");
    options_.max_rows = line.values.at("rows");
    options_.context_tokens = line.values.at("context");
    options_.watermark_blocks = line.values.at("watermark");
    options_.ageing_steps = line.find("ageing").value_or(options_.ageing_steps);
    kv_ = std::make_unique<PagedKvManager>(options_.num_blocks, options_.block_size,
                                           options_.prefix_cache ? std::optional(CacheIdentity{}) : std::nullopt);
    scheduler_ = std::make_unique<Scheduler>(options_, *kv_);
  }

  std::vector<std::string> submit(const Line& line) {
    CoreRequest request;
    request.id = line.request();
    request.prompt.assign(static_cast<std::size_t>(line.values.at("prompt")), TokenId{5});
    for (std::size_t i = static_cast<std::size_t>(line.find("shared").value_or(line.values.at("prompt")));
         i < request.prompt.size(); ++i)
      request.prompt[i] = TokenId{100 + static_cast<std::int32_t>(request.id.value)};
    if (auto salt = line.find("salt")) request.salt = cat(*salt);
    request.max_tokens = line.find("max");
    request.min_tokens = line.find("min").value_or(0);
    request.priority = line.find("priority").value_or(0);
    request.logits_from = line.find("logits_from");
    request.num_branches = line.find("branches").value_or(1);
    if (auto width = line.find("beams"))
      request.beams = BeamParams{.width = *width, .num_returned = line.find("returned").value_or(1)};
    several_.insert_or_assign(request.id, request.num_branches > 1 || request.beams);
    if (auto stop = line.find("stop")) request.stop_tokens = {TokenId{*stop}};
    if (auto refusal = scheduler_->submit(request)) return {cat("refused ", refusal->message)};
    return {};
  }

  std::vector<std::string> cancel(RequestId request) {
    if (!scheduler_->end(request, FinishReason::cancelled)) return {"no such request"};
    std::vector<std::string> lines;
    add_events(lines);
    return lines;
  }

  std::vector<std::string> step() {
    BatchPlan plan;
    scheduler_->plan_step(plan);
    std::vector<std::string> lines;
    add_events(lines);
    for (const SequenceFork& fork : plan.forks)
      lines.push_back(cat("fork ", fork.child, " of ", fork.parent, " at ", fork.num_tokens));
    for (SequenceId sequence : plan.dropped) lines.push_back(cat("dropped ", sequence));
    for (const BlockCopy& copy : plan.copies) lines.push_back(cat("copy ", copy.from, " to ", copy.to));
    for (const PlanRow& row : plan.rows) lines.push_back(row_text(plan, row));
    std::vector<RowResult> results;
    for (const PlanRow& row : plan.rows) results.push_back(result_of(row));
    scheduler_->commit(plan, results);
    add_events(lines);
    EXPECT_EQ(scheduler_->validate(), std::nullopt);
    return lines;
  }

  static std::string row_text(const BatchPlan& plan, const PlanRow& row) {
    std::string text = row.is_prefill ? cat("prefill ", row.request, " ", row.begin, "..", row.end())
                                      : cat("decode ", row.request, " at ", row.begin);
    if (row.branch > 0) text += cat(" branch ", row.branch);
    if (row.num_new_blocks > 0) text += " blocks";
    for (std::int32_t i = 0; i < row.num_new_blocks; ++i)
      text += cat(" ", plan.new_blocks[static_cast<std::size_t>(row.new_blocks_offset + i)]);
    if (row.num_logits() > 0) text += cat(" logits ", row.first_logits());
    if (row.samples) text += row.num_outputs > 1 ? cat(" samples ", row.num_outputs) : " samples";
    return text;
  }

  RowResult result_of(const PlanRow& row) {
    auto failing = std::find(failing_.begin(), failing_.end(), row.request);
    if (failing != failing_.end()) {
      failing_.erase(failing);
      return {TokenId{-1}, true};
    }
    RowResult result;
    if (!row.samples) return result;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(row.num_outputs), 9);
    std::map<RequestId, std::vector<std::int32_t>>& said = row.ranked ? ranked_ : samples_;
    const auto found = said.find(row.request);
    if (found != said.end() && row.ranked) tokens = found->second;
    if (found != said.end() && !row.ranked) {
      std::copy(found->second.begin(), found->second.end(), tokens.begin());
      said.erase(found);
    }
    result.token = TokenId{tokens[0]};
    for (std::size_t i = 0; i < tokens.size(); ++i)
      result.candidates.push_back({TokenId{tokens[i]}, row.ranked ? -1 - static_cast<float>(i) : 0});
    return result;
  }

  void add_events(std::vector<std::string>& lines) {
    for (const Event& event : scheduler_->take_events())
      if (std::string text = std::visit([this](const auto& e) { return text_of(e); }, event); !text.empty())
        lines.push_back(std::move(text));
  }

  static std::string text_of(const TokenSampled&) { return ""; }
  static std::string text_of(const RequestStarted&) { return ""; }
  static std::string text_of(const RequestPreempted& event) {
    return cat("preempted ", event.request, ", ", event.num_preemptions, " times");
  }
  static std::string text_of(const BeamsAdvanced& event) {
    std::string text = cat("beams of ", event.request, ":");
    for (const BeamStep& step : event.steps) text += cat(" ", step.parent, "+", step.token);
    return text;
  }
  static std::string text_of(const BeamReturned& event) {
    std::string text = cat("returned ", event.request, " ", event.branch, " score ", event.score, ":");
    for (TokenId token : event.tokens) text += cat(" ", token);
    return text;
  }
  std::string text_of(const BranchFinished& event) {
    if (!several_[event.request]) return "";
    return cat("ended ", event.request, " ", event.branch, " ", to_string(event.reason), " after ", event.num_tokens);
  }
  static std::string text_of(const RequestFinished& event) {
    return cat("finished ", event.request, " ", to_string(event.reason), " after ", event.num_tokens);
  }

  void check_state(const Line& line) {
    EXPECT_EQ(scheduler_->num_running(), line.values.at("running"));
    EXPECT_EQ(scheduler_->num_waiting(), line.values.at("waiting"));
    EXPECT_EQ(kv_->capacity().free_blocks, line.values.at("free"));
  }

  CoreOptions options_;
  std::unique_ptr<PagedKvManager> kv_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<RequestId> failing_;
  std::map<RequestId, std::vector<std::int32_t>> samples_, ranked_;
  std::map<RequestId, bool> several_;
};

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += cat("  ", line, "\n");
  return text;
}

void run_script(const std::filesystem::path& path) {
  SCOPED_TRACE(path.filename().string());
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  ScriptRunner runner;
  std::vector<std::string> happened, expected;
  std::string command = "(start)";
  int number = 0;
  const auto compare = [&] {
    ASSERT_EQ(joined(expected), joined(happened)) << "at line " << number << ": " << command;
    expected.clear();
  };
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (text.empty() || text[0] == '#') continue;
    if (text[0] == ' ') {
      expected.push_back(text.substr(text.find_first_not_of(' ')));
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(compare());
    command = text;
    happened = runner.run(Line(text));
  }
  ASSERT_NO_FATAL_FAILURE(compare());
}

class PlanScript : public testing::TestWithParam<std::string> {};

TEST_P(PlanScript, GivesTheExpectedBatchAtEachStep) {
  run_script(std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/plans" / (GetParam() + ".txt"));
}

std::vector<std::string> script_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/plans"))
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, PlanScript, testing::ValuesIn(script_names()),
                         [](const auto& script) { return script.param; });

}  // namespace
}  // namespace quire
