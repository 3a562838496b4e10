#pragma once
// The systems that the simulator knows, by name:
//
//     quire              the engine's own core
//     vattention         the same over page-groups (kv/vattention_kv_manager.h)
//     orca-max, orca-pow2, orca-oracle    iteration-level batches over a buddy allocator (reserving_system.h)
//     contiguous         the same over arrays of the longest sequence, as a KvManager of the engine
//     paged-static       the same over blocks, the whole length held
//     fastertransformer  static batches (static_batch_system.h)

#include <memory>
#include <span>
#include <string_view>

#include "quire/sched/options.h"
#include "quire/sim/system.h"

namespace quire {

struct SystemOptions {
  CoreOptions core;                  ///< num_blocks and block_size size the pool of every system
  std::int64_t pool_slots = 0;       ///< of systems without blocks; 0: core.pool_tokens()
  std::int64_t max_sequence = 2048;  ///< of systems that reserve it

  // For vattention: what a token takes in one tensor, how many tensors grow together, and the group that they grow by.
  std::int64_t token_bytes_per_tensor = 10'240;  ///< OPT-13B: 40 heads of 128 in f16
  std::int32_t num_kv_tensors = 80;              ///< K and V of 40 layers
  std::int64_t page_group_bytes = std::int64_t{2} << 20;

  std::int64_t slots() const { return pool_slots > 0 ? pool_slots : core.pool_tokens(); }
};

std::span<const std::string_view> system_names();

/// An error names what was found and what is allowed.
Result<std::unique_ptr<System>> make_system(std::string_view name, const SystemOptions& options);

}  // namespace quire
