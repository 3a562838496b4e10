#include "quire/quant/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "quire/base/cat.h"

namespace quire::quant {
namespace {

/// The value of a finite f16 by its definition.
double f16_value(std::uint16_t half) {
  int exponent = half >> 10 & 31, fraction = half & 1023;
  double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return half >> 15 ? -magnitude : magnitude;
}

bool is_finite_f16(std::uint16_t half) { return (half >> 10 & 31) != 31; }

TEST(Float16, EveryValueWidensExactly) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    auto half = static_cast<std::uint16_t>(bits);
    float value = f16_to_f32(half);
    ASSERT_EQ(std::signbit(value), half >> 15 != 0) << bits;
    if (is_finite_f16(half)) {
      ASSERT_EQ(static_cast<double>(value), f16_value(half)) << bits;
    } else if ((half & 1023) == 0) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {  // quiet, with its payload, as the hardware conversion gives it
      std::uint32_t fraction = std::bit_cast<std::uint32_t>(value) & 0x7FFFFF;
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_EQ(fraction, static_cast<std::uint32_t>(half & 1023) << 13 | 0x400000u) << bits;
    }
  }
}

TEST(Float16, EveryValueComesBackFromF32) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    auto half = static_cast<std::uint16_t>(bits);
    std::uint16_t quiet = is_finite_f16(half) || (half & 1023) == 0 ? half : half | 0x200u;
    ASSERT_EQ(f32_to_f16(f16_to_f32(half)), quiet) << bits;
  }
}

/// Rounding is monotone, so that checking both sides of every midpoint, and the midpoint, covers every f32.
TEST(Float16, RoundsToTheNearestAndTiesToEvenAtEveryMidpoint) {
  for (unsigned bits = 0; bits < 0x7C00; ++bits) {
    auto low = static_cast<std::uint16_t>(bits), high = static_cast<std::uint16_t>(bits + 1);
    double above = high == 0x7C00 ? 65536.0 : f16_value(high);  // where the next value would be, were it finite
    auto middle = static_cast<float>((f16_value(low) + above) / 2);
    std::uint16_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(f32_to_f16(middle), even) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), low) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), high) << bits;
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000) << bits;
  }
}

TEST(Float16, OverflowIsInfinityAndNanStaysNan) {
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::max()), 0xFC00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_GT(f32_to_f16(std::numeric_limits<float>::quiet_NaN()) & 0x7FFF, 0x7C00);
  EXPECT_GT(f32_to_f16(std::bit_cast<float>(0x7F800001u)) & 0x7FFF, 0x7C00);
}

TEST(BFloat16, EveryValueWidensToItsUpperHalfAndBack) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    auto half = static_cast<std::uint16_t>(bits);
    float value = bf16_to_f32(half);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16);
    bool signaling = std::isnan(value) && (half & 0x40) == 0;
    ASSERT_EQ(f32_to_bf16(value), signaling ? half | 0x40 : half) << bits;
  }
}

TEST(BFloat16, RoundsToTheNearestAndTiesToEvenAtEveryMidpoint) {
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    std::uint32_t middle = bits << 16 | 0x8000;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle)), bits + bits % 2) << bits;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle - 1)), bits) << bits;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(middle + 1)), bits + 1) << bits;
  }
}

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  std::vector<std::byte> out(text.size());
  std::memcpy(out.data(), text.data(), text.size());
  return out;
}

class DequantizeFormat : public testing::TestWithParam<DType> {};

TEST_P(DequantizeFormat, GivesTheValuesOfTheGgufPackage) {
  std::string stem = cat(QUIRE_SOURCE_DIR, "/tests/data/gguf_blocks/", info(GetParam()).name);
  std::vector<std::byte> blocks = read_file(stem + ".blocks"), values = read_file(stem + ".values");
  std::size_t elements = blocks.size() / info(GetParam()).block_bytes * info(GetParam()).block_elements;
  ASSERT_GT(elements, 0u) << stem;
  ASSERT_EQ(values.size(), elements * sizeof(float));
  std::vector<float> out(elements);
  dequantize(GetParam(), blocks.data(), static_cast<std::int64_t>(elements), out.data());
  for (std::size_t i = 0; i < elements; ++i) {
    ASSERT_EQ(std::memcmp(&out[i], &values[i * sizeof(float)], sizeof(float)), 0) << "element " << i << ": " << out[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, DequantizeFormat, testing::ValuesIn(kAllDTypes),
                         [](const auto& param) { return std::string(quire::info(param.param).name); });

}  // namespace
}  // namespace quire::quant
