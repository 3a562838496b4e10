#include "quire/quant/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "quire/base/hash.h"
#include "quire/base/rng.h"
#include "quire/quant/block_writer.h"
#include "quire/quant/dequantize.h"
#include "quire/quant/random_weights.h"
#include "quire/quant/scale_search.h"

namespace quire::quant {
namespace {

constexpr std::int64_t kColumns = 1024;

double gauss(Rng& rng) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += rng.uniform();
  return sum;
}

/// A row by what is special about it.
struct RowKind {
  std::string name;
  std::function<float(Rng&, std::int64_t)> value;
};

const std::vector<RowKind>& row_kinds() {
  static const std::vector<RowKind> kinds = {
      {"gauss", [](Rng& rng, std::int64_t) { return static_cast<float>(gauss(rng) * 0.05); }},
      {"uniform", [](Rng& rng, std::int64_t) { return static_cast<float>(rng.uniform() - 0.5); }},
      {"heavy tails", [](Rng& rng, std::int64_t) { return static_cast<float>(std::pow(gauss(rng), 5)); }},
      {"all zero", [](Rng&, std::int64_t) { return 0.0f; }},
      {"one outlier", [](Rng&, std::int64_t i) { return i % 256 == 77 ? -1000.0f : 0.0f; }},
      {"an outlier among small ones",
       [](Rng& rng, std::int64_t i) { return i % 256 == 200 ? 50.0f : static_cast<float>(gauss(rng) * 0.01); }},
      {"constant", [](Rng&, std::int64_t) { return 0.3f; }},
      {"constant below zero", [](Rng&, std::int64_t) { return -7.7f; }},
      {"far from zero", [](Rng& rng, std::int64_t) { return static_cast<float>(100 + rng.uniform()); }},
      {"groups of very different size",
       [](Rng& rng, std::int64_t i) {
         return static_cast<float>(std::ldexp(gauss(rng), -static_cast<int>(i / 32 % 8) * 3));
       }},
      {"alternating", [](Rng&, std::int64_t i) { return i % 2 == 0 ? 1.0f : -1.0f; }},
      {"one sign", [](Rng& rng, std::int64_t) { return static_cast<float>(rng.uniform()); }},
      {"huge", [](Rng& rng, std::int64_t) { return static_cast<float>((rng.uniform() - 0.5) * 1e5); }},
      {"tiny: the scales are subnormal F16",
       [](Rng& rng, std::int64_t) { return static_cast<float>(gauss(rng) * 1e-6); }},
      {"subnormal",
       [](Rng&, std::int64_t i) { return (i % 2 == 0 ? 1 : -1) * std::numeric_limits<float>::denorm_min(); }},
      {"smallest normal", [](Rng& rng, std::int64_t) { return static_cast<float>(gauss(rng)) * 0x1p-126f; }},
  };
  return kinds;
}

std::vector<float> make_row(const RowKind& kind, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> row;
  for (std::int64_t i = 0; i < kColumns; ++i) row.push_back(kind.value(rng, i));
  return row;
}

std::vector<std::byte> encode(DType dtype, std::span<const float> row) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(row_bytes(dtype, static_cast<std::int64_t>(row.size()))));
  auto done = quantize(dtype, row, bytes.data());
  EXPECT_TRUE(done.ok()) << done.error().message;
  return bytes;
}

std::vector<float> decode(DType dtype, const std::vector<std::byte>& bytes) {
  const std::size_t elements = bytes.size() / info(dtype).block_bytes * info(dtype).block_elements;
  std::vector<float> row(elements);
  dequantize(dtype, bytes.data(), static_cast<std::int64_t>(elements), row.data());
  return row;
}

double rms_difference(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
  return std::sqrt(sum / static_cast<double>(a.size()));
}

struct Extent {
  double magnitude = 0, low = 0, high = 0;  ///< low and high of the values themselves
};

Extent extent_of(std::span<const float> values) {
  Extent e{0, double{values[0]}, double{values[0]}};
  for (float v : values) {
    e.magnitude = std::max(e.magnitude, std::fabs(double{v}));
    e.low = std::min(e.low, double{v});
    e.high = std::max(e.high, double{v});
  }
  return e;
}

/// Below this an F16 scale has an absolute error: half of its last place, 2^-25.
constexpr double kScaleError = 0x1p-25;

/// The most that the root mean square of a block's errors may be, as quantize.h states it. 0.75 rather than the square
/// root of one half: the scale's rounding to F16.
double rms_bound(DType dtype, std::span<const float> block) {
  const Extent whole = extent_of(block);
  const int highest = (1 << code_bits(dtype)) - 1;
  switch (dtype) {
    case DType::q8_0:
      return 0.51 * whole.magnitude / 127 + 127 * kScaleError;
    case DType::q4_0:
    case DType::q5_0:
      return 0.75 * whole.magnitude / code_offset(dtype) + 1.5 * code_offset(dtype) * kScaleError;
    case DType::q4_1:
    case DType::q5_1:
      return 0.75 * (whole.high - whole.low) / highest + whole.magnitude * 0x1p-10 + 1.5 * (highest + 1) * kScaleError;
    case DType::q6_k:
      return (0.75 + 0.2) * whole.magnitude / 32 + 1.5 * 32 * 127 * kScaleError;
    default: {
      double range = 0;
      for (std::size_t at = 0; at < block.size(); at += 32) {
        const Extent group = extent_of(block.subspan(at, 32));
        range = std::max(range, std::max(group.high, 0.0) - std::min(group.low, 0.0));
      }
      return 0.75 * range / highest + range / 30 + 1.5 * 63 * (highest + 1) * kScaleError;
    }
  }
}

class QuantizeFormat : public testing::TestWithParam<DType> {};

TEST_P(QuantizeFormat, DecodedValuesAreWithinTheStatedBoundOfEveryKindOfRow) {
  const std::size_t size = info(GetParam()).block_elements;
  for (const RowKind& kind : row_kinds()) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const std::vector<float> row = make_row(kind, seed), decoded = decode(GetParam(), encode(GetParam(), row));
      for (std::size_t at = 0; at < row.size(); at += size) {
        const auto block = std::span(row).subspan(at, size), back = std::span(decoded).subspan(at, size);
        ASSERT_LE(rms_difference(block, back), rms_bound(GetParam(), block))
            << kind.name << ", seed " << seed << ", block at " << at;
      }
    }
  }
}

TEST_P(QuantizeFormat, ZerosStayZeros) {
  const std::vector<float> row(kColumns, 0.0f);
  for (float value : decode(GetParam(), encode(GetParam(), row))) ASSERT_EQ(value, 0.0f);
}

TEST_P(QuantizeFormat, ValuesThatAreNotFiniteOrTooLargeAreErrorsThatNameTheElement) {
  std::vector<float> row(kColumns, 1.0f);
  std::vector<std::byte> out(static_cast<std::size_t>(row_bytes(GetParam(), kColumns)));
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 3e38f}) {
    row[777] = bad;
    auto done = quantize(GetParam(), row, out.data());
    ASSERT_FALSE(done.ok()) << bad;
    EXPECT_NE(done.error().message.find(std::isfinite(bad) ? "3e+38" : "element 777"), std::string::npos)
        << done.error().message;
  }
}

TEST_P(QuantizeFormat, OrdinaryRowsLoseNoMoreThanPlainRoundingDoes) {
  const std::vector<float> row = make_row(row_kinds()[0], 42);
  double plain = 0;  // with the step of each group of 32, the same in all formats of so many bits
  for (std::size_t at = 0; at < row.size(); at += 32) {
    const Extent e = extent_of(std::span(row).subspan(at, 32));
    const double levels = code_bits(GetParam()) == 8 ? 254 : (1 << code_bits(GetParam())) - 1;
    const double range = has_minimum(GetParam()) ? e.high - e.low : 2 * e.magnitude;
    plain += range / levels * range / levels / 12;
  }
  plain = std::sqrt(plain / static_cast<double>(row.size() / 32));
  EXPECT_LT(rms_difference(row, decode(GetParam(), encode(GetParam(), row))), plain * 1.02);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizeFormat,
                         testing::Values(DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0, DType::q4_k,
                                         DType::q5_k, DType::q6_k),
                         [](const auto& param) { return std::string(quire::info(param.param).name); });

TEST(Quantize, TheBytesAreTheSameOnEveryMachine) {
  const std::pair<DType, std::uint64_t> expected[] = {
      {DType::q4_0, 0xaef463ed3cc2a087}, {DType::q4_1, 0x5af24eba274ad7ea}, {DType::q5_0, 0xbd47efa33ddd6803},
      {DType::q5_1, 0x149650e1ce716f16}, {DType::q8_0, 0xdd6b61ceac26e43b}, {DType::q4_k, 0x65dc983425c5f78a},
      {DType::q5_k, 0xf8f4d60b6178c569}, {DType::q6_k, 0x318c6a7775eef8a5},
  };
  for (const auto& [dtype, digest] : expected) {
    Digest found;
    for (const RowKind& kind : row_kinds()) {
      if (kind.name == "heavy tails") continue;  // its row comes from libm
      found.add_bytes(encode(dtype, make_row(kind, 7)));
    }
    EXPECT_EQ(found.value(), digest) << info(dtype).name << " 0x" << std::hex << found.value();
  }
}

TEST(Quantize, AGroupThatTheFormatCanHoldComesBackBitForBit) {
  for (DType dtype : {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0}) {
    auto blocks = random_weights(dtype, 1, kColumns, ScaleKind::usual, 3);
    for (std::int64_t group = 0; group < kColumns / 32; ++group) {  // with both ends of the range, so the step is known
      GroupCodes codes = read_file_group(dtype, blocks.data(), group);
      codes.code[3] = dtype == DType::q8_0 ? 0x81 : 0;  // -127
      codes.code[20] = dtype == DType::q8_0 ? 127 : static_cast<std::uint8_t>((1 << code_bits(dtype)) - 1);
      for (auto& code : codes.code) {
        if (dtype == DType::q8_0 && code == 0x80) code = 0;
      }
      codes.d &= 0x7FFFu;
      std::memset(blocks.data() + group * info(dtype).block_bytes, 0, info(dtype).block_bytes);
      write_file_group(dtype, codes, blocks.data(), group);
    }
    const std::vector<float> values = decode(dtype, blocks);
    EXPECT_EQ(encode(dtype, values), blocks) << info(dtype).name;
  }
}

TEST(Quantize, TheFloatFormatsRoundToNearestAndRefuseOverflow) {
  const std::vector<float> row = {1.0f, -0.3333333f, 65504.0f, 1e-7f};
  std::vector<std::byte> out(16);
  ASSERT_TRUE(quantize(DType::f16, row, out.data()).ok());
  for (std::size_t i = 0; i < row.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, out.data() + i * 2, 2);
    EXPECT_EQ(half, f32_to_f16(row[i]));
  }
  const std::vector<float> large = {1.0f, 70000.0f};
  auto refused = quantize(DType::f16, large, out.data());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "element 1: found 70000, too large for F16");
  EXPECT_TRUE(quantize(DType::bf16, large, out.data()).ok());
  ASSERT_TRUE(quantize(DType::f32, row, out.data()).ok());
  EXPECT_EQ(std::memcmp(out.data(), row.data(), 16), 0);
}

TEST(BlockWriter, IsTheInverseOfTheReaderForEveryFormat) {
  for (DType dtype : kAllDTypes) {
    if (!is_quantized(dtype)) continue;
    const auto blocks = random_weights(dtype, 1, 2048, ScaleKind::extreme, 11);
    std::vector<std::byte> written(blocks.size());
    for (std::int64_t group = 0; group < 2048 / 32; ++group) {
      write_file_group(dtype, read_file_group(dtype, blocks.data(), group), written.data(), group);
    }
    EXPECT_EQ(written, blocks) << info(dtype).name;
  }
}

TEST(ScaleSearch, IsNeverWorseThanThePlainScale) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const RowKind& kind = row_kinds()[seed % row_kinds().size()];
    const std::vector<float> row = make_row(kind, seed);
    const std::span<const float> group = std::span(row).first(32);
    double weights[32];
    error_weights(group, weights);
    const auto error = [&](double scale, double minimum, int low, int high) {
      double sum = 0;
      for (std::size_t i = 0; i < 32; ++i) {
        const int code = scale == 0 ? 0 : nearest_code((double{group[i]} - minimum) / scale, low, high);
        const double off = scale * code + minimum - double{group[i]};
        sum += weights[i] * off * off;
      }
      return sum;
    };
    const Extent e = extent_of(group);
    double signed_extreme = e.magnitude == e.high ? e.high : e.low;
    const double slack = 1e-12 * error(0, 0, 0, 0);
    EXPECT_LE(error(fit_scale(group, weights, -8), 0, -8, 7), error(signed_extreme / -8, 0, -8, 7) + slack)
        << kind.name;
    const AffineFit any = fit_affine(group, weights, 15, MinimumSign::any);
    EXPECT_LE(error(any.scale, any.minimum, 0, 15), error((e.high - e.low) / 15, e.low, 0, 15) + slack) << kind.name;
    const AffineFit held = fit_affine(group, weights, 15, MinimumSign::not_positive);
    EXPECT_LE(held.minimum, 0) << kind.name;
    EXPECT_GE(held.scale, 0) << kind.name;
    const double low = std::min(e.low, 0.0);
    EXPECT_LE(error(held.scale, held.minimum, 0, 15), error((e.high - low) / 15, low, 0, 15) + slack) << kind.name;
  }
}

}  // namespace
}  // namespace quire::quant
