// Random loads over tiny pools with everything that can happen to a request, many seeds; see load_script.h and
// shadow_run.h for what is made and checked. ./dev simulate runs as many more as one likes. A seed that ever failed
// goes into kKeptSeeds.

#include <gtest/gtest.h>

#include "quire/core/load_script.h"
#include "quire/sched/policy.h"
#include "quire/sched/step_composition.h"

namespace quire {
namespace {

constexpr std::uint64_t kKeptSeeds[] = {1};

/// Under the seed's policies unless given.
struct Policies {
  std::string_view queue, victim, composition;
};

void run_seed(std::uint64_t seed, ScriptTotals& totals, std::optional<Policies> policies = std::nullopt) {
  LoadScript script = make_script(seed);
  if (policies) {
    script.options.queue_policy = policies->queue;
    script.options.victim_policy = policies->victim;
    script.options.step_composition = policies->composition;
  }
  ASSERT_EQ(run_script(script, totals), std::nullopt) << to_text(script);
}

TEST(ShadowKv, EveryRequestGetsTheTokensItGetsAloneOverAThousandSeeds) {
  constexpr std::uint64_t kCount = 1200;
  ScriptTotals totals;
  for (std::uint64_t seed = 1000; seed < 1000 + kCount; ++seed) {
    run_seed(seed, totals);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(totals.preemptions, kCount / 10) << "the loads are too light to mean anything";
  EXPECT_GT(totals.exempt, 0u) << "no request ever became exempt";
  EXPECT_GT(totals.aged, kCount / 10) << "hardly anybody waited long enough to age";
  EXPECT_GT(totals.refused, 0u);
  EXPECT_GT(totals.hits, 10 * kCount);
  EXPECT_GT(totals.evictions, kCount / 2);
  EXPECT_GT(totals.collisions, 0u);
  EXPECT_GT(totals.gangs_preempted, kCount / 50);
  EXPECT_GT(totals.searches_preempted, kCount / 50);
  EXPECT_GT(totals.refusals, kCount / 20);
  EXPECT_GT(totals.failed_by_refusal, 0u);
  EXPECT_GT(totals.swaps, kCount / 40);
  EXPECT_GT(totals.no_room, 0u);
  EXPECT_GT(totals.loads, kCount / 2);
  EXPECT_GT(totals.group_loads, kCount / 4);
  EXPECT_GT(totals.frames_evicted, kCount / 4);
  EXPECT_GT(totals.file_reads, kCount / 20);
  EXPECT_GT(totals.failed_reads, 0u);
  EXPECT_GT(totals.files_removed, kCount / 20);
  EXPECT_GT(totals.accepted, 5 * kCount);
  EXPECT_GT(totals.proposed - totals.accepted, 5 * kCount);
}

TEST(ShadowKv, SoItIsUnderEveryCombinationOfPolicies) {
  for (std::string_view queue : queue_policy_names())
    for (std::string_view victim : victim_policy_names()) {
      SCOPED_TRACE(testing::Message() << queue << ", " << victim);
      ScriptTotals totals;
      for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        const auto compositions = step_composition_names();
        run_seed(seed, totals, Policies{queue, victim, compositions[seed % compositions.size()]});
        if (testing::Test::HasFatalFailure()) return;
      }
      EXPECT_GT(totals.preemptions, 0u);
      EXPECT_GT(totals.aged, 0u);
    }
}

TEST(ShadowKv, SeedsThatOnceFailedPass) {
  ScriptTotals totals;
  for (std::uint64_t seed : kKeptSeeds) run_seed(seed, totals);
}

TEST(LoadScript, ShrinksToTheCommandsThatMatter) {
  const LoadScript script = make_script(11);
  const auto asks_for_request_3 = [](const LoadScript& candidate) {
    for (const ScriptStep& step : candidate.steps)
      for (const CoreRequest& request : step.submits)
        if (request.id == RequestId{3} && request.prompt.size() >= 4) return true;
    return false;
  };
  ASSERT_TRUE(asks_for_request_3(script));
  const LoadScript smallest = shrink_script(script, asks_for_request_3);
  EXPECT_EQ(smallest.num_commands(), 1u) << to_text(smallest);
  ASSERT_EQ(smallest.steps.size(), 1u);
  EXPECT_LT(smallest.steps[0].submits.at(0).prompt.size(), 8u);
}

TEST(LoadScript, ASeedIsTheSameScriptEveryTime) { EXPECT_EQ(to_text(make_script(11)), to_text(make_script(11))); }

}  // namespace
}  // namespace quire
