#pragma once
// ContiguousAllocator: one run of slots a request, first fit; free runs that touch are one. With requests that all ask
// for the maximum length this is the naive way of serving: an array of that length for each.
//
// Invariants (validate):
//  Z1  free runs and grants partition the pool
//  Z2  no two free runs touch
//  Z3  num_free_slots() is the sum of the free runs

#include <map>

#include "quire/sim/slot_allocator.h"

namespace quire {

class ContiguousAllocator final : public SlotAllocator {
 public:
  /// num_slots >= 1.
  explicit ContiguousAllocator(std::int64_t num_slots);

  std::int64_t num_slots() const override { return num_slots_; }
  std::int64_t num_free_slots() const override { return num_free_; }
  std::optional<SlotGrant> try_allocate(std::int64_t num_slots) override;
  bool could_ever_fit(std::int64_t num_slots) const override { return num_slots >= 1 && num_slots <= num_slots_; }
  void release(const SlotGrant& grant) override;
  std::optional<std::string> validate() const override;

  /// Where a grant lies, for tests: its first slot.
  std::int64_t begin_of(const SlotGrant& grant) const { return granted_.at(grant.id).begin; }

 private:
  struct Run {
    std::int64_t begin, size;
  };
  const std::int64_t num_slots_;
  std::int64_t num_free_;
  std::uint64_t next_id_ = 1;
  std::map<std::int64_t, std::int64_t> free_;  ///< begin -> size
  std::map<std::uint64_t, Run> granted_;       ///< by id
};

}  // namespace quire
