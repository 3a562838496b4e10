// The prefix cache of PagedKvManager: what is found, what is shared and copied, what is evicted and in which order.

#include <gtest/gtest.h>

#include "quire/base/rng.h"
#include "quire/kv/cache_checker_test.h"

namespace quire {
namespace {

constexpr SequenceId kA{1}, kB{2}, kC{3};

std::vector<TokenId> tokens(std::initializer_list<std::pair<int, int>> runs) {
  std::vector<TokenId> all;
  for (const auto& [token, count] : runs) all.insert(all.end(), static_cast<std::size_t>(count), TokenId{token});
  return all;
}

TEST(BlockKeyMessage, IsTaggedAndLengthPrefixedSoThatNoFieldsRunIntoEachOther) {
  const BlockKey domain, parent;
  const std::vector<TokenId> one{TokenId{1}};
  const auto plain = block_key_message(domain, "", nullptr, one);
  EXPECT_NE(plain, block_key_message(domain, "", &parent, one));
  EXPECT_NE(block_key_message(domain, "ab", nullptr, one), block_key_message(domain, "a", nullptr, one));
  // A salt made of the bytes of the fields that would follow is not those fields.
  std::string forged;
  const auto tail = std::span(plain).last(9 + 4);
  for (std::byte byte : tail) forged += static_cast<char>(byte);
  EXPECT_NE(block_key_message(domain, forged, nullptr, {}), plain);
  EXPECT_EQ(plain.size(), 13u + 41u + 9u + 13u);
}

// B27: token ids were cut to eight bits.
TEST(BlockKeyMessage, B27TokenIdsEnterWithAll32Bits) {
  const BlockKey domain;
  for (int bit = 0; bit < 31; ++bit) {
    const std::vector<TokenId> a{TokenId{65}}, b{TokenId{65 ^ (1 << bit)}};
    EXPECT_NE(block_key_message(domain, "", nullptr, a), block_key_message(domain, "", nullptr, b)) << bit;
  }
}

TEST(BlockKeyMessage, KeysOfDifferentLayerGroupsDifferAndTheFirstGroupsIsTheChains) {
  const BlockKey key = DigestHasher().hash({});
  EXPECT_EQ(in_group(key, 0), key);
  std::vector<BlockKey> keys;
  for (std::size_t group = 0; group < kMaxLayerGroups; ++group) keys.push_back(in_group(key, group));
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
}

// P13: the cache matched the whole prompt and nothing was left to compute.
TEST(PrefixCache, P13AFullHitComputesTheLastTokenOnlyWhateverTheBlockSize) {
  for (std::int32_t block_size : {8, 16, 32, 64, 128}) {
    for (int blocks : {1, 2, 3}) {
      CacheChecker checker(16, block_size);
      const auto prompt = tokens({{7, blocks * block_size}});
      checker.start({{kA, "", prompt, blocks * block_size}});
      const PrefixHit hit = checker.start({{kB, "", prompt, 1}})[0];
      EXPECT_EQ(hit.num_tokens, blocks * block_size - 1);
      EXPECT_EQ(hit.num_blocks, blocks - 1);
      EXPECT_EQ(checker.manager().reserved_tokens(kB), blocks * block_size);
      EXPECT_NE(checker.manager().find_table(kB)->blocks.back(), checker.manager().find_table(kA)->blocks.back());
      EXPECT_EQ(checker.problem(), std::nullopt);
    }
  }
}

TEST(PrefixCache, APartlyAgreeingBlockHitsByACopyOfItsSlots) {
  CacheChecker checker(16, 8);
  checker.start({{kA, "", tokens({{1, 8}, {2, 8}}), 16}});
  const PrefixHit hit = checker.start({{kB, "", tokens({{1, 8}, {2, 5}, {3, 9}}), 3}})[0];
  EXPECT_EQ(hit.num_tokens, 13);
  ASSERT_EQ(hit.blocks.size(), 1u);
  EXPECT_EQ(hit.copy_from, std::vector{checker.manager().find_table(kA)->blocks[1]});
  EXPECT_NE(checker.manager().find_table(kB)->blocks[1], hit.copy_from[0]);
  checker.grow({kB}, 100);
  EXPECT_EQ(checker.problem(), std::nullopt);
}

TEST(PrefixCache, ThePartOfTheFirstBlockHitsToo) {
  CacheChecker checker(16, 8);
  checker.start({{kA, "", tokens({{1, 8}}), 8}});
  EXPECT_EQ(checker.start({{kB, "", tokens({{1, 3}, {2, 8}}), 8}})[0].num_tokens, 3);
  EXPECT_EQ(checker.problem(), std::nullopt);
}

TEST(PrefixCache, ABlockAtTheLimitHitsThoughManyLaterOnesBeginAlike) {
  CacheChecker checker(32, 8);
  checker.start({{SequenceId{100}, "", tokens({{1, 8}}), 8}});
  for (int i = 0; i < 10; ++i)
    checker.start({{SequenceId{101u + static_cast<unsigned>(i)}, "", tokens({{1, 2}, {10 + i, 6}}), 8}});
  EXPECT_EQ(checker.start({{kA, "", tokens({{1, 8}}), 8}})[0].num_tokens, 7);
  EXPECT_EQ(checker.problem(), std::nullopt);
}

TEST(PrefixCache, BlocksCompletedInDecodeAreFoundAsWell) {
  CacheChecker checker(16, 8);
  const auto all = tokens({{1, 5}, {2, 20}});
  checker.start({{kA, "", all, 5}});
  for (int i = 0; i < 20; ++i) checker.grow({kA}, 1);
  EXPECT_EQ(checker.start({{kB, "", all, 1}})[0].num_tokens, 24);
}

TEST(PrefixCache, AnUnfilledBlockIsNotFound) {
  CacheChecker checker(16, 8);
  checker.start({{kA, "", tokens({{1, 15}}), 15}});
  EXPECT_EQ(checker.start({{kB, "", tokens({{1, 20}}), 1}})[0].num_tokens, 8);
}

// B19: a salt and another namespace of the same name met in one key.
TEST(PrefixCache, B19SequencesOfDifferentSaltsShareNothing) {
  CacheChecker checker(32, 8);
  const auto prompt = tokens({{1, 40}});
  checker.start({{kA, "X", prompt, 40}});
  EXPECT_EQ(checker.start({{kB, "", prompt, 40}})[0].num_tokens, 0);
  EXPECT_EQ(checker.start({{kC, "x", prompt, 40}})[0].num_tokens, 0);
  EXPECT_EQ(checker.start({{SequenceId{4}, "X", prompt, 40}})[0].num_tokens, 39);
  EXPECT_EQ(checker.problem(), std::nullopt);
}

// B18: crafted prompts whose blocks collide took each other's KV.
TEST(PrefixCache, B18EqualHashWithOtherTokensIsAMiss) {
  const CollidingHasher hasher;
  CacheChecker checker(32, 8, &hasher);
  checker.start({{kA, "", tokens({{1, 24}}), 24}});
  EXPECT_EQ(checker.start({{kB, "", tokens({{2, 24}}), 24}})[0].num_tokens, 0);
  EXPECT_EQ(checker.start({{kC, "salt", tokens({{1, 24}}), 24}})[0].num_tokens, 0);
  EXPECT_EQ(checker.start({{SequenceId{4}, "", tokens({{1, 8}, {3, 8}}), 16}})[0].num_tokens, 8)
      << "the same content under the same key is still found";
  EXPECT_GT(checker.manager().cache_counters().collisions, 0u);
  EXPECT_EQ(checker.problem(), std::nullopt);
}

// P12: many blocks with equal tokens at different depths.
TEST(PrefixCache, P12EqualTokensAtAnotherDepthAreAnotherBlock) {
  for (const bool collides : {false, true}) {
    const CollidingHasher hasher;
    CacheChecker checker(64, 8, collides ? &hasher : nullptr);
    checker.start({{kA, "", tokens({{5, 200}}), 200}});
    checker.start({{kB, "", tokens({{6, 8}, {5, 100}}), 108}});
    checker.start({{kC, "", tokens({{5, 100}, {6, 3}}), 103}});
    EXPECT_EQ(checker.problem(), std::nullopt);
  }
}

TEST(PrefixCache, CachedBlocksCountAsFreeAndTheOldestIsEvictedDeepestFirst) {
  CacheChecker checker(6, 8);
  const auto first = tokens({{1, 24}}), second = tokens({{2, 24}});
  checker.start({{kA, "", first, 24}});
  checker.start({{kB, "", second, 24}});
  checker.release(kA);
  checker.release(kB);
  EXPECT_EQ(checker.manager().capacity().free_blocks, 6);
  EXPECT_EQ(checker.manager().capacity().cached_blocks, 6);
  checker.start({{kC, "", tokens({{3, 8}}), 8}});
  EXPECT_EQ(checker.manager().cache_counters().evicted_blocks, 1u);
  EXPECT_EQ(checker.start({{SequenceId{4}, "", first, 1}}, false)[0].blocks.size(), 2u) << "its end went first";
  EXPECT_EQ(checker.start({{SequenceId{5}, "", second, 1}}, false)[0].num_tokens, 23);
  EXPECT_EQ(checker.problem(), std::nullopt);
}

TEST(PrefixCache, AHitMakesABlockTheLatest) {
  CacheChecker checker(4, 8);
  const auto first = tokens({{1, 9}}), second = tokens({{2, 9}});
  checker.start({{kA, "", first, 9}});
  checker.release(kA);
  checker.start({{kB, "", second, 9}});
  checker.release(kB);
  checker.start({{kA, "", first, 9}});
  checker.release(kA);
  checker.start({{kC, "", tokens({{3, 24}}), 24}});  // takes two free blocks and one cached one
  EXPECT_EQ(checker.start({{kA, "", first, 1}}, false)[0].blocks.size(), 1u);
  EXPECT_EQ(checker.start({{kB, "", second, 1}}, false)[0].blocks.size(), 0u);
  EXPECT_EQ(checker.problem(), std::nullopt);
}

TEST(PrefixCache, AHitIsNotEvictedByAnEarlierReservationOfItsPlan) {
  CacheChecker checker(4, 8);
  checker.start({{kA, "", tokens({{1, 16}}), 16}});
  checker.release(kA);
  const auto hits = checker.start({{kB, "", tokens({{2, 16}}), 16}, {kC, "", tokens({{1, 17}}), 1}});
  EXPECT_EQ(hits[1].num_tokens, 16);
  EXPECT_FALSE(checker.has(kC)) << "three blocks are not there";
  EXPECT_TRUE(checker.has(kB));
  checker.release(kB);
  checker.start({{kB, "", tokens({{4, 8}}), 8}, {kC, "", tokens({{1, 17}}), 1}});
  EXPECT_TRUE(checker.has(kC));
  EXPECT_EQ(checker.problem(), std::nullopt);
}

TEST(PrefixCache, ABlockWhoseParentIsGoneGivesItsKeyToOneThatCanBeFound) {
  CacheChecker checker(5, 8);
  const auto prompt = tokens({{1, 8}, {2, 9}});
  // B computes the same first block beside A, so that only A's has the key; B's second block then hangs on A's first.
  checker.start({{kA, "", tokens({{1, 9}}), 8}, {kB, "", prompt, 8}});
  checker.grow({kB}, 8);
  checker.release(kA);
  checker.start({{kC, "", tokens({{3, 24}}), 24}});
  ASSERT_EQ(checker.manager().cache_counters().evicted_blocks, 1u) << "A's block";
  checker.release(kC);
  EXPECT_EQ(checker.start({{SequenceId{4}, "", prompt, 1}}, false)[0].num_tokens, 0) << "no first block, no second";
  checker.start({{SequenceId{4}, "", prompt, 17}});
  checker.release(SequenceId{4});
  EXPECT_EQ(checker.start({{SequenceId{5}, "", prompt, 1}}, false)[0].num_tokens, 16);
  EXPECT_EQ(checker.problem(), std::nullopt);
}

std::vector<TokenId> random_tokens(Rng& rng, std::int64_t limit) {
  std::vector<TokenId> all;
  const std::int64_t length = rng.between(1, limit);
  while (static_cast<std::int64_t>(all.size()) < length)
    all.insert(all.end(), static_cast<std::size_t>(rng.between(1, 8)),
               TokenId{static_cast<std::int32_t>(rng.between(1, 2))});
  return all;
}

void run_random(std::uint64_t seed, int num_steps) {
  SCOPED_TRACE(seed);
  Rng rng(seed);
  const CollidingHasher colliding;
  const auto num_blocks = static_cast<std::int32_t>(rng.between(1, 24));
  CacheChecker checker(num_blocks, 8, rng.chance(0.2) ? &colliding : nullptr);
  std::uint64_t next = 1;
  for (int step = 0; step < num_steps; ++step) {
    const std::vector<SequenceId> live = checker.sequences();
    const auto any = [&] { return live[static_cast<std::size_t>(rng.between(0, static_cast<int>(live.size()) - 1))]; };
    const std::int64_t kind = rng.between(0, 9);
    if (live.empty() || kind <= 3) {
      std::vector<CacheChecker::Start> starts;
      for (std::int64_t i = rng.between(1, 3); i > 0; --i)
        starts.push_back(
            {SequenceId{next++}, rng.chance(0.2) ? "salt" : "", random_tokens(rng, 60), rng.between(1, 40)});
      checker.start(starts, rng.chance(0.9));
    } else if (kind <= 6) {
      const SequenceId first = any(), second = any();
      checker.grow(first == second ? std::vector{first} : std::vector{first, second}, rng.between(1, 20));
    } else if (kind == 7) {
      checker.fork(any(), SequenceId{next++}, random_tokens(rng, 20));
    } else {
      checker.release(any());
    }
    ASSERT_EQ(checker.problem(), std::nullopt) << "step " << step;
  }
  for (SequenceId id : checker.sequences()) checker.release(id);
  ASSERT_EQ(checker.problem(), std::nullopt);
  ASSERT_EQ(checker.manager().capacity().used_blocks(), 0);
}

TEST(PrefixCache, ThousandsOfRandomRunsReadOnlyTheirOwnTokens) {
  for (std::uint64_t seed = 1; seed <= 1500 && !HasFatalFailure(); ++seed) run_random(seed, 40);
  for (std::uint64_t seed = 5000; seed < 5020 && !HasFatalFailure(); ++seed) run_random(seed, 1000);
}

/// Every short sequence of starts, growth and releases of sequences with common beginnings on a tiny pool.
void try_all(const CacheChecker& checker, std::uint64_t next, int depth) {
  ASSERT_EQ(checker.problem(), std::nullopt);
  if (depth == 0) return;
  const std::vector<std::vector<TokenId>> prompts = {tokens({{1, 16}}), tokens({{1, 8}, {2, 8}}),
                                                     tokens({{1, 4}, {2, 9}})};
  for (const auto& prompt : prompts) {
    for (const std::int64_t count : {5, 16}) {
      CacheChecker started = checker;
      started.start({{SequenceId{next}, "", prompt, count}});
      try_all(started, next + 1, depth - 1);
    }
  }
  for (SequenceId id : checker.sequences()) {
    CacheChecker grown = checker;
    grown.grow({id}, 8);
    try_all(grown, next, depth - 1);
    CacheChecker released = checker;
    released.release(id);
    try_all(released, next, depth - 1);
  }
}

TEST(PrefixCache, EveryShortSequenceOfOperationsOnATinyPoolIsRight) {
  try_all(CacheChecker(2, 8), 1, 5);
  try_all(CacheChecker(4, 8), 1, 4);
}

}  // namespace
}  // namespace quire
