// Every allocator against naive models: a map of slots for the pool, and for buddies the definition by halves.

#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <vector>

#include "quire/base/checked.h"
#include "quire/base/rng.h"
#include "quire/kv/paged_kv_manager.h"
#include "quire/kv/reserved_kv_manager.h"
#include "quire/sim/buddy_allocator.h"
#include "quire/sim/manager_allocator.h"

namespace quire {
namespace {

struct Granted {
  SlotGrant grant;
  std::int64_t begin, size;
};

/// The pool slot by slot. A chunk of buddies may be given out where it is free as a whole and aligned within its part.
class NaiveBuddies {
 public:
  explicit NaiveBuddies(std::int64_t num_slots) : used_(static_cast<std::size_t>(num_slots), false) {}

  std::optional<std::int64_t> size_for(std::int64_t num_slots) const {
    const auto size = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(num_slots)));
    for (std::int64_t part = 0, left = num_slots_(); left > 0;) {
      const auto part_size = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(left)));
      for (std::int64_t begin = part; begin + size <= part + part_size; begin += size)
        if (is_free(begin, size)) return size;
      part += part_size;
      left -= part_size;
    }
    return std::nullopt;
  }
  bool is_free(std::int64_t begin, std::int64_t size) const {
    for (std::int64_t i = begin; i < begin + size; ++i)
      if (used_[static_cast<std::size_t>(i)]) return false;
    return true;
  }
  void set(std::int64_t begin, std::int64_t size, bool used) {
    for (std::int64_t i = begin; i < begin + size; ++i) used_[static_cast<std::size_t>(i)] = used;
  }

 private:
  std::int64_t num_slots_() const { return static_cast<std::int64_t>(used_.size()); }
  std::vector<bool> used_;
};

TEST(BuddyAllocator, AgreesWithANaiveModelOnRandomOperations) {
  for (std::int64_t num_slots : {1, 2, 3, 7, 48, 64, 100, 255, 491}) {
    Rng rng(static_cast<std::uint64_t>(num_slots));
    BuddyAllocator buddies(num_slots);
    NaiveBuddies naive(num_slots);
    std::vector<Granted> granted;
    for (int i = 0; i < 400; ++i) {
      if (!granted.empty() && rng.chance(0.45)) {
        const auto at = static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(granted.size()) - 1));
        buddies.release(granted[at].grant);
        naive.set(granted[at].begin, granted[at].size, false);
        granted.erase(granted.begin() + static_cast<std::ptrdiff_t>(at));
      } else {
        const std::int64_t wanted = rng.between(1, num_slots + 1);
        const auto size = naive.size_for(wanted);
        const auto grant = buddies.try_allocate(wanted);
        ASSERT_EQ(grant.has_value(), size.has_value()) << num_slots << " " << wanted;
        if (!grant) continue;
        ASSERT_EQ(grant->num_slots, *size);
        const std::int64_t begin = buddies.begin_of(*grant);
        ASSERT_TRUE(naive.is_free(begin, *size));
        naive.set(begin, *size, true);
        granted.push_back({*grant, begin, *size});
      }
      ASSERT_EQ(buddies.validate(), std::nullopt);
    }
    for (const Granted& one : granted) buddies.release(one.grant);
    ASSERT_EQ(buddies.validate(), std::nullopt);
    EXPECT_EQ(buddies.num_free_slots(), num_slots);
  }
}

TEST(BuddyAllocator, APoolOf15728HoldsSevenRequestsOf2048) {
  BuddyAllocator buddies(15728);
  int count = 0;
  while (buddies.try_allocate(2048)) ++count;
  EXPECT_EQ(count, 7);
  EXPECT_EQ(buddies.num_free_slots(), 15728 - 7 * 2048);
}

TEST(BuddyAllocator, ARequestTakesTheNextPowerOfTwo) {
  BuddyAllocator buddies(64);
  EXPECT_EQ(buddies.try_allocate(17)->num_slots, 32);
  EXPECT_EQ(buddies.try_allocate(16)->num_slots, 16);
  EXPECT_FALSE(buddies.try_allocate(17));
  EXPECT_TRUE(buddies.could_ever_fit(64));
  EXPECT_FALSE(buddies.could_ever_fit(65));
}

TEST(ManagerAllocator, CountsBlocksLikeANaiveModelOnRandomOperations) {
  Rng rng(7);
  ManagerAllocator blocks(std::make_unique<PagedKvManager>(40, 16));
  std::int64_t free_blocks = 40;
  std::vector<Granted> granted;
  for (int i = 0; i < 1000; ++i) {
    if (!granted.empty() && rng.chance(0.45)) {
      const auto at = static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(granted.size()) - 1));
      blocks.release(granted[at].grant);
      free_blocks += granted[at].size;
      granted.erase(granted.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      const std::int64_t wanted = rng.between(1, 200);
      const std::int64_t needed = ceil_div(wanted, 16);
      const auto grant = blocks.try_allocate(wanted);
      ASSERT_EQ(grant.has_value(), needed <= free_blocks);
      if (!grant) continue;
      ASSERT_EQ(grant->num_slots, needed * 16);
      free_blocks -= needed;
      granted.push_back({*grant, 0, needed});
    }
    ASSERT_EQ(blocks.num_free_slots(), free_blocks * 16);
    ASSERT_EQ(blocks.validate(), std::nullopt);
  }
}

TEST(ManagerAllocator, OverReservedPlacesAgreesWithANaiveModelOnRandomOperations) {
  for (const auto& [num_blocks, max_len] : {std::pair(40, 64), std::pair(100, 512), std::pair(33, 100)}) {
    Rng rng(static_cast<std::uint64_t>(num_blocks));
    ManagerAllocator arrays(std::make_unique<ReservedKvManager>(num_blocks, 16, max_len));
    // An array is max_len slots in whole blocks; the pool holds so many of them, and they are all alike.
    const std::int64_t array_slots = ceil_div(std::int64_t{max_len}, 16) * 16;
    const std::int64_t num_arrays = num_blocks * 16 / array_slots;
    std::vector<SlotGrant> granted;
    for (int i = 0; i < 1000; ++i) {
      if (!granted.empty() && rng.chance(0.45)) {
        const auto at = static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(granted.size()) - 1));
        arrays.release(granted[at]);
        granted.erase(granted.begin() + static_cast<std::ptrdiff_t>(at));
      } else {
        const auto grant = arrays.try_allocate(rng.between(1, max_len));
        ASSERT_EQ(grant.has_value(), static_cast<std::int64_t>(granted.size()) < num_arrays) << num_blocks;
        if (!grant) continue;
        ASSERT_EQ(grant->num_slots, array_slots);
        granted.push_back(*grant);
      }
      ASSERT_EQ(arrays.validate(), std::nullopt);
    }
  }
}

TEST(ManagerAllocator, OverReservedPlacesHoldsPoolOverMaximumLengthRequests) {
  ManagerAllocator arrays(std::make_unique<ReservedKvManager>(512, 16, 1024));
  std::vector<SlotGrant> granted;
  while (const auto grant = arrays.try_allocate(17)) {
    EXPECT_EQ(grant->num_slots, 1024);
    granted.push_back(*grant);
  }
  EXPECT_EQ(granted.size(), 8u);
  EXPECT_EQ(arrays.num_free_slots(), 0);
  arrays.release(granted[3]);
  EXPECT_EQ(arrays.num_free_slots(), 1024);
  EXPECT_TRUE(arrays.try_allocate(1024));
  EXPECT_EQ(arrays.validate(), std::nullopt);
}

}  // namespace
}  // namespace quire
