#include "quire/sim/large_page_allocator.h"

#include <gtest/gtest.h>

#include "quire/base/checked.h"
#include "quire/base/rng.h"

namespace quire {
namespace {

/// Bytes of one layer for 16 tokens: K and V in f16 of 8 KV heads of 128.
constexpr std::int64_t kLayerPage = 16 * 2 * 8 * 128 * 2;
/// Gemma 3 27B: 52 layers see 1,024 tokens, 10 all of them. Llama 4 Scout: 36 see 8,192, 12 all.
const std::vector<PageKind> kGemma27b = {{10 * kLayerPage, 0}, {52 * kLayerPage, 1024}};
const std::vector<PageKind> kLlama4 = {{12 * kLayerPage, 0}, {36 * kLayerPage, 8192}};

TEST(LargePageAllocator, ALargePageIsTheLeastCommonMultiple) {
  EXPECT_EQ(LargePageAllocator(std::int64_t{1} << 34, 16, kGemma27b).large_page_bytes(), 260 * kLayerPage);
  EXPECT_EQ(LargePageAllocator(std::int64_t{1} << 34, 16, kLlama4).large_page_bytes(), 36 * kLayerPage);
}

struct Share {
  double used, taken;  ///< of what uniform paging takes
};
Share share_at(const std::vector<PageKind>& kinds, std::int64_t num_tokens) {
  LargePageAllocator allocator(std::int64_t{1} << 38, 16, kinds);
  for (std::int64_t end = 512; end <= num_tokens; end += 512) {
    EXPECT_TRUE(allocator.try_grow(SequenceId{1}, end));
    allocator.pass(SequenceId{1}, end);
  }
  EXPECT_EQ(allocator.validate(), std::nullopt);
  std::int64_t uniform = 0;
  for (const PageKind& kind : kinds) uniform += num_tokens / 16 * kind.page_bytes;
  return {static_cast<double>(allocator.used_bytes()) / static_cast<double>(uniform),
          static_cast<double>(allocator.taken_bytes()) / static_cast<double>(uniform)};
}

TEST(LargePageAllocator, UniformPagingWastesMostOfTheMemoryOfALongContext) {
  // At 32k tokens: (10 + 52 / 32) / 62, and (12 + 36 / 4) / 48; large pages add less than one in ten.
  EXPECT_NEAR(share_at(kGemma27b, 32768).used, 0.1875, 0.0005);
  EXPECT_LT(share_at(kGemma27b, 32768).taken, 0.1875 * 1.1);
  EXPECT_NEAR(share_at(kLlama4, 32768).used, 0.4375, 0.0005);
  EXPECT_LT(share_at(kLlama4, 32768).taken, 0.4375 * 1.1);
  EXPECT_NEAR(share_at(kLlama4, 8192).used, 1, 1e-9) << "within the window nothing is saved";
}

TEST(LargePageAllocator, APrefixNeedsOfEachKindWhatItsFirstPositionSees) {
  const LargePageAllocator allocator(1 << 20, 16, {{64, 0}, {96, 32}});
  std::vector<std::vector<bool>> present(2, std::vector<bool>(6, true));
  EXPECT_EQ(allocator.longest_prefix(present), 6);
  present[1][0] = present[1][1] = false;
  EXPECT_EQ(allocator.longest_prefix(present), 6);
  present[1][4] = false;
  EXPECT_EQ(allocator.longest_prefix(present), 4);
  present[0][2] = false;
  EXPECT_EQ(allocator.longest_prefix(present), 0) << "two pages need what the window lacks";
}

/// What a sequence holds, counted by asking each page whether anything still sees it.
std::int64_t bytes_of(const std::vector<PageKind>& kinds, std::int64_t reserved, std::int64_t computed) {
  std::int64_t bytes = 0;
  for (const PageKind& kind : kinds)
    for (std::int64_t page = 0; page * 16 < reserved; ++page)
      if (kind.window == 0 || (page + 1) * 16 > computed + 1 - kind.window) bytes += kind.page_bytes;
  return bytes;
}

TEST(LargePageAllocator, RandomLoadsAgreeWithTheNaiveCountAndTheEndIsEmpty) {
  int num_refused = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    std::vector<PageKind> kinds;
    for (std::int64_t i = rng.between(1, 3); i > 0; --i)
      kinds.push_back({rng.between(1, 6), static_cast<std::int32_t>(rng.chance(0.4) ? 0 : rng.between(1, 80))});
    LargePageAllocator allocator(rng.between(60, 600), 16, kinds);
    std::map<SequenceId, std::int64_t> lengths;
    std::uint64_t next = 1;
    for (int step = 0; step < 150; ++step) {
      const bool begins = lengths.empty() || rng.chance(0.2);
      SequenceId id{begins ? next++ : 0};
      if (!begins) {
        auto any = lengths.begin();
        std::advance(any, rng.between(0, static_cast<std::int64_t>(lengths.size()) - 1));
        id = any->first;
      }
      if (!begins && rng.chance(0.15)) {
        allocator.release(id);
        lengths.erase(id);
      } else {
        const std::int64_t length = (begins ? 0 : lengths[id]) + rng.between(1, 60);
        const std::int64_t used = allocator.used_bytes();
        if (allocator.try_grow(id, length)) {
          lengths[id] = length;
          allocator.pass(id, length);
        } else {
          ++num_refused;
          ASSERT_EQ(allocator.used_bytes(), used);
        }
      }
      std::int64_t expected = 0;
      for (const auto& [sequence, length] : lengths) expected += bytes_of(kinds, length, length);
      ASSERT_EQ(allocator.used_bytes(), expected);
      ASSERT_LE(allocator.used_bytes(), allocator.taken_bytes());
      ASSERT_EQ(allocator.validate(), std::nullopt);
    }
    for (const auto& [id, length] : lengths) allocator.release(id);
    ASSERT_EQ(allocator.num_free_large_pages(), allocator.num_large_pages());
  }
  EXPECT_GT(num_refused, 100) << "the pools are meant to be too small";
}

}  // namespace
}  // namespace quire
