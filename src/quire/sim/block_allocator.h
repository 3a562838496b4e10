#pragma once
// BlockAllocator: the engine's own PagedKvManager, asked for a request's whole length at once: paging where nothing
// grows. A grant is the blocks that hold it, wherever they lie.
//
// Invariants: K1..K4 of kv/paged_kv_manager.h (validate).

#include "quire/kv/paged_kv_manager.h"
#include "quire/sim/slot_allocator.h"

namespace quire {

class BlockAllocator final : public SlotAllocator {
 public:
  /// num_blocks >= 1, is_block_size(block_size).
  BlockAllocator(std::int32_t num_blocks, std::int32_t block_size) : kv_(num_blocks, block_size) {}

  std::int64_t num_slots() const override { return kv_.capacity().num_tokens(); }
  std::int64_t num_free_slots() const override {
    return std::int64_t{kv_.capacity().free_blocks} * kv_.capacity().block_size;
  }
  std::optional<SlotGrant> try_allocate(std::int64_t num_slots) override;
  bool could_ever_fit(std::int64_t num_slots) const override {
    return num_slots >= 1 && num_slots <= kv_.capacity().num_tokens();
  }
  void release(const SlotGrant& grant) override { kv_.release(SequenceId{grant.id}); }
  std::optional<std::string> validate() const override { return kv_.validate(); }

 private:
  PagedKvManager kv_;
  std::uint64_t next_id_ = 1;
  KvChanges changes_;
  std::vector<KvReservation> reservations_;
};

}  // namespace quire
