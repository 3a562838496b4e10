#include "quire/quant/activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "quire/base/hash.h"
#include "quire/base/rng.h"
#include "quire/quant/activations_kernels.h"

namespace quire::quant {
namespace {

/// One row with everything that quantize_row writes.
struct Row {
  QuantizedRows rows;
  bool finite;
};

Row quantize(CpuTier tier, const std::vector<float>& x) {
  Row out{QuantizedRows(1, static_cast<std::int64_t>(x.size())), false};
  out.rows.reshape(1, static_cast<std::int64_t>(x.size()));
  out.finite = quantize_row(tier, x.data(), 0, out.rows);
  return out;
}

void expect_same(const Row& actual, const Row& expected, CpuTier tier) {
  ASSERT_EQ(actual.finite, expected.finite) << to_string(tier);
  for (std::int64_t g = 0; g < expected.rows.cols() / kGroup; ++g) {
    ASSERT_EQ(std::memcmp(&actual.rows.group(0, g), &expected.rows.group(0, g), sizeof(ActivationGroup)), 0)
        << to_string(tier) << " group " << g;
  }
}

/// Groups of all sizes: from subnormal to nearly overflowing, with ties and zeros of both signs.
std::vector<float> varied_values(std::int64_t cols, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x(static_cast<std::size_t>(cols));
  int exponent = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % 32 == 0) exponent = static_cast<int>(rng.between(-149, 127));
    double unit = rng.chance(0.1)   ? 0.0
                  : rng.chance(0.2) ? static_cast<double>(rng.between(-254, 254)) / 254
                                    : rng.uniform() * 2 - 1;
    x[i] = static_cast<float>(std::ldexp(unit, exponent));
    if (rng.chance(0.05)) x[i] = -0.0f;
  }
  return x;
}

TEST(QuantizeRow, EveryTierGivesTheBitsOfTheScalarTier) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (std::int64_t cols : {32, 96, 576}) {
      std::vector<float> x = varied_values(cols, seed);
      Row expected = quantize(CpuTier::scalar, x);
      for (CpuTier tier : kAllCpuTiers) {
        if (cpu_supports(tier)) expect_same(quantize(tier, x), expected, tier);
      }
    }
  }
}

/// Equality of tiers on one machine does not show equality between machines; this number does.
TEST(QuantizeRow, BitsAreTheCommittedOnes) {
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    Digest digest;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      for (std::int64_t cols : {32, 96, 576}) {
        const Row row = quantize(tier, varied_values(cols, seed));
        for (std::int64_t g = 0; g < cols / kGroup; ++g)
          digest.add_bytes(std::as_bytes(std::span(&row.rows.group(0, g), 1)));
      }
    }
    EXPECT_EQ(digest.value(), 11214451572566438599ull) << to_string(tier);
  }
}

TEST(QuantizeRow, FollowsItsDefinition) {
  std::vector<float> x = varied_values(32 * 500, 1);
  Row row = quantize(CpuTier::scalar, x);
  ASSERT_TRUE(row.finite);
  for (std::size_t group = 0; group < 500; ++group) {
    const ActivationGroup& found = row.rows.group(0, static_cast<std::int64_t>(group));
    float amax = 0;
    for (std::size_t i = 0; i < 32; ++i) amax = std::max(amax, std::abs(x[group * 32 + i]));
    float d = amax < 0x1p-100f ? 0.0f : amax / 127.0f;
    ASSERT_EQ(found.d, d);
    int sum = 0, sums[2][2] = {};
    for (std::size_t i = 0; i < 32; ++i) {
      float scaled = d == 0.0f ? 0.0f : x[group * 32 + i] * (1.0f / d);
      int q = std::clamp(static_cast<int>(std::nearbyint(scaled)), -127, 127);
      ASSERT_EQ(found.q[i], q) << x[group * 32 + i];
      sum += q;
      sums[i / 16][i % 4 / 2] += q;
    }
    for (int half = 0; half < 2; ++half) {
      ASSERT_EQ(found.minus_32sum[half], -32 * (sums[half][0] + sums[half][1]));
      for (int i = 0; i < 2; ++i) ASSERT_EQ(found.minus_32sum_pair[half][i], -32 * sums[half][i]);
    }
    for (int i = 0; i < 2; ++i) ASSERT_EQ(found.minus_16sum_pair[i], -16 * (sums[0][i] + sums[1][i]));
    ASSERT_EQ(found.minus_128sum, -128 * sum);
    ASSERT_EQ(found.s, d * static_cast<float>(sum));
  }
}

TEST(QuantizeRow, TiesGoToTheEvenCode) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;  // d is 1
  x[1] = 0.5f, x[2] = 1.5f, x[3] = -2.5f, x[4] = 126.5f;
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    Row row = quantize(tier, x);
    EXPECT_EQ(std::vector<int>(row.rows.group(0, 0).q, row.rows.group(0, 0).q + 5),
              (std::vector<int>{127, 0, 2, -2, 126}));
  }
}

TEST(QuantizeRow, GroupsBelowTheSmallestMagnitudeAreZero) {
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    std::vector<float> x(32, std::nextafter(kSmallestAmax, 0.0f));
    Row below = quantize(tier, x);
    EXPECT_TRUE(below.finite);
    EXPECT_EQ(below.rows.group(0, 0).d, 0.0f);
    EXPECT_EQ(below.rows.group(0, 0).q[7], 0);
    x.assign(32, -kSmallestAmax);
    Row at = quantize(tier, x);
    EXPECT_GT(at.rows.group(0, 0).d, 0.0f);
    EXPECT_EQ(at.rows.group(0, 0).q[7], -127);
    EXPECT_EQ(at.rows.group(0, 0).minus_16sum_pair[1], 16 * 127 * 16);
    EXPECT_EQ(at.rows.group(0, 0).minus_32sum_pair[1][1], 32 * 127 * 8);
  }
}

TEST(QuantizeRow, ANonFiniteValueAnywhereFlagsTheRow) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    for (float value : bad) {
      for (std::size_t place : {0u, 31u, 32u, 77u, 95u}) {
        std::vector<float> x(96, 1.0f);
        x[place] = value;
        Row row = quantize(tier, x);
        EXPECT_FALSE(row.finite) << to_string(tier) << " " << value << " at " << place;
        expect_same(row, quantize(CpuTier::scalar, x), tier);
      }
    }
  }
}

}  // namespace
}  // namespace quire::quant
