// The manager with tiers against its checker: after every operation each sequence reads exactly what it wrote, wherever
// that has been meanwhile, and all invariants hold.

#include "quire/kv/kv_tiers.h"

#include <gtest/gtest.h>

#include "quire/base/rng.h"
#include "quire/kv/cache_checker_test.h"

namespace quire {
namespace {

/// Of a small tree, so that prefixes meet again.
std::vector<TokenId> random_tokens(Rng& rng) {
  std::vector<TokenId> tokens;
  std::uint64_t node = static_cast<std::uint64_t>(rng.between(1, 2));
  const auto length = rng.between(2, 60);
  for (std::int64_t i = 0; i < length; ++i) {
    if (i % 12 == 11) node = node * 3 + static_cast<std::uint64_t>(rng.between(0, 1));
    tokens.push_back(TokenId{static_cast<std::int32_t>(random_at(node, static_cast<std::uint64_t>(i)) % 50)});
  }
  return tokens;
}

template <class Id>
Id any_of(Rng& rng, const std::vector<Id>& ids) {
  return ids[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(ids.size()) - 1))];
}

class Walk {
 public:
  Walk(std::uint64_t seed, const GroupGeometry& geometry, const BlockHasher* hasher)
      : rng_(seed),
        scale_(static_cast<std::int32_t>(geometry.num_groups())),
        checker_(scale_ * static_cast<std::int32_t>(rng_.between(3, 24)), geometry, hasher,
                 {scale_ * static_cast<std::int32_t>(rng_.between(1, 30)), rng_.chance(0.7)}) {}

  void step() {
    const std::vector<SequenceId> live = checker_.sequences();
    const std::vector<SequenceId> preempted = checker_.preempted();
    switch (rng_.between(0, 8)) {
      case 0:
      case 1:
      case 2:
        checker_.start({{SequenceId{++last_}, rng_.chance(0.2) ? "a" : "", random_tokens(rng_), rng_.between(1, 40)}});
        break;
      case 3:
        if (!live.empty()) checker_.grow({any_of(rng_, live)}, rng_.between(0, 20));
        break;
      case 4:
        if (!live.empty()) checker_.release(any_of(rng_, live));
        break;
      case 5:
        if (!live.empty()) checker_.preempt(any_of(rng_, live));
        break;
      case 6:
        if (!preempted.empty() && checker_.resume(any_of(rng_, preempted), SequenceId{++last_})) ++num_resumed;
        break;
      case 7:
        if (rng_.chance(0.3) && !preempted.empty()) checker_.forget(any_of(rng_, preempted));
        checker_.read_ahead("", random_tokens(rng_));
        break;
      default:
        if (checker_.num_in_flight() == 0) break;
        checker_.end_transfer(
            static_cast<std::size_t>(rng_.between(0, static_cast<std::int64_t>(checker_.num_in_flight()) - 1)),
            rng_.chance(0.1));
    }
  }

  void finish() {
    for (SequenceId id : checker_.sequences()) checker_.release(id);
    for (SequenceId id : checker_.preempted()) checker_.forget(id);
    while (checker_.num_in_flight() > 0) checker_.end_transfer(0, false);
    EXPECT_EQ(checker_.manager().capacity().used_blocks(), 0);
    EXPECT_EQ(checker_.manager().tier_counters().frames_private, 0) << "a frame is lost";
  }

  const CacheChecker& checker() const { return checker_; }
  int num_resumed = 0;

 private:
  Rng rng_;
  std::int32_t scale_;  ///< pool and RAM are so much larger than with one group
  CacheChecker checker_;
  std::uint64_t last_ = 0;
};

struct Totals {
  std::uint64_t loaded = 0, evicted = 0, read = 0, lost = 0;
  int resumed = 0;
};

void walk(std::uint64_t seed, const GroupGeometry& geometry, Totals& totals) {
  SCOPED_TRACE(seed);
  const CollidingHasher colliding;
  Walk walk(seed, geometry, seed % 8 == 0 ? &colliding : nullptr);
  for (int i = 0; i < 150 && !walk.checker().problem(); ++i) walk.step();
  walk.finish();
  ASSERT_EQ(walk.checker().problem(), std::nullopt);
  const KvTierCounters counters = walk.checker().manager().tier_counters();
  totals.loaded += counters.blocks_loaded;
  totals.evicted += counters.frames_evicted;
  totals.read += counters.reads[0];
  totals.lost += counters.blocks_lost;
  totals.resumed += walk.num_resumed;
}

/// A full group, others with windows that may be shorter than a block or longer than any sequence, or none.
GroupGeometry random_groups(std::uint64_t seed) {
  Rng rng(seed);
  std::vector<LayerGroup> groups = {LayerGroup{}};
  for (std::int64_t i = rng.between(1, 3); i > 0; --i)
    groups.push_back({static_cast<std::int32_t>(rng.chance(0.2) ? 0 : rng.between(1, 40))});
  return {8, groups, 64};
}

void expect_much_happened(const Totals& totals) {
  EXPECT_GT(totals.loaded, 1000u);
  EXPECT_GT(totals.evicted, 1000u);
  EXPECT_GT(totals.read, 20u);
  EXPECT_GT(totals.lost, 10u);
  EXPECT_GT(totals.resumed, 500);
}

TEST(KvTiers, WhateverMovesBetweenPoolRamAndFilesEverybodyReadsWhatIsTheirs) {
  Totals totals;
  for (std::uint64_t seed = 1; seed <= 300 && !HasFatalFailure(); ++seed) walk(seed, GroupGeometry::uniform(8), totals);
  expect_much_happened(totals);
}

TEST(KvTiers, SoItIsWithLayerGroups) {
  Totals totals;
  for (std::uint64_t seed = 1; seed <= 300 && !HasFatalFailure(); ++seed) walk(seed, random_groups(seed), totals);
  expect_much_happened(totals);
}

TEST(KvTiers, WhatAWindowHasPassedOverIsNotKeptAndNotMissed) {
  // At 29 computed tokens a window of 12 sees from position 18 on; the block before that holds positions 8 to 15 and is
  // gone. Behind 24 tokens, where the full blocks end, it would be seen.
  CacheChecker checker(16, GroupGeometry(8, {{0}, {12}}, 64), nullptr, {.num_frames = 6});
  std::vector<TokenId> tokens, others;
  for (std::int32_t i = 0; i < 30; ++i) tokens.push_back(TokenId{i});
  for (std::int32_t i = 0; i < 64; ++i) others.push_back(TokenId{100 + i});
  checker.start({{SequenceId{1}, "", tokens, 29}});
  EXPECT_EQ(checker.manager().find_table(SequenceId{1}, 1)->first_held, 2);
  checker.preempt(SequenceId{1});
  checker.start({{SequenceId{2}, "", others, 64}});  // takes the whole pool
  EXPECT_GT(checker.manager().tier_counters().blocks_lost, 0u) << "all frames are pinned or tails";
  checker.release(SequenceId{2});
  EXPECT_TRUE(checker.resume(SequenceId{1}, SequenceId{3}));
  EXPECT_EQ(checker.manager().tier_counters().blocks_loaded, 4u + 2u) << "three full blocks, one, and two tails";
  checker.release(SequenceId{3});
  EXPECT_EQ(checker.manager().tier_counters().frames_private, 0);
  EXPECT_EQ(checker.problem(), std::nullopt);
}

TEST(KvTiers, ABlockThatHasBecomeAnotherGroupsCompanionIsNotWrittenUnderItsOldKey) {
  // As many writes are in flight as may be, so that others wait while their blocks are evicted, and come back as those
  // of other groups. The pool has room for one sequence and a little more.
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    CacheChecker checker(static_cast<std::int32_t>(rng.between(12, 16)), GroupGeometry(8, {{0}, {0}, {9}}, 64), nullptr,
                         {.num_frames = 1, .has_files = true});
    std::uint64_t id = 0;
    const auto run = [&](std::int32_t first, std::int64_t count) {
      std::vector<TokenId> tokens;
      for (std::int32_t i = 0; i < count; ++i) tokens.push_back(TokenId{first + i});
      checker.start({{SequenceId{++id}, "", tokens, count}});
      if (checker.has(SequenceId{id})) checker.release(SequenceId{id});
    };
    while (checker.num_in_flight() < static_cast<std::size_t>(kMaxWritesInFlight))
      run(1000 * static_cast<std::int32_t>(id + 1), 32);
    for (int i = 0; i < 60; ++i) {
      run(rng.chance(0.6) ? 0 : 500, rng.between(8, 32));
      if (rng.chance(0.5)) checker.end_transfer(0, false);
    }
    ASSERT_EQ(checker.problem(), std::nullopt);
  }
}

TEST(KvTiers, AKeptSequenceIsFoundWholeWithItsTailAfterOthersHaveUsedThePool) {
  CacheChecker checker(8, GroupGeometry::uniform(8), nullptr, {.num_frames = 8});
  Rng rng(1);
  std::vector<TokenId> tokens, others;
  for (std::int32_t i = 0; i < 30; ++i) tokens.push_back(TokenId{i});
  for (std::int32_t i = 0; i < 64; ++i) others.push_back(TokenId{100 + i});
  checker.start({{SequenceId{1}, "", tokens, 29}});
  checker.preempt(SequenceId{1});
  checker.start({{SequenceId{2}, "", others, 64}});  // takes the whole pool
  checker.release(SequenceId{2});
  EXPECT_TRUE(checker.resume(SequenceId{1}, SequenceId{3}));
  EXPECT_EQ(checker.manager().tier_counters().blocks_loaded, 4u) << "three full blocks and the tail";
  checker.release(SequenceId{3});
  EXPECT_EQ(checker.manager().tier_counters().frames_private, 0);
  EXPECT_EQ(checker.problem(), std::nullopt);
}

}  // namespace
}  // namespace quire
