#pragma once
// How many requests have room at once, by the memory manager's own count of blocks.

#include <cstdint>

#include "quire/base/result.h"
#include "quire/planning/load.h"
#include "quire/sched/options.h"

namespace quire::planning {

struct AtOnce {
  std::int64_t at_full_length = 0;   ///< of the load's lengths, all at their last token; memory alone
  std::int64_t growing = 0;          ///< the same in the middle of their answers: what a steady state is like
  std::int64_t full_context = 0;     ///< requests of the whole context; memory alone
  std::int64_t rows = 0;             ///< that may run at once, whatever the memory: min(max rows, token budget)
  std::int64_t largest_context = 0;  ///< tokens of a request that has the whole pool
  std::int64_t context = 0;          ///< and what the engine would promise

  std::int64_t steady() const { return growing < rows ? growing : rows; }
};

/// Prompts count whole: what they share makes room for more.
Result<AtOnce> count_requests(const CoreOptions& core, const Load& load);

}  // namespace quire::planning
