#include "quire/sim/shared_context.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

constexpr std::int64_t kBlockSize = 16;

/// A table whose first blocks are `common` counted from 1, the rest of its own.
std::vector<BlockId> table(std::int64_t positions, std::int64_t common, std::uint32_t own) {
  std::vector<BlockId> blocks;
  for (std::int64_t i = 0; i * kBlockSize < positions; ++i)
    blocks.push_back(BlockId{i < common ? static_cast<std::uint32_t>(i + 1) : own + static_cast<std::uint32_t>(i)});
  return blocks;
}

SharedContext find(const std::vector<std::pair<std::vector<BlockId>, std::int64_t>>& rows) {
  std::vector<DecodeContext> contexts;
  for (const auto& [blocks, positions] : rows) contexts.push_back({blocks, positions});
  return find_shared_context(contexts, kBlockSize);
}

TEST(SharedContext, OfRowsWithBlocksOfTheirOwnIsNone) {
  EXPECT_EQ(find({}), SharedContext{});
  EXPECT_EQ(find({{table(200, 0, 100), 200}, {table(300, 0, 200), 300}}), SharedContext{});
}

TEST(SharedContext, IsWholeTilesThatSeveralRowsSee) {
  // 11 blocks in common are 176 positions: two tiles.
  EXPECT_EQ(find({{table(200, 11, 100), 200}, {table(300, 11, 200), 300}}), (SharedContext{2 * 128, 128}));
  // One row sees a single tile of them.
  EXPECT_EQ(find({{table(100, 11, 100), 100}, {table(300, 11, 200), 300}}), (SharedContext{2 * 64, 64}));
}

TEST(SharedContext, RowsThatPartGoOnInTheirGroups) {
  // Two of three have four tiles in common, the third one only the first with them.
  EXPECT_EQ(find({{table(300, 16, 100), 300}, {table(300, 4, 200), 300}, {table(300, 16, 300), 300}}),
            (SharedContext{3 * 64 + 2 * 192, 64 + 192}));
}

TEST(SharedContext, IsWalkedOnceForSixteenRows) {
  std::vector<std::pair<std::vector<BlockId>, std::int64_t>> rows;
  for (std::uint32_t i = 0; i < 17; ++i) rows.push_back({table(80, 4, 100 * (i + 1)), 80});
  EXPECT_EQ(find(rows), (SharedContext{17 * 64, 2 * 64}));
}

TEST(SharedContext, LargeBlocksHoldTwoTiles) {
  const std::vector<BlockId> a = {BlockId{1}, BlockId{2}}, b = {BlockId{1}, BlockId{3}};
  const std::vector<DecodeContext> rows = {{a, 250}, {b, 250}};
  EXPECT_EQ(find_shared_context(rows, 128), (SharedContext{2 * 128, 128}));
}

}  // namespace
}  // namespace quire
