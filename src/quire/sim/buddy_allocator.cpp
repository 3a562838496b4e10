#include "quire/sim/buddy_allocator.h"

#include <bit>

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire {

BuddyAllocator::BuddyAllocator(std::int64_t num_slots) : num_slots_(num_slots), num_free_(num_slots) {
  QUIRE_CHECK(num_slots >= 1 && num_slots <= std::int64_t{1} << 40, num_slots);
  for (std::int64_t begin = 0; begin < num_slots;) {
    const auto size = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(num_slots - begin)));
    parts_.push_back({begin, size});
    free_[size].insert(begin);
    begin += size;
  }
}

const BuddyAllocator::Chunk& BuddyAllocator::part_of(std::int64_t slot) const {
  for (const Chunk& part : parts_)
    if (slot < part.begin + part.size) return part;
  return parts_.back();
}

BuddyAllocator::Chunk BuddyAllocator::other_half(const Chunk& chunk) const {
  const std::int64_t base = part_of(chunk.begin).begin;
  return {base + ((chunk.begin - base) ^ chunk.size), chunk.size};
}

bool BuddyAllocator::could_ever_fit(std::int64_t num_slots) const {
  return num_slots >= 1 && num_slots <= parts_.front().size;
}

std::optional<SlotGrant> BuddyAllocator::try_allocate(std::int64_t num_slots) {
  QUIRE_CHECK(num_slots >= 1, num_slots);
  if (!could_ever_fit(num_slots)) return std::nullopt;
  const auto size = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(num_slots)));
  const auto found = free_.lower_bound(size);
  if (found == free_.end()) return std::nullopt;
  Chunk chunk{*found->second.begin(), found->first};
  found->second.erase(found->second.begin());
  if (found->second.empty()) free_.erase(found);
  while (chunk.size > size) {
    chunk.size /= 2;
    free_[chunk.size].insert(chunk.begin + chunk.size);
  }
  num_free_ -= size;
  granted_.emplace(next_id_, chunk);
  return SlotGrant{next_id_++, size};
}

void BuddyAllocator::release(const SlotGrant& grant) {
  const auto found = granted_.find(grant.id);
  QUIRE_CHECK(found != granted_.end(), "no grant ", grant.id);
  Chunk chunk = found->second;
  granted_.erase(found);
  num_free_ += chunk.size;
  const std::int64_t largest = part_of(chunk.begin).size;
  while (chunk.size < largest) {
    const Chunk half = other_half(chunk);
    const auto same_size = free_.find(half.size);
    if (same_size == free_.end() || same_size->second.erase(half.begin) == 0) break;
    if (same_size->second.empty()) free_.erase(same_size);
    chunk = {chunk.begin < half.begin ? chunk.begin : half.begin, chunk.size * 2};
  }
  free_[chunk.size].insert(chunk.begin);
}

std::int64_t BuddyAllocator::begin_of(const SlotGrant& grant) const { return granted_.at(grant.id).begin; }

std::optional<std::string> BuddyAllocator::validate() const {
  std::map<std::int64_t, std::int64_t> sizes;  // begin -> size, of all chunks
  std::int64_t num_free = 0;
  for (const auto& [size, begins] : free_)
    for (std::int64_t begin : begins) {
      if (!sizes.emplace(begin, size).second) return cat("Y1: two chunks begin at ", begin);
      num_free += size;
      const Chunk half = other_half({begin, size});
      const auto same_size = free_.find(half.size);
      if (size < part_of(begin).size && same_size->second.count(half.begin) > 0)
        return cat("Y2: both halves at ", begin, " of ", size, " are free");
    }
  if (num_free != num_free_) return cat("Y3: ", num_free, " slots are free, counted ", num_free_);
  for (const auto& [id, chunk] : granted_)
    if (!sizes.emplace(chunk.begin, chunk.size).second) return cat("Y1: two chunks begin at ", chunk.begin);
  std::int64_t end = 0;
  for (const auto& [begin, size] : sizes) {
    if (begin != end) return cat("Y1: a chunk begins at ", begin, ", the one before ends at ", end);
    const Chunk& part = part_of(begin);
    if (begin + size > part.begin + part.size || (begin - part.begin) % size != 0)
      return cat("Y1: the chunk at ", begin, " of ", size, " is not aligned in its part");
    end = begin + size;
  }
  if (end != num_slots_) return cat("Y1: chunks end at ", end, " of ", num_slots_);
  return std::nullopt;
}

}  // namespace quire
