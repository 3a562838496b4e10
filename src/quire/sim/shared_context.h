#pragma once
// SharedContext: how many of the positions that a step's decodes attend to lie in the same blocks for several of them.
// Attention walks such positions once for up to kRowsPerWalk rows (attention/shared_spans.h); only whole tiles that all
// of these rows see are shared. Here tiles are compared one by one: attention, which also keeps to spans, may leave a
// few of the last ones to each row.

#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

struct SharedContext {
  static constexpr std::int64_t kTileTokens = 64;
  static constexpr std::int64_t kRowsPerWalk = 16;

  std::int64_t positions = 0;  ///< attended to, counted for each row
  std::int64_t walked = 0;     ///< of K and V, counted once for each walk
  friend bool operator==(const SharedContext&, const SharedContext&) = default;
};

/// A row of one token.
struct DecodeContext {
  std::span<const BlockId> table;  ///< its whole context has entries
  std::int64_t positions = 0;      ///< attended to
};

/// O(rows * log(rows)) where nothing is shared, else that for each shared tile.
SharedContext find_shared_context(std::span<const DecodeContext> rows, std::int64_t block_size);

}  // namespace quire
