// Plan scripts: tests/plans/*.txt hold pools, limits and arrivals, and the exact batch expected at each step.
//
//     pool blocks=4 block_size=8 [cache=1]        [queue POLICY]        [victim POLICY]        [steps COMPOSITION]
//     limits budget=16 rows=4 context=64 watermark=0 [ageing=N]
//     submit 1 prompt=20 max=3 [stop=TOKEN min=N logits_from=N shared=N salt=N priority=N]     the first `shared`
//     tokens (all of them unless said) are those of every prompt; then, if it is refused, an indented line: refused
//     ... cancel 1        fail 1 (its next row)        sample 1 TOKEN (its next sampled token; 9 unless said) step
//     then, indented and in this order, everything that happens:
//       preempted REQUEST, NUMBER times       dropped SEQUENCE        copy BLOCK to BLOCK
//       decode REQUEST at POSITION            prefill REQUEST BEGIN..END     with "blocks IDS" if it gets new ones,
//                                             "logits FIRST" if wanted, "samples" if it does
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
    if (line.word == "sample")
      return samples_[line.request()] = std::stoi(line.arguments.at(1)), std::vector<std::string>{};
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
    if (auto stop = line.find("stop")) request.stop_tokens = {TokenId{*stop}};
    if (auto refusal = scheduler_->submit(request)) return {cat("refused ", refusal->message)};
    return {};
  }

  std::vector<std::string> cancel(RequestId request) {
    const auto num_generated = scheduler_->end(request, FinishReason::cancelled);
    return {num_generated ? cat("finished ", request, " cancelled after ", *num_generated) : "no such request"};
  }

  std::vector<std::string> step() {
    BatchPlan plan;
    scheduler_->plan_step(plan);
    std::vector<std::string> lines;
    for (const Preemption& preemption : scheduler_->preempted())
      lines.push_back(cat("preempted ", preemption.request, ", ", preemption.num_preemptions, " times"));
    for (SequenceId sequence : plan.dropped) lines.push_back(cat("dropped ", sequence));
    for (const BlockCopy& copy : plan.copies) lines.push_back(cat("copy ", copy.from, " to ", copy.to));
    for (const PlanRow& row : plan.rows) lines.push_back(row_text(plan, row));
    for (const PlanRow& row : plan.rows) commit(row, lines);
    EXPECT_EQ(scheduler_->validate(), std::nullopt);
    return lines;
  }

  static std::string row_text(const BatchPlan& plan, const PlanRow& row) {
    std::string text = row.is_prefill ? cat("prefill ", row.request, " ", row.begin, "..", row.end())
                                      : cat("decode ", row.request, " at ", row.begin);
    if (row.num_new_blocks > 0) text += " blocks";
    for (std::int32_t i = 0; i < row.num_new_blocks; ++i)
      text += cat(" ", plan.new_blocks[static_cast<std::size_t>(row.new_blocks_offset + i)]);
    if (row.num_logits() > 0) text += cat(" logits ", row.first_logits());
    if (row.samples) text += " samples";
    return text;
  }

  void commit(const PlanRow& row, std::vector<std::string>& lines) {
    auto failing = std::find(failing_.begin(), failing_.end(), row.request);
    if (failing != failing_.end()) {
      failing_.erase(failing);
      const auto num_generated = scheduler_->end(row.request, FinishReason::failed);
      lines.push_back(cat("finished ", row.request, " failed after ", *num_generated));
      return;
    }
    const std::int32_t token = row.samples && samples_.count(row.request) ? samples_[row.request] : 9;
    if (row.samples) samples_.erase(row.request);
    const RowOutcome outcome = scheduler_->commit_row(row, TokenId{token});
    if (outcome.finished)
      lines.push_back(
          cat("finished ", row.request, " ", to_string(*outcome.finished), " after ", outcome.num_generated));
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
  std::map<RequestId, std::int32_t> samples_;
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
