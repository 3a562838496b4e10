#pragma once
// ManagerAllocator: a KvManager of the engine, asked for a request's whole length at once. With PagedKvManager this is
// paging where nothing grows: a grant is the blocks that hold it, wherever they lie. With ReservedKvManager it is the
// naive way: an array of the maximum length for each request.
//
// Invariants: those of the manager (validate).

#include <memory>
#include <vector>

#include "quire/kv/kv_manager.h"
#include "quire/sim/slot_allocator.h"

namespace quire {

class ManagerAllocator final : public SlotAllocator {
 public:
  /// The manager is empty.
  explicit ManagerAllocator(std::unique_ptr<KvManager> manager) : kv_(std::move(manager)) {}

  std::int64_t num_slots() const override { return kv_->capacity().num_tokens(); }
  std::int64_t num_free_slots() const override {
    return std::int64_t{kv_->capacity().free_blocks} * kv_->capacity().block_size;
  }
  std::optional<SlotGrant> try_allocate(std::int64_t num_slots) override;
  bool could_ever_fit(std::int64_t num_slots) const override {
    return num_slots >= 1 && kv_->blocks_for(num_slots) <= kv_->capacity().num_blocks;
  }
  void release(const SlotGrant& grant) override { kv_->release(SequenceId{grant.id}); }
  std::optional<std::string> validate() const override { return kv_->validate(); }

 private:
  std::unique_ptr<KvManager> kv_;
  std::uint64_t next_id_ = 1;
  KvChanges changes_;
  std::vector<KvReservation> reservations_;
};

}  // namespace quire
