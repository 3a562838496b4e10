#include "quire/engine/memory.h"

#include <sched.h>

#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

namespace quire::engine {
namespace {

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // also "max": no limit
  return value;
}

/// MemAvailable of /proc/meminfo: what can be had without swapping.
std::optional<std::uint64_t> machine_available() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("MemAvailable:", 0) != 0) continue;
    std::istringstream fields(line.substr(13));
    std::uint64_t kib = 0;
    if (fields >> kib) return kib * 1024;
  }
  return std::nullopt;
}

/// The path of this process's cgroup below the mount of `controller` ("" for version 2).
std::string cgroup_path(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    if (line.substr(first + 1, second - first - 1) == controller) return line.substr(second + 1);
  }
  return "/";
}

std::optional<std::uint64_t> limit_less_use(const std::string& limit, const std::string& use) {
  const auto max = read_number(limit);
  const auto current = read_number(use);
  if (!max || !current || *max > (std::uint64_t{1} << 60)) return std::nullopt;
  return *max > *current ? *max - *current : 0;
}

std::optional<std::uint64_t> cgroup_available() {
  const std::string v2 = "/sys/fs/cgroup" + cgroup_path("");
  if (auto left = limit_less_use(v2 + "/memory.max", v2 + "/memory.current")) return left;
  for (const std::string& dir :
       {"/sys/fs/cgroup/memory" + cgroup_path("memory"), std::string("/sys/fs/cgroup/memory")}) {
    if (auto left = limit_less_use(dir + "/memory.limit_in_bytes", dir + "/memory.usage_in_bytes")) return left;
  }
  return std::nullopt;
}

}  // namespace

FreeMemory free_memory() {
  const auto machine = machine_available();
  const auto cgroup = cgroup_available();
  if (cgroup && (!machine || *cgroup < *machine)) return {*cgroup, "of the cgroup"};
  return {machine.value_or(0), "of the machine"};
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? count : 1;
}

}  // namespace quire::engine
