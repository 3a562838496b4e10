#include "quire/sim/contiguous_allocator.h"

#include <iterator>

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire {

ContiguousAllocator::ContiguousAllocator(std::int64_t num_slots) : num_slots_(num_slots), num_free_(num_slots) {
  QUIRE_CHECK(num_slots >= 1, num_slots);
  free_.emplace(0, num_slots);
}

std::optional<SlotGrant> ContiguousAllocator::try_allocate(std::int64_t num_slots) {
  QUIRE_CHECK(num_slots >= 1, num_slots);
  if (num_slots > num_free_) return std::nullopt;
  for (auto run = free_.begin(); run != free_.end(); ++run) {
    if (run->second < num_slots) continue;
    const Run granted{run->first, num_slots};
    const std::int64_t rest = run->second - num_slots;
    free_.erase(run);
    if (rest > 0) free_.emplace(granted.begin + num_slots, rest);
    num_free_ -= num_slots;
    granted_.emplace(next_id_, granted);
    return SlotGrant{next_id_++, num_slots};
  }
  return std::nullopt;
}

void ContiguousAllocator::release(const SlotGrant& grant) {
  const auto found = granted_.find(grant.id);
  QUIRE_CHECK(found != granted_.end(), "no grant ", grant.id);
  Run run = found->second;
  granted_.erase(found);
  num_free_ += run.size;
  auto next = free_.lower_bound(run.begin);
  if (next != free_.end() && next->first == run.begin + run.size) {
    run.size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == run.begin) {
      before->second += run.size;
      return;
    }
  }
  free_.emplace_hint(next, run.begin, run.size);
}

std::optional<std::string> ContiguousAllocator::validate() const {
  std::map<std::int64_t, std::int64_t> sizes = free_;
  std::int64_t num_free = 0, last_free_end = -1;
  for (const auto& [begin, size] : free_) {
    if (begin == last_free_end) return cat("Z2: free runs touch at ", begin);
    last_free_end = begin + size;
    num_free += size;
  }
  if (num_free != num_free_) return cat("Z3: ", num_free, " slots are free, counted ", num_free_);
  for (const auto& [id, run] : granted_)
    if (!sizes.emplace(run.begin, run.size).second) return cat("Z1: two runs begin at ", run.begin);
  std::int64_t end = 0;
  for (const auto& [begin, size] : sizes) {
    if (begin != end) return cat("Z1: a run begins at ", begin, ", the one before ends at ", end);
    end = begin + size;
  }
  if (end != num_slots_) return cat("Z1: runs end at ", end, " of ", num_slots_);
  return std::nullopt;
}

}  // namespace quire
