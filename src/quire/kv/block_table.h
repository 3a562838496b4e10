#pragma once
// BlockTable: which block holds which positions of one sequence in one layer group. Position p lies in slot
// p % block_size of blocks[p / block_size]. Plain data; PagedKvManager keeps it consistent with the pool.

#include <cstdint>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

struct BlockTable {
  std::vector<BlockId> blocks;  ///< [ceil(reserved tokens / block_size)]
  std::int64_t first_held = 0;  ///< entries before this one lie behind the group's window: null
};

}  // namespace quire
