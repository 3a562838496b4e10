// The loads of shadow_kv_test.cpp over the memory of vAttention: tiny pools, tiles that straddle page-groups, cached
// prefixes that are aliased, forks, preemption, clients that go, memory that the system refuses, a limit on mappings
// that is near.

#include <gtest/gtest.h>

#include "quire/core/load_script.h"

namespace quire {
namespace {

constexpr std::uint64_t kKeptSeeds[] = {1, 274, 327};

void run_seed(std::uint64_t seed, ScriptTotals& totals) {
  const LoadScript script = make_script(seed, ScriptMemory::vattention);
  ASSERT_EQ(run_script(script, totals), std::nullopt) << to_text(script);
}

TEST(ShadowVAttention, EveryRequestGetsTheTokensItGetsAloneOverManySeeds) {
  constexpr std::uint64_t kCount = 600;
  ScriptTotals totals;
  for (std::uint64_t seed = 1; seed <= kCount; ++seed) {
    run_seed(seed, totals);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(totals.preemptions, kCount / 20) << "the loads are too light to mean anything";
  EXPECT_GT(totals.hits, 4 * kCount);
  EXPECT_GT(totals.evictions, kCount);
  EXPECT_GT(totals.gangs_preempted, kCount / 200);
  EXPECT_GT(totals.searches_preempted, kCount / 200);
  EXPECT_GT(totals.refusals, kCount / 20);
  EXPECT_GT(totals.failed_by_refusal, 0u);
}

TEST(ShadowVAttention, SeedsThatOnceFailedPass) {
  ScriptTotals totals;
  for (std::uint64_t seed : kKeptSeeds) run_seed(seed, totals);
}

}  // namespace
}  // namespace quire
