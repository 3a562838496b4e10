#pragma once
// BuddyAllocator: chunks of powers of two. A request gets the smallest chunk that holds it; a larger one is halved
// until it fits, and a chunk that is released merges with its other half as long as that is free. A pool that is no
// power of two starts as its binary decomposition, largest part first: 15,728 = 8192 + 4096 + 2048 + 1024 + 256 + 64 +
// 32 + 16. Parts never merge with each other. Of free chunks of one size the lowest is taken.
//
// Invariants (validate):
//  Y1  free chunks and grants partition the pool; each lies within one part and is aligned to its size within it
//  Y2  no free chunk's other half is free as a whole
//  Y3  num_free_slots() is the sum of the free chunks
//
// Cost: O(log pool) map operations a call.

#include <map>
#include <set>
#include <vector>

#include "quire/sim/slot_allocator.h"

namespace quire {

class BuddyAllocator final : public SlotAllocator {
 public:
  /// 1 <= num_slots <= 2^40.
  explicit BuddyAllocator(std::int64_t num_slots);

  std::int64_t num_slots() const override { return num_slots_; }
  std::int64_t num_free_slots() const override { return num_free_; }
  std::optional<SlotGrant> try_allocate(std::int64_t num_slots) override;
  bool could_ever_fit(std::int64_t num_slots) const override;
  void release(const SlotGrant& grant) override;
  std::optional<std::string> validate() const override;

  /// Where a grant lies, for tests: its first slot.
  std::int64_t begin_of(const SlotGrant& grant) const;

 private:
  struct Chunk {
    std::int64_t begin, size;
  };
  Chunk other_half(const Chunk& chunk) const;
  const Chunk& part_of(std::int64_t slot) const;

  const std::int64_t num_slots_;
  std::int64_t num_free_;
  std::uint64_t next_id_ = 1;
  std::vector<Chunk> parts_;                             ///< largest first
  std::map<std::int64_t, std::set<std::int64_t>> free_;  ///< size -> begins; no empty sets
  std::map<std::uint64_t, Chunk> granted_;               ///< by id
};

}  // namespace quire
