#include "quire/base/core_placement.h"

#include <sched.h>

namespace quire {
namespace {

/// The set of cores that this thread may use stays as it is.
bool move_to(int core, const cpu_set_t& allowed) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  if (sched_setaffinity(0, sizeof(only), &only) != 0) return false;
  return sched_setaffinity(0, sizeof(allowed), &allowed) == 0;
}

}  // namespace

CorePlacement::CorePlacement(int num_threads)
    : num_threads_(num_threads), places_(new Place[static_cast<std::size_t>(num_threads)]) {}

bool CorePlacement::is_taken(int core, int index, Others others) const {
  const int end = others == Others::lower ? index : num_threads_;
  for (int i = 0; i < end; ++i) {
    if (i != index && places_[static_cast<std::size_t>(i)].core.load(std::memory_order_relaxed) == core) return true;
  }
  return false;
}

int CorePlacement::settle(int index) {
  std::atomic<int>& place = places_[static_cast<std::size_t>(index)].core;
  int core = sched_getcpu();
  cpu_set_t allowed;
  // There may be more cores than the set has room for.
  if (is_taken(core, index, Others::lower) && sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    for (int other = 0; other < CPU_SETSIZE; ++other) {
      if (!CPU_ISSET(other, &allowed) || other == core || is_taken(other, index, Others::all)) continue;
      if (move_to(other, allowed)) core = other;
      break;
    }
  }
  place.store(core, std::memory_order_relaxed);
  return core;
}

}  // namespace quire
