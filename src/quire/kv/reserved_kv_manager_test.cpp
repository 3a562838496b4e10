#include "quire/kv/reserved_kv_manager.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "quire/base/rng.h"
#include "quire/kv/paged_kv_manager.h"

namespace quire {
namespace {

constexpr SequenceId kA{1}, kB{2}, kC{3};

KvChanges commit(KvManager& manager, std::vector<KvReservation>* reservations = nullptr) {
  KvChanges changes;
  std::vector<KvReservation> own;
  manager.commit_plan(changes, reservations ? *reservations : own);
  return changes;
}

TEST(ReservedKvManager, OneTokenHoldsTheMemoryOfTheLongestSequence) {
  ReservedKvManager manager(10, 16, 60);  // 4 blocks a sequence: 2 places, 2 blocks of no use
  EXPECT_EQ(manager.capacity().num_blocks, 8);
  EXPECT_EQ(manager.blocks_for(1), 4);
  EXPECT_EQ(manager.blocks_for(0), 0);
  manager.begin_plan();
  ASSERT_TRUE(manager.plan_reserve(kA, 1));
  ASSERT_TRUE(manager.plan_reserve(kB, 17));
  EXPECT_FALSE(manager.plan_reserve(kC, 1)) << "both places are taken";
  EXPECT_EQ(commit(manager).new_blocks, (std::vector<BlockId>{{1}, {5}, {6}}));
  EXPECT_EQ(manager.capacity().free_blocks, 0);
  EXPECT_EQ(manager.usage().unfilled_slots, 128 - 18);
  EXPECT_EQ(manager.usage().used_blocks, 8);
  EXPECT_EQ(manager.validate(), std::nullopt);
}

TEST(ReservedKvManager, AReleasePlannedBeforeMakesRoom) {
  ReservedKvManager manager(4, 16, 64);
  manager.begin_plan();
  ASSERT_TRUE(manager.plan_reserve(kA, 64));
  commit(manager);
  manager.begin_plan();
  EXPECT_FALSE(manager.plan_reserve(kB, 1));
  manager.begin_plan();
  manager.plan_release(kA);
  ASSERT_TRUE(manager.plan_reserve(kB, 1));
  commit(manager);
  EXPECT_EQ(manager.reserved_tokens(kA), 0);
  EXPECT_EQ(manager.reserved_tokens(kB), 1);
  EXPECT_EQ(manager.validate(), std::nullopt);
}

/// Sequences come, grow and go at random; every sequence's blocks lie one after another and belong to it alone.
TEST(ReservedKvManager, BlocksAreContiguousAndNeverShared) {
  Rng rng(5);
  ReservedKvManager manager(40, 8, 50);
  std::map<SequenceId, std::vector<BlockId>> tables;
  std::uint64_t next = 1;
  for (int step = 0; step < 2000; ++step) {
    manager.begin_plan();
    for (const auto& [sequence, table] : tables) {
      const std::int64_t now = manager.reserved_tokens(sequence);
      if (!rng.chance(0.6)) continue;
      ASSERT_TRUE(manager.plan_reserve(sequence, rng.between(now, 50)));
    }
    const bool had_room = manager.plan_free_blocks() > 0;
    if (rng.chance(0.5)) {
      EXPECT_EQ(manager.plan_reserve(SequenceId{next++}, rng.between(1, 50)), had_room);
    }
    std::vector<KvReservation> reservations;
    const KvChanges changes = commit(manager, &reservations);
    for (const KvReservation& r : reservations)
      for (std::int32_t i = 0; i < r.num_new_blocks; ++i)
        tables[r.sequence].push_back(changes.new_blocks[static_cast<std::size_t>(r.new_blocks_offset + i)]);
    std::set<std::uint32_t> seen;
    for (const auto& [sequence, table] : tables) {
      for (std::size_t i = 0; i < table.size(); ++i) {
        EXPECT_EQ(table[i].value, table[0].value + i);
        EXPECT_TRUE(seen.insert(table[i].value).second) << "a block in two tables";
      }
    }
    ASSERT_EQ(manager.validate(), std::nullopt);
    if (!tables.empty() && rng.chance(0.3)) {
      auto victim = std::next(tables.begin(), rng.between(0, static_cast<std::int64_t>(tables.size()) - 1));
      manager.release(victim->first);
      tables.erase(victim);
    }
  }
}

TEST(KvUsage, CountsSharedBlocksOnceAndUnfilledSlotsOfTails) {
  PagedKvManager manager(10, 16);
  manager.begin_plan();
  ASSERT_TRUE(manager.plan_reserve(kA, 35));
  commit(manager);
  manager.fork(kA, kB, 35);
  KvUsage usage = manager.usage();
  EXPECT_EQ(usage.table_entries, 6);
  EXPECT_EQ(usage.used_blocks, 3);
  EXPECT_EQ(usage.unfilled_slots, 13);
  manager.begin_plan();
  ASSERT_TRUE(manager.plan_reserve(kB, 36));
  commit(manager);
  usage = manager.usage();
  EXPECT_EQ(usage.table_entries, 6);
  EXPECT_EQ(usage.used_blocks, 4);
  EXPECT_EQ(usage.unfilled_slots, 13 + 12);
  manager.release(kA);
  usage = manager.usage();
  EXPECT_EQ(usage.table_entries, 3);
  EXPECT_EQ(usage.unfilled_slots, 12) << "what has ended holds nothing";
}

}  // namespace
}  // namespace quire
