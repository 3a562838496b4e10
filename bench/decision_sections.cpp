#include "bench/decision_sections.h"

#include <deque>
#include <memory>

#include "bench/measure.h"
#include "quire/base/cat.h"
#include "quire/core/command_log.h"
#include "quire/core/engine_core.h"
#include "quire/engine/sha256_hasher.h"
#include "quire/kv/block_pool.h"
#include "quire/kv/paged_kv_manager.h"

namespace quire::bench {
namespace {

constexpr std::int32_t kRunning = 256, kBlocks = 1 << 20;
constexpr std::int32_t kPromptTokens = 2000, kBlockSize = 16;

class DiscardingSink final : public CommandSink {
 public:
  void append(std::span<const std::byte> bytes) override { keep(bytes.size()); }
};

/// Requests in decode, which never end, and others that wait for a place. No model: every row samples token 1.
class DecidingLoop {
 public:
  struct Load {
    std::int32_t waiting = 0;
    std::int32_t leaving = 0;  ///< that wait too, but only until the first step
    std::int32_t num_blocks = kBlocks;
    bool logged = false;
  };

  explicit DecidingLoop(const Load& load) {
    CoreOptions core_options;
    core_options.num_blocks = load.num_blocks;
    core_options.context_tokens = 1 << 24;
    core_options.max_rows = kRunning;
    core_ = *EngineCore::create(core_options, load.logged ? &sink_ : nullptr);
    const std::int32_t staying = kRunning + load.waiting;
    for (std::int32_t i = 1; i <= staying + load.leaving; ++i) {
      const auto refusal = core_->submit({.id = RequestId{static_cast<std::uint64_t>(i)}, .prompt = {TokenId{7}}});
      QUIRE_CHECK(!refusal, refusal ? refusal->message : "");
    }
    for (std::int32_t i = staying + 1; i <= staying + load.leaving; ++i)
      core_->cancel(RequestId{static_cast<std::uint64_t>(i)});
    while (core_->num_running() < kRunning) step();
  }

  void step() {
    result_.rows.assign(core_->plan_step().rows.size(), {TokenId{1}, false});
    keep(core_->commit(result_).size());
  }

  double microseconds(const Options& options) {
    return 1e6 * seconds_per_call(options.seconds, [&] { step(); });
  }

  /// By one step, on average over a few.
  double requests_visited() {
    constexpr int kCount = 100;
    const std::uint64_t before = core_->counters().visited_requests;
    for (int i = 0; i < kCount; ++i) step();
    return static_cast<double>(core_->counters().visited_requests - before) / kCount;
  }

 private:
  DiscardingSink sink_;
  std::unique_ptr<EngineCore> core_;
  StepResult result_;
};

report::Metric step_metric(std::string what, std::optional<report::Target> target = {}) {
  return {cat("scheduler step, 256 running", what), "us", target};
}

/// Holds half of a pool and passes through it in order, so that every block takes its turn.
class Allocation {
 public:
  explicit Allocation(std::int32_t num_blocks) : pool_(num_blocks) {
    for (std::int32_t i = 0; i < num_blocks / 2; ++i) held_.push_back(pool_.allocate());
  }

  void replace_oldest() {
    QUIRE_CHECK(pool_.release(held_.front()) == ReleaseOutcome::freed, "a block that was held twice");
    held_.pop_front();
    held_.push_back(pool_.allocate());
  }

  double nanoseconds(const Options& options) {
    return 1e9 * seconds_per_call(options.seconds, [&] { replace_oldest(); });
  }

  /// By one replacement, on average over a few.
  double entries_visited() {
    constexpr int kCount = 1000;
    const std::uint64_t before = pool_.num_visited();
    for (int i = 0; i < kCount; ++i) replace_oldest();
    return static_cast<double>(pool_.num_visited() - before) / kCount;
  }

 private:
  BlockPool pool_;
  std::deque<BlockId> held_;
};

std::vector<TokenId> prompt_of(std::int32_t num_tokens) {
  std::vector<TokenId> prompt;
  for (std::int32_t i = 0; i < num_tokens; ++i) prompt.push_back(TokenId{i % 1000});
  return prompt;
}

}  // namespace

Result<void> scheduler_step(const Options& options, report::Report& report) {
  DecidingLoop plain({}), logged({.logged = true});
  const auto figures = run_rounds(
      options.rounds, {[&] { return plain.microseconds(options); }, [&] { return logged.microseconds(options); }});
  report.rows.push_back(report::make_row(step_metric("", report::at_most(100)), figures[0]));
  report.rows.push_back(report::make_row(step_metric(", with a command log"), figures[1], "without", figures[0]));
  return {};
}

Result<void> scheduler_waiting(const Options& options, report::Report& report) {
  // A step is the time of a few thousand cache misses, so where the heap has put things weighs as much as what is
  // compared: all loops have the same requests once, and every round has new loops.
  constexpr std::int32_t kThousand = 1000, kMany = 4096;
  const auto measure = [&](std::int32_t waiting) {
    DecidingLoop loop({.waiting = waiting, .leaving = kMany - waiting});
    loop.requests_visited();  // warms up
    return loop.microseconds(options);
  };
  const auto figures = run_rounds(
      options.rounds, {[&] { return measure(0); }, [&] { return measure(kThousand); }, [&] { return measure(kMany); }});
  report.rows.push_back(
      report::make_row(step_metric(", 1,000 waiting", report::at_most(1.03)), figures[1], "none waiting", figures[0]));
  report.rows.push_back(
      report::make_row(step_metric(", 4,096 waiting", report::at_most(1.1)), figures[2], "none waiting", figures[0]));
  // One more than without a queue: the first that waits.
  report.rows.push_back(report::make_row({"requests visited by a step, 4,096 waiting", "", report::at_most(1)},
                                         {DecidingLoop({.waiting = kMany}).requests_visited()}, "1,000 waiting",
                                         {DecidingLoop({.waiting = kThousand}).requests_visited()}));
  return {};
}

Result<void> scheduler_pool(const Options& options, report::Report& report) {
  constexpr std::int32_t kSmall = 1 << 17;
  DecidingLoop small({.num_blocks = kSmall}), large({.num_blocks = 10 * kSmall});
  const auto figures = run_rounds(
      options.rounds, {[&] { return large.microseconds(options); }, [&] { return small.microseconds(options); }});
  report.rows.push_back(report::make_row(step_metric(cat(", ", 10 * kSmall, " blocks"), report::at_most(1.03)),
                                         figures[0], cat(kSmall, " blocks"), figures[1]));
  return {};
}

Result<void> block_allocation(const Options& options, report::Report& report) {
  constexpr std::int32_t kSizes[] = {1'000, 10'000, 100'000, 1'000'000};
  std::vector<std::unique_ptr<Allocation>> cases;
  std::vector<Measure> measures;
  for (std::int32_t num_blocks : kSizes) {
    cases.push_back(std::make_unique<Allocation>(num_blocks));
    measures.push_back([&options, allocation = cases.back().get()] { return allocation->nanoseconds(options); });
  }
  const auto figures = run_rounds(options.rounds, measures);
  for (std::size_t i = 0; i < std::size(kSizes); ++i) {
    const report::Metric metric{cat("free and allocate a block, pool of ", kSizes[i]), "ns"};
    report.rows.push_back(i == 0 ? report::make_row(metric, figures[i])
                                 : report::make_row(metric, figures[i], "pool of 1000", figures[0]));
  }
  for (std::size_t i = 1; i < std::size(kSizes); ++i) {
    report.rows.push_back(report::make_row({cat("entries visited by it, pool of ", kSizes[i]), "", report::at_most(1)},
                                           {cases[i]->entries_visited()}, "pool of 1000",
                                           {cases[0]->entries_visited()}));
  }
  return {};
}

Result<void> sequence_fork(const Options& options, report::Report& report) {
  PagedKvManager kv(4096, kBlockSize);
  const SequenceId parent{1};
  KvChanges changes;
  std::vector<KvReservation> reservations;
  kv.begin_plan();
  if (!kv.plan_reserve(parent, kPromptTokens)) return fail("no room for ", kPromptTokens, " tokens");
  kv.commit_plan(changes, reservations);
  constexpr std::uint64_t kForks = 64;
  std::uint64_t next = 2;
  const auto figures = run_rounds(options.rounds, {[&] {
                                    double seconds = 0;
                                    std::int64_t forks = 0;
                                    while (seconds < options.seconds) {
                                      const std::uint64_t first = next;
                                      seconds += seconds_of([&] {
                                        for (std::uint64_t i = 0; i < kForks; ++i)
                                          kv.fork(parent, SequenceId{next++}, kPromptTokens);
                                      });
                                      forks += kForks;
                                      for (std::uint64_t child = first; child < next; ++child)
                                        kv.release(SequenceId{child});
                                    }
                                    return 1e6 * seconds / static_cast<double>(forks);
                                  }});
  report.rows.push_back(
      report::make_row({"fork of a sequence of 2,000 tokens", "us", report::at_most(20)}, figures[0]));
  return {};
}

Result<void> prefix_hit(const Options& options, report::Report& report) {
  QUIRE_TRY(auto hasher, engine::Sha256Hasher::create());
  CoreOptions core_options;
  core_options.num_blocks = 4096;
  core_options.context_tokens = 4096;
  core_options.token_budget = 4096;
  core_options.prefix_cache = true;
  QUIRE_TRY(auto core, EngineCore::create(core_options, nullptr, {.hasher = hasher.get(), .domain = {}}));
  const auto prompt = prompt_of(kPromptTokens);
  std::uint64_t next = 1;
  StepResult result;
  const auto serve = [&] {
    const auto refusal = core->submit({.id = RequestId{next++}, .prompt = prompt, .max_tokens = 1});
    QUIRE_CHECK(!refusal, refusal ? refusal->message : "");
    while (core->has_work()) {
      result.rows.assign(core->plan_step().rows.size(), {TokenId{1}, false});
      keep(core->commit(result).size());
    }
  };
  serve();  // fills the cache
  const auto hits_before = core->counters().prefix_hits;
  serve();
  const auto found = static_cast<double>(core->counters().prefix_hits - hits_before);
  const auto figures =
      run_rounds(options.rounds, {[&] { return 1e9 * seconds_per_call(options.seconds, serve) / found; }});
  report.rows.push_back(report::make_row(
      {cat("prefix hit of ", static_cast<std::int64_t>(found), " tokens, from submit to end, for each"), "ns",
       report::at_most(100)},
      figures[0]));
  return {};
}

}  // namespace quire::bench
