#include "quire/sim/manager_allocator.h"

namespace quire {

std::optional<SlotGrant> ManagerAllocator::try_allocate(std::int64_t num_slots) {
  kv_->begin_plan();
  if (!kv_->plan_reserve(SequenceId{next_id_}, num_slots)) return std::nullopt;
  changes_.new_blocks.clear();
  reservations_.clear();
  kv_->commit_plan(changes_, reservations_);
  return SlotGrant{next_id_++, kv_->blocks_for(num_slots) * kv_->capacity().block_size};
}

}  // namespace quire
