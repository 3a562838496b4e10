#pragma once
// Page-groups in numbers: how many of them hold so many tokens. KV memory without blocks is a row of tiles of 64 tokens
// in each of one or more tensors; a page-group is a piece of physical memory that is mapped into such a row. All
// tensors of a sequence grow together, so that one group here means one piece in each tensor.
//
//     tensors                           tokens bytes of one tensor            vAttention (arXiv 2405.04437)
//     K and V of each layer: 2 * layers   kv heads * head dim * element bytes    section 5
//     one for all layers: 1               2 * layers times that                  section 6.2, "tensor slicing"
//
// Tiles and groups need not divide one another: a tile may lie in several groups, and a group in two tiles.

#include <cstdint>

#include "quire/base/checked.h"
#include "quire/base/ids.h"

namespace quire {

inline constexpr std::int32_t kKvTileTokens = 64;

/// A page-group as the block that plans know it by.
inline BlockId block_of(std::int32_t group) { return BlockId{static_cast<std::uint32_t>(group)}; }
inline std::int32_t group_of(BlockId block) { return static_cast<std::int32_t>(block.value); }

struct PageGroupGeometry {
  std::int64_t tile_bytes = 0;   ///< of one tile in one tensor
  std::int64_t group_bytes = 0;  ///< of one group in one tensor
  std::int64_t num_tensors = 1;

  static std::int64_t num_tiles(std::int64_t num_tokens) { return ceil_div(num_tokens, kKvTileTokens); }

  /// Groups of a sequence of so many tokens.
  std::int64_t groups_for(std::int64_t num_tokens) const {
    return ceil_div(num_tiles(num_tokens) * tile_bytes, group_bytes);
  }
  /// Whole tiles in the first num_groups groups.
  std::int64_t tiles_in(std::int64_t num_groups) const { return num_groups * group_bytes / tile_bytes; }
  /// Groups that lie entirely in the first num_tiles tiles.
  std::int64_t groups_within(std::int64_t num_tiles) const { return num_tiles * tile_bytes / group_bytes; }
  /// True if the first num_tiles tiles end where a group ends.
  bool is_aligned(std::int64_t num_tiles) const { return num_tiles * tile_bytes % group_bytes == 0; }
  /// The first group that is touched by writing at positions from num_tokens on.
  std::int64_t first_written(std::int64_t num_tokens) const { return groups_within(num_tokens / kKvTileTokens); }
  /// Longest sequence in so many groups.
  std::int64_t tokens_in(std::int64_t num_groups) const { return tiles_in(num_groups) * kKvTileTokens; }

  /// Tokens whose bytes fit a group, tiles aside: the figure of the paper's tables.
  std::int64_t tokens_per_group() const { return group_bytes * kKvTileTokens / tile_bytes; }
  /// What one more group takes, and with it the most that the end of a sequence can waste, tiles aside.
  std::int64_t growth_bytes() const { return num_tensors * group_bytes; }
};

}  // namespace quire
