// Layer groups: how many blocks a sequence needs, what its windows give back, what counts as a hit.

#include "quire/kv/layer_groups.h"

#include <gtest/gtest.h>

#include "quire/base/rng.h"
#include "quire/kv/cache_checker_test.h"
#include "quire/kv/kv_checker_test.h"

namespace quire {
namespace {

constexpr SequenceId kA{1}, kB{2}, kC{3};

/// Gemma 3 270M: of 18 layers three are full, the others see 512 tokens; six groups of three layers.
constexpr std::int32_t kGemmaWindow = 512;
constexpr std::int64_t kGemmaLayerBytes = 2 * 256 * 2;  ///< of one token: K and V of one head of 256 in f16
const std::vector<LayerGroup> kGemma = {{0},           {kGemmaWindow}, {kGemmaWindow}, {kGemmaWindow}, {kGemmaWindow},
                                        {kGemmaWindow}};

/// Blocks in use after a sequence of num_tokens has been computed in chunks, and the most that were in use.
struct Held {
  std::int64_t at_end, at_most;
};
Held held_after(const GroupGeometry& geometry, std::int64_t num_tokens, std::int64_t chunk) {
  PagedKvManager manager(1 << 14, geometry);
  KeyChain chain;
  const std::vector<TokenId> tokens(static_cast<std::size_t>(num_tokens));
  Held held{0, 0};
  for (std::int64_t end = 0; end < num_tokens;) {
    end = std::min(num_tokens, end + chunk);
    KvChanges changes;
    std::vector<KvReservation> reservations;
    manager.begin_plan();
    EXPECT_TRUE(manager.plan_reserve(kA, end));
    manager.commit_plan(changes, reservations);
    held.at_most = std::max<std::int64_t>(held.at_most, manager.capacity().used_blocks());
    manager.publish(kA, chain, std::span(tokens).first(static_cast<std::size_t>(end)));
    held.at_end = manager.capacity().used_blocks();
    EXPECT_EQ(held.at_end, manager.blocks_held(end));
    EXPECT_LE(held.at_most, manager.blocks_for(end));
  }
  EXPECT_EQ(manager.validate(), std::nullopt);
  return held;
}

TEST(LayerGroups, Gemma270mHoldsAFractionOfWhatTheUniformLayoutHolds) {
  const GroupGeometry uniform(16, {LayerGroup{}}, 512), grouped(16, kGemma, 512);
  struct Expected {
    std::int64_t num_tokens, uniform_bytes, grouped_bytes;
  };
  // 18 layers of every token against three of every token and fifteen of 512, and of a block where windows end.
  for (const Expected& expected :
       {Expected{1024, 18'874'368, 11'010'048}, {4096, 75'497'472, 20'447'232}, {16384, 301'989'888, 58'195'968}}) {
    EXPECT_EQ(held_after(uniform, expected.num_tokens, 512).at_end * 16 * 18 * kGemmaLayerBytes,
              expected.uniform_bytes);
    const Held held = held_after(grouped, expected.num_tokens, 512);
    EXPECT_EQ(held.at_end * 16 * 3 * kGemmaLayerBytes, expected.grouped_bytes);
    EXPECT_EQ(held.at_most - held.at_end, 5 * 512 / 16) << "while a chunk is computed, its blocks as well";
  }
}

TEST(LayerGroups, OneFullGroupNeedsABlockForEachBlockSizeTokens) {
  const GroupGeometry geometry = GroupGeometry::uniform(16);
  for (std::int64_t n : {0, 1, 15, 16, 17, 1000}) {
    EXPECT_EQ(geometry.blocks_for(n), (n + 15) / 16);
    EXPECT_EQ(geometry.blocks_held(n), (n + 15) / 16);
  }
  EXPECT_EQ(geometry.longest_sequence(10), 160);
}

TEST(LayerGroups, NoSequenceEverHoldsMoreThanBlocksForSaysHoweverItGrows) {
  Rng rng(5);
  for (int i = 0; i < 300; ++i) {
    const auto block_size = static_cast<std::int32_t>(8 << rng.between(0, 2));
    std::vector<LayerGroup> groups = {LayerGroup{}};
    for (std::int64_t g = rng.between(0, 3); g > 0; --g)
      groups.push_back({static_cast<std::int32_t>(rng.between(0, 60))});
    const std::int64_t chunk = rng.between(1, 50);
    const GroupGeometry geometry(block_size, groups, static_cast<std::int32_t>(chunk));
    const std::int64_t num_tokens = rng.between(1, 200);
    const Held held = held_after(geometry, num_tokens, rng.between(1, chunk));
    ASSERT_LE(held.at_most, geometry.blocks_for(num_tokens));
    ASSERT_LE(geometry.blocks_for(num_tokens), geometry.blocks_for(num_tokens + 1));
    ASSERT_LE(geometry.blocks_for(geometry.longest_sequence(held.at_most)), held.at_most);
    ASSERT_GT(geometry.blocks_for(geometry.longest_sequence(held.at_most) + 1), held.at_most);
  }
}

TEST(LayerGroups, AWindowGivesItsBlocksBackOnePositionAfterTheLastThatSeesThem) {
  // With a window of 12, position 20 is the first that does not see position 8, and one more is kept.
  const GroupGeometry geometry(8, {{0}, {12}}, 64);
  EXPECT_EQ(geometry.first_needed(1, 18), 0);
  EXPECT_EQ(geometry.first_needed(1, 19), 1);
  EXPECT_EQ(geometry.first_kept(1, 19), 0);
  EXPECT_EQ(geometry.first_kept(1, 20), 1);
  EXPECT_EQ(geometry.first_needed(0, 1000), 0);
}

std::vector<TokenId> some_tokens(int token, int count) {
  return std::vector<TokenId>(static_cast<std::size_t>(count), TokenId{token});
}

TEST(LayerGroups, TheLongestHitIsTheLargestCountOfWhichEachGroupHasWhatIsSeenBehindIt) {
  Rng rng(3);
  for (int round = 0; round < 3000; ++round) {
    std::vector<LayerGroup> groups = {LayerGroup{}};
    for (std::int64_t g = rng.between(0, 3); g > 0; --g)
      groups.push_back({static_cast<std::int32_t>(rng.chance(0.2) ? 0 : rng.between(1, 40))});
    const GroupGeometry geometry(8, groups, 64);
    const std::int64_t num_entries = rng.between(0, 12);
    const std::uint64_t seed = rng();
    const std::uint64_t percent = static_cast<std::uint64_t>(rng.between(50, 100));
    const auto has = [&](std::size_t group, std::int64_t entry) {
      EXPECT_TRUE(group > 0 && entry >= 0 && entry < num_entries);
      return random_at(seed, group * 100 + static_cast<std::uint64_t>(entry)) % 100 < percent;
    };
    std::int64_t longest = 0;
    for (std::int64_t count = 1; count <= num_entries; ++count)
      if (geometry.has_seen(count * 8, count, has)) longest = count;
    ASSERT_EQ(geometry.longest_hit(num_entries, has), longest) << "round " << round;
  }
}

TEST(LayerGroups, AHitNeedsOfAWindowOnlyWhatItsFirstPositionSees) {
  CacheChecker checker(64, GroupGeometry(8, {{0}, {16}}, 64));
  const auto prompt = some_tokens(1, 64);
  checker.start({{kA, "", prompt, 64}});
  EXPECT_EQ(checker.manager().find_table(kA, 1)->first_held, 6);
  const PrefixHit hit = checker.start({{kB, "", some_tokens(1, 65), 1}})[0];
  EXPECT_EQ(hit.num_tokens, 64);
  EXPECT_EQ(checker.manager().find_table(kB, 0)->first_held, 0);
  EXPECT_EQ(checker.manager().find_table(kB, 1)->first_held, 6) << "[49, 64) is seen";
  EXPECT_EQ(checker.problem(), std::nullopt);
}

TEST(LayerGroups, WhereAWindowsBlocksAreGoneTheHitEndsWhereTheyAreNotSeen) {
  // The window's first six blocks became idle first, and so are evicted before all others.
  CacheChecker checker(18, GroupGeometry(8, {{0}, {16}}, 64));
  checker.start({{kA, "", some_tokens(1, 64), 64}});
  checker.release(kA);
  checker.start({{kB, "", some_tokens(2, 32), 32}});
  EXPECT_EQ(checker.manager().cache_counters().evicted_blocks, 6u);
  checker.release(kB);
  EXPECT_EQ(checker.start({{kC, "", some_tokens(1, 65), 1}}, false)[0].num_tokens, 64) << "its end is still there";
  EXPECT_EQ(checker.start({{kC, "", some_tokens(1, 40), 1}}, false)[0].num_tokens, 0) << "what 39 sees is not";
  EXPECT_EQ(checker.problem(), std::nullopt);
}

TEST(LayerGroups, APartlyAgreeingBlockIsCopiedInEveryGroup) {
  CacheChecker checker(64, GroupGeometry(8, {{0}, {16}, {5}}, 64));
  checker.start({{kA, "", some_tokens(1, 32), 32}});
  std::vector<TokenId> prompt = some_tokens(1, 29);
  prompt.resize(40, TokenId{2});
  const PrefixHit hit = checker.start({{kB, "", prompt, 5}})[0];
  EXPECT_EQ(hit.num_tokens, 29);
  EXPECT_EQ(hit.copy_from.size(), 3u);
  EXPECT_EQ(checker.problem(), std::nullopt);
}

TEST(LayerGroups, AForkMayRepeatTheLastPosition) {
  CacheChecker checker(64, GroupGeometry(8, {{0}, {16}, {1}}, 64));
  for (int length : {1, 8, 16, 17, 24, 25, 31, 32, 33}) {
    const SequenceId parent{static_cast<std::uint64_t>(2 * length)}, child{static_cast<std::uint64_t>(2 * length + 1)};
    checker.start({{parent, "", some_tokens(length, 50), length}});
    checker.fork(parent, child, some_tokens(7, 20), 1);
    checker.grow({child}, 3);
    checker.grow({parent}, 5);
    ASSERT_EQ(checker.problem(), std::nullopt) << length;
    checker.release(parent);
    checker.grow({child}, 4);
    checker.release(child);
    ASSERT_EQ(checker.problem(), std::nullopt) << length;
  }
}

/// Whether it may be forked one position before its end: a fork that has repeated none has no position to spare.
bool has_one_to_spare(const PagedKvManager& manager, SequenceId sequence) {
  const std::int64_t at = std::max<std::int64_t>(0, manager.reserved_tokens(sequence) - 1);
  for (std::size_t group = 0; group < manager.geometry().num_groups(); ++group)
    if (manager.find_table(sequence, group)->first_held > manager.geometry().first_needed(group, at)) return false;
  return true;
}

std::vector<LayerGroup> random_groups(Rng& rng) {
  std::vector<LayerGroup> groups = {LayerGroup{}};
  for (std::int64_t i = rng.between(1, 3); i > 0; --i)
    groups.push_back({static_cast<std::int32_t>(rng.chance(0.2) ? 0 : rng.between(1, 40))});
  return groups;
}

TEST(LayerGroups, RandomOperationsAgreeWithTheNaiveModel) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    KvChecker checker(static_cast<std::int32_t>(rng.between(8, 60)), GroupGeometry(8, random_groups(rng), 40));
    std::uint64_t next = 1;
    for (int step = 0; step < 200; ++step) {
      const std::vector<SequenceId> live = checker.sequences();
      const auto any = [&] {
        return live[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(live.size()) - 1))];
      };
      const std::int64_t kind = rng.between(0, 9);
      if (live.empty() || (kind == 0 && live.size() < 8)) {
        checker.run_plan({{SequenceId{next++}, rng.between(1, 40)}}, true);
      } else if (kind <= 6) {
        const std::int64_t num_proposed = rng.chance(0.5) ? rng.between(1, 20) : 0;
        checker.run_plan(
            {{any(), rng.between(0, 20), num_proposed, rng.between(0, num_proposed)}, {any(), rng.between(-1, 3)}},
            rng.chance(0.8));
      } else if (kind <= 8 && live.size() < 8) {
        const SequenceId parent = any();
        const bool repeats = rng.chance(0.5) && has_one_to_spare(checker.manager(), parent);
        checker.fork(parent, SequenceId{next++}, repeats ? 1 : 0);
      } else {
        checker.release(any());
      }
      ASSERT_EQ(checker.difference(), std::nullopt) << "step " << step;
    }
    for (SequenceId sequence : checker.sequences()) checker.release(sequence);
    ASSERT_EQ(checker.manager().capacity().used_blocks(), 0);
  }
}

TEST(LayerGroups, RandomRunsWithACacheReadOnlyTheirOwnTokens) {
  std::uint64_t evicted = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const CollidingHasher colliding;
    CacheChecker checker(static_cast<std::int32_t>(rng.between(6, 60)), GroupGeometry(8, random_groups(rng), 64),
                         rng.chance(0.1) ? &colliding : nullptr);
    std::uint64_t next = 1;
    const auto random_tokens = [&] {
      std::vector<TokenId> all;
      for (std::int64_t length = rng.between(1, 60); static_cast<std::int64_t>(all.size()) < length;)
        all.insert(all.end(), static_cast<std::size_t>(rng.between(1, 8)),
                   TokenId{static_cast<std::int32_t>(rng.between(1, 2))});
      return all;
    };
    for (int step = 0; step < 60; ++step) {
      const std::vector<SequenceId> live = checker.sequences();
      const auto any = [&] {
        return live[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(live.size()) - 1))];
      };
      const std::int64_t kind = rng.between(0, 9);
      if (live.empty() || kind <= 3) {
        checker.start({{SequenceId{next++}, rng.chance(0.2) ? "salt" : "", random_tokens(), rng.between(1, 40)}},
                      rng.chance(0.9));
      } else if (kind <= 6) {
        checker.grow({any()}, rng.between(1, 20));
      } else if (kind == 7) {
        const SequenceId parent = any();
        const bool repeats = rng.chance(0.5) && has_one_to_spare(checker.manager(), parent);
        checker.fork(parent, SequenceId{next++}, random_tokens(), repeats ? 1 : 0);
      } else {
        checker.release(any());
      }
      ASSERT_EQ(checker.problem(), std::nullopt) << "step " << step;
    }
    for (SequenceId id : checker.sequences()) checker.release(id);
    ASSERT_EQ(checker.problem(), std::nullopt);
    evicted += checker.manager().cache_counters().evicted_blocks;
  }
  EXPECT_GT(evicted, 1000u) << "the pools are meant to be too small";
}

}  // namespace
}  // namespace quire
