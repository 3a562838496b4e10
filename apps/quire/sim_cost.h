#pragma once
// Flags of simulations: the memory, the scheduler and the cost model of the simulated machine.

#include <memory>
#include <string>
#include <vector>

#include "quire/sim/cost_model.h"
#include "quire/sim/systems.h"
#include "sim.h"

namespace quire::cli {

/// The pool: blocks, or bytes and a model's shape.
struct MemoryFlags {
  std::int32_t blocks = 0;  ///< 0: from bytes
  std::uint64_t kv_bytes = std::uint64_t{12} << 30;
  std::uint64_t page_group_bytes = std::uint64_t{2} << 20;  ///< of vattention
  std::string model_shape = "40,40,128,2";                  ///< layers, KV heads, elements a head, bytes an element
};
void add_memory_flags(CLI::App& command, MemoryFlags& flags);
/// Sets the sizes of the pool.
Result<void> apply(const MemoryFlags& flags, SystemOptions& options);

void add_core_flags(CLI::App& command, SystemOptions& options);

struct CostFlags {
  std::string name = "opt-13b";
  std::vector<double> roofline;  ///< GB/s, T operations/s, billion parameters, GB of weights
};
void add_cost_flags(CLI::App& command, CostFlags& flags);
Result<std::shared_ptr<const CostModel>> make_cost(const CostFlags& flags);

}  // namespace quire::cli
