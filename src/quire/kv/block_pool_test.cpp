#include "quire/kv/block_pool.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace quire {
namespace {

TEST(BlockPool, GivesOutEveryBlockOnceAndNeverTheNullBlock) {
  for (std::int32_t num_blocks : {1, 2, 3, 40, 1000}) {
    BlockPool pool(num_blocks);
    std::set<std::uint32_t> given;
    for (std::int32_t i = 0; i < num_blocks; ++i) {
      const BlockId block = pool.allocate();
      EXPECT_NE(block, kNullBlock);
      EXPECT_TRUE(pool.contains(block));
      EXPECT_TRUE(given.insert(block.value).second) << "block " << block.value << " was given out twice";
    }
    EXPECT_EQ(pool.allocate(), kNullBlock);
    EXPECT_EQ(pool.num_free(), 0);
    EXPECT_EQ(pool.num_used(), num_blocks);
    EXPECT_EQ(pool.validate(), std::nullopt);
  }
}

TEST(BlockPool, KnowsWhichIdsAreItsOwn) {
  BlockPool pool(3);
  EXPECT_FALSE(pool.contains(kNullBlock));
  EXPECT_TRUE(pool.contains(BlockId{1}));
  EXPECT_TRUE(pool.contains(BlockId{3}));
  EXPECT_FALSE(pool.contains(BlockId{4}));
  EXPECT_FALSE(pool.contains(BlockId{~0u}));
}

TEST(BlockPool, ASharedBlockIsFreedByItsLastHolder) {
  BlockPool pool(2);
  const BlockId block = pool.allocate();
  pool.share(block);
  EXPECT_EQ(pool.release(block), ReleaseOutcome::still_held);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.release(block), ReleaseOutcome::freed);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPool, TheLastFreedBlockIsTheNextGiven) {
  BlockPool pool(3);
  const BlockId first = pool.allocate();
  const BlockId second = pool.allocate();
  EXPECT_EQ(pool.release(first), ReleaseOutcome::freed);
  EXPECT_EQ(pool.release(second), ReleaseOutcome::freed);
  EXPECT_EQ(pool.allocate(), second);
  EXPECT_EQ(pool.allocate(), first);
}

// B01: one block listed twice in a release entered the free list twice.
TEST(BlockPool, ASecondReleaseOfAFreeBlockDoesNothing) {
  BlockPool pool(2);
  const BlockId owned_once = pool.allocate();
  EXPECT_EQ(pool.release(owned_once), ReleaseOutcome::freed);
  EXPECT_EQ(pool.release(owned_once), ReleaseOutcome::not_held);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.validate(), std::nullopt);

  const BlockId owned_twice = pool.allocate();
  pool.share(owned_twice);
  EXPECT_EQ(pool.release(owned_twice), ReleaseOutcome::still_held);
  EXPECT_EQ(pool.release(owned_twice), ReleaseOutcome::freed);

  const BlockId a = pool.allocate();
  const BlockId b = pool.allocate();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.allocate(), kNullBlock);
  EXPECT_EQ(pool.validate(), std::nullopt);
}

TEST(BlockPool, ReleasingTheNullBlockOrAForeignIdDoesNothing) {
  BlockPool pool(2);
  EXPECT_EQ(pool.release(kNullBlock), ReleaseOutcome::not_held);
  EXPECT_EQ(pool.release(BlockId{3}), ReleaseOutcome::not_held);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.validate(), std::nullopt);
}

/// Every sequence of `depth` operations (allocate, share a block, release a block) on a pool, against counts by block.
void try_all(const BlockPool& pool, const std::vector<int>& counts, int depth) {
  int num_used = 0;
  for (std::size_t id = 1; id < counts.size(); ++id) {
    ASSERT_EQ(pool.ref_count(BlockId{static_cast<std::uint32_t>(id)}), counts[id]);
    num_used += counts[id] > 0;
  }
  ASSERT_EQ(pool.num_used(), num_used);
  ASSERT_EQ(pool.validate(), std::nullopt);
  if (depth == 0) return;

  BlockPool allocated = pool;
  std::vector<int> after = counts;
  const BlockId block = allocated.allocate();
  ASSERT_EQ(block == kNullBlock, num_used == pool.num_blocks());
  if (block != kNullBlock) {
    ASSERT_EQ(after[block.value]++, 0);
    try_all(allocated, after, depth - 1);
  }
  for (std::uint32_t id = 1; id < counts.size(); ++id) {
    BlockPool released = pool;
    after = counts;
    const ReleaseOutcome outcome = released.release(BlockId{id});
    ASSERT_EQ(outcome, counts[id] == 0   ? ReleaseOutcome::not_held
                       : counts[id] == 1 ? ReleaseOutcome::freed
                                         : ReleaseOutcome::still_held);
    if (after[id] > 0) --after[id];
    try_all(released, after, depth - 1);
    if (counts[id] == 0) continue;
    BlockPool shared = pool;
    after = counts;
    shared.share(BlockId{id});
    ++after[id];
    try_all(shared, after, depth - 1);
  }
}

TEST(BlockPool, EveryShortSequenceOfOperationsOnATinyPoolAgreesWithCounting) {
  try_all(BlockPool(1), std::vector<int>(2, 0), 8);
  try_all(BlockPool(2), std::vector<int>(3, 0), 7);
  try_all(BlockPool(3), std::vector<int>(4, 0), 5);
}

/// Entries visited, for each block, by taking half of a pool and giving it back, half of that by way of the idle list.
double visited_per_block(std::int32_t num_blocks) {
  BlockPool pool(num_blocks);
  std::vector<BlockId> held;
  for (std::int32_t i = 0; i < num_blocks / 2; ++i) held.push_back(pool.allocate());
  for (std::size_t i = 0; i < held.size(); ++i) {
    const bool keyed = i % 2 == 0;
    if (keyed) pool.set_keyed(held[i], true);
    EXPECT_NE(pool.release(held[i]), ReleaseOutcome::not_held);
    if (keyed) pool.set_keyed(held[i], false);
  }
  return static_cast<double>(pool.num_visited()) / static_cast<double>(held.size());
}

TEST(BlockPool, TakesAsManyEntriesForABlockOfALargePoolAsOfASmallOne) {
  EXPECT_EQ(visited_per_block(1'000), visited_per_block(1'000'000));
}

}  // namespace
}  // namespace quire
