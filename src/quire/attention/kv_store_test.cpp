#include "quire/attention/kv_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "quire/attention/paged_attention.h"

namespace quire::attention {
namespace {

constexpr KvLayout kLayout = {.num_layers = 3, .num_kv_heads = 2, .head_dim = 6, .block_size = 8, .type = KvType::f16};

TEST(KvStore, PanelsFillThePoolWithoutOverlap) {
  KvStore store(kLayout, 5);
  std::vector<const std::byte*> panels;
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    for (std::uint32_t block = 0; block < 5; ++block) {
      for (std::int64_t head = 0; head < 2; ++head) {
        panels.push_back(store.k_panel(layer, BlockId{block}, head));
        panels.push_back(store.v_panel(layer, BlockId{block}, head));
      }
    }
  }
  for (std::size_t i = 1; i < panels.size(); ++i) EXPECT_EQ(panels[i] - panels[i - 1], kLayout.panel_bytes());
  EXPECT_EQ(static_cast<std::int64_t>(panels.size()) * kLayout.panel_bytes(), 5 * kLayout.block_bytes());
  EXPECT_GE(static_cast<std::int64_t>(store.bytes()), 5 * kLayout.block_bytes());
}

TEST(KvStore, CopyBlockCopiesAllLayersAndHeadsAndNothingElse) {
  KvStore store(kLayout, 4);
  auto* memory = store.k_panel(0, kNullBlock, 0);
  auto bytes = static_cast<std::size_t>(4 * kLayout.block_bytes());
  for (std::size_t i = 0; i < bytes; ++i) memory[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::vector<std::byte> before(memory, memory + bytes);
  store.copy_block(BlockId{1}, BlockId{3});
  auto layer_block = static_cast<std::size_t>(kLayout.num_kv_heads * 2 * kLayout.panel_bytes());
  for (std::size_t layer = 0; layer < 3; ++layer) {
    for (std::size_t block = 0; block < 4; ++block) {
      auto at = (layer * 4 + block) * layer_block, source = (layer * 4 + (block == 3 ? 1 : block)) * layer_block;
      EXPECT_EQ(std::memcmp(memory + at, before.data() + source, layer_block), 0) << layer << ", " << block;
    }
  }
}

TEST(KvStore, TypesAreParsedByName) {
  for (KvType type : kAllKvTypes) EXPECT_EQ(*parse_kv_type(to_string(type)), type);
  EXPECT_EQ(*parse_kv_type("bf16"), KvType::bf16);
  auto wrong = parse_kv_type("int3");
  ASSERT_FALSE(wrong);
  EXPECT_NE(std::string(wrong.error().message).find("int3"), std::string::npos);
}

/// Writes one sequence of `values.size()` tokens whose k and v are all values[token], from position `first` on.
std::vector<std::uint8_t> write_values(KvStore& store, CpuTier tier, const std::vector<float>& values,
                                       std::int64_t first, std::vector<BlockId> blocks) {
  const KvLayout& layout = store.layout();
  std::int64_t width = layout.num_kv_heads * layout.head_dim;
  std::vector<float> rows;
  for (float value : values) rows.insert(rows.end(), static_cast<std::size_t>(width), value);
  std::vector<std::uint8_t> failed(values.size());
  SequenceChunk chunk = {blocks, first, static_cast<std::int64_t>(values.size()), 0};
  ThreadPool pool(2);
  pool.run([&](Worker& worker) {
    for (std::int64_t layer = 0; layer < layout.num_layers; ++layer) {
      write_kv(worker, tier, store, layer,
               {.chunks = {&chunk, 1},
                .k = rows.data(),
                .v = rows.data(),
                .k_stride = width,
                .v_stride = width,
                .row_failed = failed.data()});
    }
  });
  return failed;
}

TEST(WriteKv, RoundsToNearestEvenAndKeepsSubnormals) {
  struct Pair {
    float value;
    std::uint16_t half;
  };
  const Pair pairs[] = {{1.0f, 0x3C00},         {-2.0f, 0xC000},      {65504.0f, 0x7BFF},    {65519.0f, 0x7BFF},
                        {0x1.002p0f, 0x3C00},   {0x1.006p0f, 0x3C02}, {0x1.0021p0f, 0x3C01}, {0x1p-14f, 0x0400},
                        {0x1p-24f, 0x0001},     {0x1.8p-24f, 0x0002}, {0x1p-25f, 0x0000},    {0x1.1p-25f, 0x0001},
                        {0x1.ff8p-15f, 0x03FF}, {-0.0f, 0x8000},      {0.1f, 0x2E66},        {1e-30f, 0x0000}};
  std::vector<float> values;
  for (const Pair& pair : pairs) values.push_back(pair.value);
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    KvStore store(kLayout, 4);
    auto failed = write_values(store, tier, values, 0, {BlockId{3}, BlockId{1}});
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(failed[i], 0) << values[i];
      BlockId block{i < 8 ? 3u : 1u};
      for (std::int64_t layer = 0; layer < 3; ++layer) {
        for (std::int64_t head = 0; head < 2; ++head) {
          auto* k = reinterpret_cast<const std::uint16_t*>(store.k_panel(layer, block, head));
          auto* v = reinterpret_cast<const std::uint16_t*>(store.v_panel(layer, block, head));
          for (std::size_t d = 0; d < 6; ++d) {
            ASSERT_EQ(k[d * 8 + i % 8], pairs[i].half) << to_string(tier) << ", " << values[i];
            ASSERT_EQ(v[i % 8 * 6 + d], pairs[i].half) << to_string(tier) << ", " << values[i];
          }
        }
      }
    }
  }
}

TEST(WriteKv, RoundsBf16ToNearestEvenAndFailsWhatDoesNotFit) {
  struct Case {
    float value;
    std::uint16_t half;
    std::uint8_t failed;
  };
  const Case cases[] = {{1.0f, 0x3F80, 0},
                        {-2.0f, 0xC000, 0},
                        {0x1.01p0f, 0x3F80, 0},
                        {0x1.03p0f, 0x3F82, 0},
                        {0x1.010002p0f, 0x3F81, 0},
                        {0x1p-133f, 0x0001, 0},
                        {0x1.8p-133f, 0x0002, 0},
                        {0x1p-134f, 0x0000, 0},
                        {-0.0f, 0x8000, 0},
                        {65520.0f, 0x4780, 0},
                        {0x1.fep127f, 0x7F7F, 0},
                        {0x1.fefffep127f, 0x7F7F, 0},
                        {0x1.ffp127f, 0x7F80, 1},
                        {-0x1.ffp127f, 0xFF80, 1},
                        {0x1.fffffep127f, 0x7F80, 1},
                        {std::numeric_limits<float>::infinity(), 0x7F80, 1}};
  std::vector<float> values;
  for (const Case& c : cases) values.push_back(c.value);
  values.push_back(std::nanf(""));
  KvLayout layout = kLayout;
  layout.type = KvType::bf16;
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    KvStore store(layout, 4);
    auto failed = write_values(store, tier, values, 0, {BlockId{3}, BlockId{1}, BlockId{2}});
    EXPECT_EQ(failed.back(), 1);
    for (std::size_t i = 0; i < std::size(cases); ++i) {
      EXPECT_EQ(failed[i], cases[i].failed) << values[i];
      auto* k = reinterpret_cast<const std::uint16_t*>(store.k_panel(2, BlockId{i < 8 ? 3u : 1u}, 1));
      auto* v = reinterpret_cast<const std::uint16_t*>(store.v_panel(2, BlockId{i < 8 ? 3u : 1u}, 1));
      for (std::size_t d = 0; d < 6; ++d) {
        ASSERT_EQ(k[d * 8 + i % 8], cases[i].half) << to_string(tier) << ", " << values[i];
        ASSERT_EQ(v[i % 8 * 6 + d], cases[i].half) << to_string(tier) << ", " << values[i];
      }
    }
  }
}

TEST(WriteKv, FailsTheRowsWhoseValuesDoNotFitAndNoOthers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {1.0f, 65520.0f, 2.0f, -1e6f, std::nanf(""), 3.0f, kInfinity, 65519.9f};
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    KvStore halves(kLayout, 4);
    EXPECT_EQ(write_values(halves, tier, values, 5, {BlockId{1}, BlockId{2}}),
              (std::vector<std::uint8_t>{0, 1, 0, 1, 1, 0, 1, 0}));
    KvLayout layout = kLayout;
    layout.type = KvType::f32;
    KvStore floats(layout, 4);
    EXPECT_EQ(write_values(floats, tier, values, 5, {BlockId{1}, BlockId{2}}),
              (std::vector<std::uint8_t>{0, 0, 0, 0, 1, 0, 1, 0}));
    EXPECT_EQ(reinterpret_cast<const float*>(floats.v_panel(2, BlockId{1}, 1))[6 * 6 + 5], 65520.0f);
  }
}

}  // namespace
}  // namespace quire::attention
