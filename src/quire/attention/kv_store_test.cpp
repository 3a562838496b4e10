#include "quire/attention/kv_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "quire/attention/paged_attention.h"
#include "quire/base/rng.h"
#include "quire/quant/dequantize.h"

namespace quire::attention {
namespace {

constexpr KvLayout kLayout = {.num_layers = 3, .num_kv_heads = 2, .head_dim = 6, .block_size = 8, .type = KvType::f16};

/// kLayout in each type.
std::vector<KvLayout> layouts() {
  std::vector<KvLayout> result;
  for (KvType type : kAllKvTypes) {
    result.push_back(kLayout);
    result.back().type = type;
  }
  return result;
}

void expect_panels_without_overlap(const KvLayout& layout) {
  KvStore store(layout, 5);
  std::vector<const std::byte*> panels;
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    for (std::uint32_t block = 0; block < 5; ++block) {
      for (std::int64_t head = 0; head < 2; ++head) {
        panels.push_back(store.k_panel(layer, BlockId{block}, head));
        panels.push_back(store.v_panel(layer, BlockId{block}, head));
      }
    }
  }
  for (std::size_t i = 1; i < panels.size(); ++i) EXPECT_EQ(panels[i] - panels[i - 1], layout.panel_bytes());
  EXPECT_EQ(static_cast<std::int64_t>(panels.size()) * layout.panel_bytes(), 5 * layout.block_bytes());
  EXPECT_GE(static_cast<std::int64_t>(store.bytes()), 5 * layout.block_bytes());
}

TEST(KvStore, PanelsFillThePoolWithoutOverlap) {
  for (const KvLayout& layout : layouts()) expect_panels_without_overlap(layout);
}

TEST(KvStore, ABlocksBytesAreThoseOfItsFormat) {
  // 64 dims take 128 bytes in 16 bits and 64 + 2 * 2 in int8; of 80 dims the third group has 16.
  auto bytes = [](KvType type, std::int64_t head_dim) { return KvLayout{3, 2, head_dim, 8, type}.block_bytes(); };
  EXPECT_EQ(bytes(KvType::f32, 64), 3 * 2 * 2 * 8 * 256);
  EXPECT_EQ(bytes(KvType::f16, 64), 3 * 2 * 2 * 8 * 128);
  EXPECT_EQ(bytes(KvType::bf16, 64), 3 * 2 * 2 * 8 * 128);
  EXPECT_EQ(bytes(KvType::int8, 64), 3 * 2 * 2 * 8 * 68);
  EXPECT_EQ(bytes(KvType::int8, 80), 3 * 2 * 2 * 8 * 86);
}

void expect_whole_block_copied(const KvLayout& layout) {
  KvStore store(layout, 4);
  auto* memory = store.k_panel(0, kNullBlock, 0);
  auto bytes = static_cast<std::size_t>(4 * layout.block_bytes());
  for (std::size_t i = 0; i < bytes; ++i) memory[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::vector<std::byte> before(memory, memory + bytes);
  store.copy_block(BlockId{1}, BlockId{3});
  auto layer_block = static_cast<std::size_t>(layout.num_kv_heads * 2 * layout.panel_bytes());
  for (std::size_t layer = 0; layer < 3; ++layer) {
    for (std::size_t block = 0; block < 4; ++block) {
      auto at = (layer * 4 + block) * layer_block, source = (layer * 4 + (block == 3 ? 1 : block)) * layer_block;
      EXPECT_EQ(std::memcmp(memory + at, before.data() + source, layer_block), 0) << layer << ", " << block;
    }
  }
}

TEST(KvStore, CopyBlockCopiesAllLayersAndHeadsAndNothingElse) {
  for (const KvLayout& layout : layouts()) expect_whole_block_copied(layout);
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

/// One group of int8 as kv_store.h defines it, in plain code.
struct Int8Group {
  std::uint16_t scale = 0;
  std::vector<int> codes;
};
Int8Group int8_group(std::span<const float> x) {
  float amax = 0;
  for (float value : x) amax = std::max(amax, std::fabs(value));
  Int8Group group{quant::f32_to_f16(amax / 127.0f), {}};
  float d = quant::f16_to_f32(group.scale);
  for (float value : x) {
    group.codes.push_back(d == 0 ? 0 : static_cast<int>(std::clamp(std::nearbyint(value / d), -127.0f, 127.0f)));
  }
  return group;
}

/// K and V of `head` of one token, written in int8 at `slot` of block 2, are what the definition gives.
void expect_int8_token(const KvStore& store, std::int64_t head, std::int64_t slot, std::span<const float> x) {
  const KvLayout& layout = store.layout();
  auto* k = reinterpret_cast<const std::int8_t*>(store.k_panel(1, BlockId{2}, head));
  auto* v = reinterpret_cast<const std::int8_t*>(store.v_panel(1, BlockId{2}, head));
  auto* k_scales = reinterpret_cast<const std::uint16_t*>(k + layout.block_size * layout.head_dim);
  auto* v_scales = reinterpret_cast<const std::uint16_t*>(v + layout.block_size * layout.head_dim);
  std::int64_t groups = scale_groups(layout.head_dim);
  for (std::int64_t g = 0; g < groups; ++g) {
    auto first = static_cast<std::size_t>(g * kScaleGroup);
    Int8Group expected = int8_group(x.subspan(first, std::min<std::size_t>(kScaleGroup, x.size() - first)));
    ASSERT_EQ(k_scales[g * layout.block_size + slot], expected.scale) << "slot " << slot << ", group " << g;
    ASSERT_EQ(v_scales[slot * groups + g], expected.scale) << "slot " << slot << ", group " << g;
    float d = quant::f16_to_f32(expected.scale);
    for (std::size_t i = 0; i < expected.codes.size(); ++i) {
      auto dim = g * kScaleGroup + static_cast<std::int64_t>(i);
      ASSERT_EQ(k[dim * layout.block_size + slot], expected.codes[i]) << "slot " << slot << ", dim " << dim;
      ASSERT_EQ(v[slot * layout.head_dim + dim], expected.codes[i]) << "slot " << slot << ", dim " << dim;
      // Half a step and the rounding of x / d, or what a subnormal scale costs.
      double error = std::fabs(static_cast<double>(x[first + i]) - static_cast<double>(expected.codes[i]) * d);
      ASSERT_LE(error, std::max(0.5001 * d, 4e-6)) << x[first + i];
    }
  }
}

TEST(WriteKv, QuantisesToInt8AsDefined) {
  const KvLayout layout = {2, 2, 80, 8, KvType::int8};
  Rng rng(5);
  std::vector<float> rows;  // [8, 2, 80]
  const float magnitudes[] = {8.3e6f, 1e3f, 1.0f, 0.01f, 1e-3f, 2e-4f, 1e-5f, 3e-6f};
  for (float magnitude : magnitudes) {
    for (int i = 0; i < 2 * 80; ++i) rows.push_back(static_cast<float>(2 * rng.uniform() - 1) * magnitude);
  }
  for (int i = 0; i < 32; ++i) rows[static_cast<std::size_t>(3 * 160 + i)] = i % 2 == 0 ? 0.0f : -0.0f;
  // Ties: with amax = 127 the step is 1.
  for (int i = 0; i < 32; ++i) rows[static_cast<std::size_t>(2 * 160 + i)] = static_cast<float>(i) - 15.5f;
  rows[2 * 160] = -127.0f;
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    KvStore store(layout, 3);
    std::vector<std::uint8_t> failed(8);
    const BlockId blocks[] = {BlockId{2}};
    SequenceChunk chunk = {blocks, 0, 8, 0};
    ThreadPool pool(1);
    pool.run([&](Worker& worker) {
      write_kv(worker, tier, store, 1, {{&chunk, 1}, rows.data(), rows.data(), 160, 160, failed.data()});
    });
    EXPECT_EQ(failed, std::vector<std::uint8_t>(8)) << to_string(tier);
    for (std::int64_t slot = 0; slot < 8; ++slot) {
      SCOPED_TRACE(to_string(tier));
      for (std::int64_t head = 0; head < 2; ++head) {
        expect_int8_token(store, head, slot,
                          std::span(rows).subspan(static_cast<std::size_t>(slot * 160 + head * 80), 80));
      }
    }
  }
}

TEST(WriteKv, FailsTheRowsWhoseScaleDoesNotFitInt8) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {1.0f, 8321040.0f, 8321039.0f, -9e6f, std::nanf(""), -std::nanf(""), kInfinity, 1e-30f};
  KvLayout layout = kLayout;
  layout.type = KvType::int8;
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    KvStore store(layout, 4);
    EXPECT_EQ(write_values(store, tier, values, 5, {BlockId{1}, BlockId{2}}),
              (std::vector<std::uint8_t>{0, 1, 0, 1, 1, 1, 1, 0}));
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
