// Promises that hold under every combination of policies: nobody starves, and a step does not walk the queue.

#include <gtest/gtest.h>

#include <map>

#include "quire/base/cat.h"
#include "quire/base/rng.h"
#include "quire/kv/paged_kv_manager.h"
#include "quire/sched/scheduler.h"

namespace quire {
namespace {

CoreOptions small_options() {
  CoreOptions options;
  options.block_size = 8;
  options.num_blocks = 12;
  options.context_tokens = 96;
  options.token_budget = 16;
  options.max_rows = 4;
  options.watermark_blocks = 1;
  options.ageing_steps = 40;
  return options;
}

CoreRequest make_request(std::uint64_t id, std::int32_t prompt_tokens, std::int32_t max_tokens, std::int32_t priority) {
  CoreRequest request;
  request.id = RequestId{id};
  request.prompt.assign(static_cast<std::size_t>(prompt_tokens), TokenId{static_cast<std::int32_t>(id)});
  request.max_tokens = max_tokens;
  request.priority = priority;
  return request;
}

/// Looks into the cache are counted.
class CountingKv final : public PagedKvManager {
 public:
  using PagedKvManager::PagedKvManager;
  PrefixHit match(KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit) const override {
    ++num_matches;
    return PagedKvManager::match(chain, tokens, limit);
  }
  mutable std::int64_t num_matches = 0;
};

class ScriptedRun {
 public:
  explicit ScriptedRun(const CoreOptions& options)
      : kv_(options.num_blocks, options.block_size,
            options.prefix_cache ? std::optional(CacheIdentity{}) : std::nullopt),
        scheduler_(options, kv_) {}

  void submit(CoreRequest request) {
    needs_[request.id] = static_cast<std::int64_t>(request.prompt.size()) + *request.max_tokens;
    ASSERT_EQ(scheduler_.submit(std::move(request)).has_value(), false);
  }

  void step() {
    ++num_steps_;
    BatchPlan plan;
    scheduler_.plan_step(plan);
    scheduler_.commit(plan, std::vector<RowResult>(plan.rows.size(), {TokenId{2}}));
    for (const Event& event : scheduler_.take_events()) {
      if (const auto* finished = std::get_if<RequestFinished>(&event)) needs_.erase(finished->request);
      const auto* started = std::get_if<RequestStarted>(&event);
      if (!started) continue;
      starts_.push_back(started->request);
      started_at_[started->request] = num_steps_;
    }
    ASSERT_EQ(scheduler_.validate(), std::nullopt);
  }

  /// Steps within which those that are live now end, if nobody comes between.
  std::int64_t steps_needed() const {
    std::int64_t needed = 0;
    for (const auto& [id, need] : needs_) needed += (kMaxPreemptions + 1) * need;
    return needed;
  }

  bool has_started(RequestId id) const { return started_at_.count(id) > 0; }
  bool is_live(RequestId id) const { return needs_.count(id) > 0; }
  const std::vector<RequestId>& starts() const { return starts_; }
  std::int64_t num_steps() const { return num_steps_; }
  Scheduler& scheduler() { return scheduler_; }
  CountingKv& kv() { return kv_; }

 private:
  CountingKv kv_;
  Scheduler scheduler_;
  std::map<RequestId, std::int64_t> needs_;  ///< of live requests
  std::map<RequestId, std::int64_t> started_at_;
  std::vector<RequestId> starts_;
  std::int64_t num_steps_ = 0;
};

/// A long prompt of low priority, and from then on more urgent, shorter ones than the pool and the rows can take.
class Flood {
 public:
  explicit Flood(const CoreOptions& options) : run_(options) {
    arrive(2);
    run_.submit(make_request(1, 50, 20, 100));
  }

  void step() {
    // A queue of bounded length, so that the test stays fast; there is always somebody more urgent in it.
    if (run_.scheduler().num_waiting() < 6) arrive(2);
    run_.step();
  }

  ScriptedRun& run() { return run_; }

 private:
  void arrive(int count) {
    for (; count > 0; --count) {
      const auto prompt_tokens = static_cast<std::int32_t>(rng_.between(4, 30));
      run_.submit(make_request(next_id_++, prompt_tokens, static_cast<std::int32_t>(rng_.between(1, 40)), 0));
    }
  }

  ScriptedRun run_;
  Rng rng_{7};
  std::uint64_t next_id_ = 100;
};

TEST(SchedulerPolicy, NobodyStarvesUnderAFloodWhateverThePolicies) {
  for (std::string_view queue : queue_policy_names())
    for (std::string_view victim : victim_policy_names()) {
      SCOPED_TRACE(cat(queue, ", ", victim));
      CoreOptions options = small_options();
      options.queue_policy = queue;
      options.victim_policy = victim;
      options.prefix_cache = true;
      Flood flood(options);
      ScriptedRun& run = flood.run();
      while (run.num_steps() <= options.ageing_steps) ASSERT_NO_FATAL_FAILURE(flood.step());
      const std::int64_t due = run.num_steps() + 1 + run.steps_needed();
      while (!run.has_started(RequestId{1})) {
        ASSERT_LE(run.num_steps(), due);
        ASSERT_NO_FATAL_FAILURE(flood.step());
      }
      // It goes before all others as long as it lives, so its end is near too.
      const std::int64_t end_due = run.num_steps() + run.steps_needed();
      while (run.is_live(RequestId{1})) {
        ASSERT_LE(run.num_steps(), end_due);
        ASSERT_NO_FATAL_FAILURE(flood.step());
      }
      EXPECT_GT(run.scheduler().counters().preemptions, 0u);
    }
}

TEST(SchedulerPolicy, WithoutAgeingTheFloodStarvesIt) {
  for (std::string_view queue : {"priority", "shortest-prompt"}) {
    CoreOptions options = small_options();
    options.queue_policy = queue;
    options.ageing_steps = 1 << 30;
    Flood flood(options);
    while (flood.run().num_steps() < 3000) ASSERT_NO_FATAL_FAILURE(flood.step());
    EXPECT_FALSE(flood.run().has_started(RequestId{1})) << queue;
  }
}

TEST(SchedulerPolicy, TheAgedStartInTheOrderOfTheirArrivalWhateverThePolicy) {
  for (std::string_view queue : queue_policy_names()) {
    CoreOptions options = small_options();
    options.queue_policy = queue;
    options.max_rows = 1;
    ScriptedRun run(options);
    run.submit(make_request(1, 1, 60, -100));
    run.step();
    Rng rng(3);
    std::vector<RequestId> expected = {RequestId{1}};
    for (std::uint64_t id = 2; id < 200; ++id) {
      run.submit(make_request(id, static_cast<std::int32_t>(rng.between(1, 12)), 1,
                              static_cast<std::int32_t>(rng.between(-9, 9))));
      expected.push_back(RequestId{id});
    }
    while (run.scheduler().num_waiting() + run.scheduler().num_running() > 0) ASSERT_NO_FATAL_FAILURE(run.step());
    EXPECT_EQ(run.starts(), expected) << queue;
  }
}

TEST(SchedulerPolicy, AStepLooksUpAFewPrefixesHoweverManyWait) {
  for (std::string_view queue : queue_policy_names()) {
    CoreOptions options = small_options();
    options.queue_policy = queue;
    options.prefix_cache = true;
    options.ageing_steps = 10'000;
    ScriptedRun run(options);
    run.submit(make_request(1, 80, 16, -1));
    run.step();
    const bool looks = queue == "longest-cached-prefix";
    constexpr std::int64_t kWaiting = 1000;
    const std::int64_t before = run.kv().num_matches;
    for (std::uint64_t id = 2; id < 2 + kWaiting; ++id) run.submit(make_request(id, 90, 1, 0));
    EXPECT_EQ(run.kv().num_matches - before, looks ? kWaiting : 0) << queue;
    for (int i = 0; i < 10; ++i) {
      const std::int64_t at = run.kv().num_matches;
      run.step();
      EXPECT_LE(run.kv().num_matches - at, (looks ? kMaxLookedUp : 0) + 1) << queue;  // and the first one's admission
    }
    EXPECT_EQ(run.scheduler().num_waiting(), kWaiting);
  }
}

}  // namespace
}  // namespace quire
