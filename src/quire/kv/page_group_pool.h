#pragma once
// PageGroupPool: which page-groups (1..num_groups) are mapped nowhere. Kept as runs of consecutive ids, because
// neighbours in the pool that are neighbours in a sequence are one mapping for the kernel: who asks for the group after
// its last one gets it if it is free; else it gets one in the middle of the longest run, where there is room to go on.
//
// All operations are O(log runs).
//
// Invariants (validate): runs are not empty, within 1..num_groups, neither overlap nor touch, both orders hold the same
// runs, and their lengths add up to num_free().
//
// Thread-safety: none.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace quire {

class PageGroupPool {
 public:
  /// All free.
  explicit PageGroupPool(std::int32_t num_groups);

  std::int32_t num_free() const { return num_free_; }
  bool is_free(std::int32_t group) const;

  /// A free group: `wanted` if that is free (0: none wanted). num_free() >= 1.
  std::int32_t allocate(std::int32_t wanted);
  void free(std::int32_t group);

  std::optional<std::string> validate() const;

 private:
  using Runs = std::map<std::int32_t, std::int32_t>;  ///< first group -> length
  Runs::const_iterator run_of(std::int32_t group) const;
  void add_run(std::int32_t first, std::int32_t length);
  void remove_run(std::int32_t first);

  const std::int32_t num_groups_;
  std::int32_t num_free_ = 0;
  Runs runs_;
  std::set<std::pair<std::int32_t, std::int32_t>> by_length_;  ///< (length, first)
};

}  // namespace quire
