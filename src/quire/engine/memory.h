#pragma once
// How much memory this process may still take: of the machine and of the cgroup it runs in (Linux).

#include <cstdint>
#include <string>

namespace quire::engine {

struct FreeMemory {
  std::uint64_t bytes = 0;
  std::string source;  ///< "of the machine" or "of the cgroup"
};

/// The smaller of what the machine has available and what the cgroup (v2 or v1) leaves. Zero if neither can be read.
FreeMemory free_memory();

/// Cores in this process's affinity mask, at least 1.
int available_cores();

}  // namespace quire::engine
