#include "quire/attention/virtual_kv_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

namespace quire::attention {
namespace {

constexpr std::int64_t kGroup = 4096;

/// Tiles of 8 KiB: two groups each.
KvLayout small_layout() { return {2, 1, 16, kTileTokens, KvType::f16}; }

std::unique_ptr<VirtualKvStore> make_store(std::int64_t num_groups, PageMapper* mapper = nullptr) {
  auto store = VirtualKvStore::create({small_layout(), kGroup, num_groups, 3, 256, mapper});
  EXPECT_TRUE(store.ok()) << store.error().message;
  return *std::move(store);
}

/// Byte `offset` of a place.
std::byte& byte_at(VirtualKvStore& store, std::int64_t place, std::int64_t offset) {
  return store.k_panel(0, place, 0, 0)[offset];
}

/// Refuses the calls whose numbers are in `refused`, counted from 0.
class RefusingMapper final : public PageMapper {
 public:
  bool map(std::byte* at, std::size_t bytes, int pool, std::int64_t offset) override {
    if (refuses_all || refused.count(num_calls++) > 0) return false;
    return PageMapper::map(at, bytes, pool, offset);
  }
  std::set<int> refused;
  std::atomic<bool> refuses_all = false;
  int num_calls = 0;
};

/// Mappings of this process that belong to the pool, by its name in /proc.
int count_mappings() {
  std::ifstream file("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(file, line);) count += line.find("quire-kv") != std::string::npos ? 1 : 0;
  return count;
}

TEST(VirtualKvStore, ATileHoldsThePanelsOfAllLayersAndHeads) {
  EXPECT_EQ(VirtualKvStore::tile_bytes(small_layout()), 2 * 2 * 64 * 16 * 2);
  const KvLayout odd{1, 1, 18, kTileTokens, KvType::f32};  // read past its end: padded
  EXPECT_EQ(VirtualKvStore::tile_bytes(odd), 2 * 64 * 18 * 4 + 64);
}

TEST(VirtualKvStore, OneGroupInTwoPlacesIsOneMemory) {
  auto store = make_store(4);
  store->map({0, 0, 2, 1});
  store->map({2, 0, 1, 1});
  byte_at(*store, 0, 17) = std::byte{42};
  EXPECT_EQ(byte_at(*store, 2, 17), std::byte{42});
  byte_at(*store, 2, 18) = std::byte{7};
  EXPECT_EQ(byte_at(*store, 0, 18), std::byte{7});
}

TEST(VirtualKvStore, ACopyTakesTheContentOfAGroup) {
  auto store = make_store(4);
  store->map({0, 0, 1, 0});
  store->map({1, 0, 1, 3});
  std::memset(&byte_at(*store, 0, 0), 5, kGroup);
  store->copy(0, 3);
  EXPECT_EQ(byte_at(*store, 1, kGroup - 1), std::byte{5});
  EXPECT_EQ(store->counters().copied_groups, 1u);
}

TEST(VirtualKvStore, OnlyWholeTilesThatAreMappedCanBeUsed) {
  auto store = make_store(4);
  EXPECT_EQ(store->mapped_tokens(0), 0);
  store->map({0, 0, 1, 0});
  EXPECT_EQ(store->mapped_tokens(0), 0);  // half a tile
  store->map({0, 1, 2, 1});
  EXPECT_EQ(store->mapped_tokens(0), 64);
  EXPECT_TRUE(store->ensure(0, 64));
  EXPECT_FALSE(store->ensure(0, 65));
  store->unmap(0, 2);
  EXPECT_EQ(store->mapped_tokens(0), 0);
}

TEST(VirtualKvStore, WhatIsMappedAheadIsThereAfterTheFence) {
  auto store = make_store(8);
  for (std::int64_t i = 0; i < 8; ++i) store->map_ahead({1, i, 1, 7 - i});
  store->fence();
  EXPECT_TRUE(store->ensure(1, 256));
  byte_at(*store, 1, 8 * kGroup - 1) = std::byte{1};
  EXPECT_EQ(store->counters().ahead_maps, 8u);
  EXPECT_EQ(store->counters().maps, 8u);
}

TEST(VirtualKvStore, ARefusedMappingLeavesAHoleThatIsTriedAgain) {
  RefusingMapper mapper;
  mapper.refused = {0, 1};
  auto store = make_store(4, &mapper);
  store->map({0, 0, 4, 0});
  EXPECT_EQ(store->mapped_tokens(0), 0);
  EXPECT_FALSE(store->ensure(0, 64));  // refused once more
  EXPECT_TRUE(store->ensure(0, 64));
  EXPECT_EQ(store->mapped_tokens(0), 64) << "only what was asked for";
  EXPECT_TRUE(store->ensure(0, 128));
  byte_at(*store, 0, 4 * kGroup - 1) = std::byte{1};
  EXPECT_EQ(store->counters().refused, 2u);
}

TEST(VirtualKvStore, SoItIsForMappingsMadeAhead) {
  RefusingMapper mapper;
  mapper.refuses_all = true;
  auto store = make_store(4, &mapper);
  store->map_ahead({0, 0, 2, 0});
  store->fence();
  EXPECT_FALSE(store->ensure(0, 1));
  mapper.refuses_all = false;
  EXPECT_TRUE(store->ensure(0, 1));
}

TEST(VirtualKvStore, NeighboursInThePoolAreOneMappingForTheKernel) {
  auto store = make_store(8);
  const int before = count_mappings();
  for (std::int64_t i = 0; i < 4; ++i) store->map({0, i, 1, i});
  EXPECT_EQ(count_mappings(), before + 1);
  for (std::int64_t i = 0; i < 4; ++i) store->map({1, i, 1, 7 - i});
  EXPECT_EQ(count_mappings(), before + 5);
}

TEST(VirtualKvStore, MoreAddressesThanAProcessHasAreRefusedWithTheNumbers) {
  KvLayout layout{64, 8, 128, kTileTokens, KvType::f16};
  auto store = VirtualKvStore::create({layout, 2 << 20, 1, 1 << 20, 1 << 20, nullptr});
  ASSERT_FALSE(store.ok());
  EXPECT_NE(store.error().message.find("addresses"), std::string::npos) << store.error().message;
}

TEST(VirtualKvStore, APoolLargerThanTheMachineIsRefused) {
  auto store = VirtualKvStore::create({small_layout(), 1 << 20, std::int64_t{1} << 30, 1, 64, nullptr});
  EXPECT_FALSE(store.ok());
}

}  // namespace
}  // namespace quire::attention
