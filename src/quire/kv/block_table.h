#pragma once
// BlockTable: which block holds which positions of one sequence. Position p lives in slot p % block_size of
// blocks[p / block_size]. Plain data; PagedKvManager keeps it consistent with the pool.

#include <cstdint>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

struct BlockTable {
  std::vector<BlockId> blocks;  ///< [ceil(num_tokens / block_size)]
  std::int64_t num_tokens = 0;  ///< reserved positions: [0, num_tokens)
};

}  // namespace quire
