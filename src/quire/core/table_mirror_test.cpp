#include "quire/core/table_mirror.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

std::vector<BlockId> table_of(const TableMirror& mirror, SequenceId sequence, std::size_t group = 0) {
  const auto table = mirror.table(sequence, group);
  return {table.begin(), table.end()};
}

TEST(TableMirror, AppliesDropsThenEditsThenAppends) {
  TableMirror mirror(16);
  BatchPlan plan;
  plan.rows.resize(2);
  plan.rows[0] = {.sequence = SequenceId{1}, .num_tokens = 1, .new_blocks_offset = 0, .num_new_blocks = 2};
  plan.rows[1] = {.sequence = SequenceId{2}, .num_tokens = 1, .new_blocks_offset = 2, .num_new_blocks = 1};
  plan.new_blocks = {BlockId{4}, BlockId{5}, BlockId{6}};
  mirror.apply(plan);
  EXPECT_EQ(table_of(mirror, SequenceId{1}), (std::vector<BlockId>{{4}, {5}}));
  EXPECT_EQ(table_of(mirror, SequenceId{2}), (std::vector<BlockId>{{6}}));

  plan.clear();
  plan.dropped = {SequenceId{2}};
  plan.table_edits = {{SequenceId{1}, 1, BlockId{9}}};
  plan.rows = {{.sequence = SequenceId{1}, .num_tokens = 1, .new_blocks_offset = 0, .num_new_blocks = 1}};
  plan.new_blocks = {BlockId{6}};
  mirror.apply(plan);
  EXPECT_EQ(table_of(mirror, SequenceId{1}), (std::vector<BlockId>{{4}, {9}, {6}}));
  EXPECT_TRUE(mirror.table(SequenceId{2}).empty());
  EXPECT_EQ(mirror.num_sequences(), 1u);
}

TEST(TableMirror, AForkBeginsWithTheParentsBlocksEvenIfTheParentIsDropped) {
  TableMirror mirror(16);
  BatchPlan plan;
  plan.rows = {{.sequence = SequenceId{1}, .num_tokens = 40, .new_blocks_offset = 0, .num_new_blocks = 3}};
  plan.new_blocks = {BlockId{4}, BlockId{5}, BlockId{6}};
  mirror.apply(plan);
  plan.clear();
  plan.forks = {{SequenceId{1}, SequenceId{2}, 17}, {SequenceId{2}, SequenceId{3}, 16}};
  plan.dropped = {SequenceId{1}, SequenceId{2}};
  mirror.apply(plan);
  EXPECT_TRUE(mirror.table(SequenceId{1}).empty());
  EXPECT_EQ(table_of(mirror, SequenceId{3}), (std::vector<BlockId>{{4}}));
  EXPECT_EQ(mirror.num_sequences(), 1u);
}

TEST(TableMirror, DroppingAnUnknownSequenceIsHarmless) {
  TableMirror mirror(16);
  BatchPlan plan;
  plan.dropped = {SequenceId{3}};
  mirror.apply(plan);
  EXPECT_EQ(mirror.num_sequences(), 0u);
}

}  // namespace
}  // namespace quire
