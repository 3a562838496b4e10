#include "quire/kv/paged_kv_manager.h"

#include <gtest/gtest.h>

#include "quire/base/rng.h"
#include "quire/kv/kv_checker_test.h"

namespace quire {
namespace {

constexpr SequenceId kA{1}, kB{2}, kC{3};

struct Committed : KvChanges {
  std::vector<KvReservation> reservations;
};

/// Plans and commits one reservation; it must fit.
Committed reserve(PagedKvManager& manager, SequenceId sequence, std::int64_t num_tokens) {
  Committed committed;
  manager.begin_plan();
  EXPECT_TRUE(manager.plan_reserve(sequence, num_tokens));
  manager.commit_plan(committed, committed.reservations);
  return committed;
}

TEST(PagedKvManager, TakesABlockForEachBlockSizeTokens) {
  for (std::int32_t block_size : {8, 16, 32, 64, 128}) {
    PagedKvManager manager(4, block_size);
    EXPECT_EQ(reserve(manager, kA, 1).new_blocks.size(), 1u);
    EXPECT_EQ(reserve(manager, kA, block_size).new_blocks.size(), 0u);
    EXPECT_EQ(reserve(manager, kA, block_size + 1).new_blocks.size(), 1u);
    EXPECT_EQ(reserve(manager, kA, 4 * block_size).new_blocks.size(), 2u);
    EXPECT_EQ(manager.capacity().free_blocks, 0);
    EXPECT_EQ(manager.reserved_tokens(kA), 4 * block_size);
    manager.begin_plan();
    EXPECT_FALSE(manager.plan_reserve(kA, 4 * block_size + 1));
    EXPECT_EQ(manager.validate(), std::nullopt);
  }
}

TEST(PagedKvManager, AcceptsTheDocumentedBlockSizesOnly) {
  for (int size = -1; size < 300; ++size)
    EXPECT_EQ(is_block_size(size), size == 8 || size == 16 || size == 32 || size == 64 || size == 128) << size;
}

TEST(PagedKvManager, APlanThatIsNotCommittedLeavesNoTrace) {
  PagedKvManager manager(4, 8);
  reserve(manager, kA, 12);
  const std::vector<BlockId> before = manager.find_table(kA)->blocks;
  manager.begin_plan();
  manager.plan_release(kA);
  EXPECT_EQ(manager.plan_free_blocks(), 4);
  EXPECT_TRUE(manager.plan_reserve(kB, 32));
  EXPECT_FALSE(manager.plan_reserve(kC, 1));
  manager.begin_plan();
  EXPECT_EQ(manager.find_table(kA)->blocks, before);
  EXPECT_EQ(manager.find_table(kB), nullptr);
  EXPECT_EQ(manager.plan_free_blocks(), 2);
  EXPECT_EQ(manager.validate(), std::nullopt);
}

TEST(PagedKvManager, AReservationThatDoesNotFitLeavesThePlanAsItWas) {
  PagedKvManager manager(2, 8);
  manager.begin_plan();
  EXPECT_TRUE(manager.plan_reserve(kA, 8));
  EXPECT_FALSE(manager.plan_reserve(kB, 9));
  EXPECT_TRUE(manager.plan_reserve(kB, 8));
  Committed committed;
  manager.commit_plan(committed, committed.reservations);
  ASSERT_EQ(committed.reservations.size(), 2u);
  EXPECT_EQ(committed.reservations[0].sequence, kA);
  EXPECT_EQ(committed.reservations[1].sequence, kB);
  EXPECT_EQ(committed.reservations[1].new_blocks_offset, 1);
  EXPECT_EQ(committed.reservations[1].num_new_blocks, 1);
}

TEST(PagedKvManager, BlocksReleasedInAPlanCanBeReservedInIt) {
  PagedKvManager manager(2, 8);
  reserve(manager, kA, 16);
  manager.begin_plan();
  EXPECT_FALSE(manager.plan_reserve(kB, 1));
  manager.plan_release(kA);
  EXPECT_TRUE(manager.plan_reserve(kB, 16));
  Committed committed;
  manager.commit_plan(committed, committed.reservations);
  EXPECT_EQ(committed.new_blocks.size(), 2u);
  EXPECT_EQ(manager.find_table(kA), nullptr);
  EXPECT_EQ(manager.validate(), std::nullopt);
}

TEST(PagedKvManager, AForkTakesNoMemoryAndTheFirstWriterGetsACopy) {
  PagedKvManager manager(4, 8);
  reserve(manager, kA, 12);
  manager.fork(kA, kB, manager.reserved_tokens(kA));
  EXPECT_EQ(manager.capacity().free_blocks, 2);
  const BlockId shared = manager.find_table(kA)->blocks[1];

  const Committed first = reserve(manager, kB, 13);
  const BlockId copy = manager.find_table(kB)->blocks[1];
  EXPECT_EQ(first.copies, (std::vector<BlockCopy>{{shared, copy}}));
  EXPECT_EQ(first.table_edits, (std::vector<TableEdit>{{kB, 1, copy}}));
  EXPECT_TRUE(first.new_blocks.empty());
  EXPECT_NE(copy, shared);

  const Committed second = reserve(manager, kA, 13);
  EXPECT_TRUE(second.copies.empty()) << "the last holder writes in place";
  EXPECT_EQ(manager.find_table(kA)->blocks[1], shared);
  EXPECT_EQ(manager.pool().ref_count(manager.find_table(kA)->blocks[0]), 2);
}

TEST(PagedKvManager, AForkAtABlockBoundaryNeedsNoCopy) {
  PagedKvManager manager(4, 8);
  reserve(manager, kA, 8);
  manager.fork(kA, kB, manager.reserved_tokens(kA));
  EXPECT_TRUE(reserve(manager, kA, 9).copies.empty());
  EXPECT_TRUE(reserve(manager, kB, 9).copies.empty());
  EXPECT_EQ(manager.capacity().free_blocks, 1);
}

TEST(PagedKvManager, TwoWritersOfOneSharedBlockInOnePlanNeedOneCopy) {
  PagedKvManager manager(2, 8);
  reserve(manager, kA, 4);
  manager.fork(kA, kB, manager.reserved_tokens(kA));
  manager.begin_plan();
  EXPECT_TRUE(manager.plan_reserve(kA, 5));
  EXPECT_TRUE(manager.plan_reserve(kB, 5)) << "the first copy left the second writer alone with the block";
  Committed committed;
  manager.commit_plan(committed, committed.reservations);
  EXPECT_EQ(committed.copies.size(), 1u);
  EXPECT_EQ(manager.validate(), std::nullopt);
}

TEST(PagedKvManager, ACopyThatFindsNoBlockDoesNotFit) {
  PagedKvManager manager(1, 8);
  reserve(manager, kA, 4);
  manager.fork(kA, kB, manager.reserved_tokens(kA));
  manager.begin_plan();
  EXPECT_FALSE(manager.plan_reserve(kA, 5));
  manager.plan_release(kB);
  EXPECT_TRUE(manager.plan_reserve(kA, 5)) << "without the other holder it writes in place";
}

TEST(PagedKvManager, SharersReleasedTogetherFreeTheirBlocksInThePlan) {
  PagedKvManager manager(2, 8);
  reserve(manager, kA, 16);
  manager.fork(kA, kB, manager.reserved_tokens(kA));
  manager.begin_plan();
  manager.plan_release(kA);
  EXPECT_EQ(manager.plan_free_blocks(), 0);
  manager.plan_release(kB);
  EXPECT_EQ(manager.plan_free_blocks(), 2);
}

TEST(PagedKvManager, AnExtendedReservationTakesTheBlocksOfTheLargerOneAndTruncatingGivesThemBack) {
  PagedKvManager manager(4, 8);
  reserve(manager, kA, 7);
  manager.begin_plan();
  ASSERT_TRUE(manager.plan_reserve(kA, 8));
  EXPECT_EQ(manager.plan_free_blocks(), 3);
  EXPECT_FALSE(manager.plan_extend(kA, 33)) << "a fifth block";
  EXPECT_EQ(manager.plan_free_blocks(), 3) << "and nothing was noted";
  ASSERT_TRUE(manager.plan_extend(kA, 20));
  EXPECT_EQ(manager.plan_free_blocks(), 1);
  Committed committed;
  manager.commit_plan(committed, committed.reservations);
  ASSERT_EQ(committed.reservations.size(), 1u);
  EXPECT_EQ(committed.reservations[0].num_new_blocks, 2);
  EXPECT_EQ(manager.reserved_tokens(kA), 20);
  manager.truncate(kA, 9);
  EXPECT_EQ(manager.reserved_tokens(kA), 9);
  EXPECT_EQ(manager.capacity().free_blocks, 2);
  manager.truncate(kA, 8);
  EXPECT_EQ(manager.capacity().free_blocks, 3);
  EXPECT_EQ(manager.validate(), std::nullopt);
  EXPECT_EQ(reserve(manager, kA, 9).new_blocks.size(), 1u) << "it goes on as if there had been no more";
}

/// Every plan of two operations out of a small set, to a depth, with and without committing, on a tiny pool.
void try_all_plans(const KvChecker& checker, int depth) {
  ASSERT_EQ(checker.difference(), std::nullopt);
  if (depth == 0) return;
  const std::vector<KvChecker::Operation> choices = {{kA, 1}, {kA, 5},  {kA, 9}, {kA, 1, 8, 3},
                                                     {kB, 5}, {kA, -1}, {kB, -1}};
  for (const auto& first : choices) {
    for (const auto& second : choices) {
      if (first.sequence == second.sequence) continue;
      KvChecker next = checker;
      next.run_plan({first, second}, false);
      next.run_plan({first, second}, true);
      try_all_plans(next, depth - 1);
    }
  }
  if (checker.has(kA) && !checker.has(kB)) {
    KvChecker next = checker;
    next.fork(kA, kB);
    try_all_plans(next, depth - 1);
  }
}

TEST(PagedKvManager, EveryShortSequenceOfPlansOnATinyPoolAgreesWithTheModel) {
  try_all_plans(KvChecker(2, 8), 3);
  try_all_plans(KvChecker(3, 8), 3);
}

// B06: after hundreds of requests a block taken from the free list had owners.
TEST(PagedKvManager, AHundredThousandRandomOperationsOn32BlocksKeepAllInvariants) {
  Rng rng(6);
  KvChecker checker(32, 8);
  std::uint64_t next_sequence = 1;
  for (int step = 0; step < 100'000; ++step) {
    const std::vector<SequenceId> live = checker.sequences();
    const auto any = [&] { return live[static_cast<std::size_t>(rng.between(0, static_cast<int>(live.size()) - 1))]; };
    const std::int64_t kind = rng.between(0, 9);
    if (live.empty() || (kind == 0 && live.size() < 12)) {
      checker.run_plan({{SequenceId{next_sequence++}, rng.between(1, 40)}}, true);
    } else if (kind <= 6) {
      const std::int64_t num_proposed = rng.chance(0.3) ? rng.between(1, 20) : 0;
      checker.run_plan(
          {{any(), rng.between(0, 10), num_proposed, rng.between(0, num_proposed)}, {any(), rng.between(-1, 3)}},
          rng.chance(0.8));
    } else if (kind == 7 && live.size() < 12) {
      checker.fork(any(), SequenceId{next_sequence++});
    } else {
      checker.release(any());
    }
    ASSERT_EQ(checker.difference(), std::nullopt) << "at step " << step;
  }
  for (SequenceId sequence : checker.sequences()) checker.release(sequence);
  EXPECT_EQ(checker.manager().capacity().free_blocks, 32);
  EXPECT_EQ(checker.difference(), std::nullopt);
}

}  // namespace
}  // namespace quire
