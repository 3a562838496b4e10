#include "quire/ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "quire/base/hash.h"

namespace quire::ops {
namespace {

constexpr double kEpsilon = 0x1p-24;

/// Compares a table with cos and sin of position * frequency(i), times magnitude.
template <class Frequency>
void expect_table(const RopeTable& table, Frequency frequency, double magnitude) {
  for (std::int64_t position = 0; position < table.num_positions(); position += position < 300 ? 1 : 97) {
    for (std::int64_t i = 0; i < table.rotary_dim() / 2; ++i) {
      double angle = static_cast<double>(position) * frequency(i);
      // One rounding to f32; the frequency's error of about 40 ulps of f64 grows with the angle.
      double bound = magnitude * (kEpsilon + 40 * 0x1p-53 * (1 + angle));
      ASSERT_NEAR(table.cosine(position)[i], magnitude * std::cos(angle), bound) << position << ", " << i;
      ASSERT_NEAR(table.sine(position)[i], magnitude * std::sin(angle), bound) << position << ", " << i;
    }
  }
}

double plain(double base, std::int64_t dim, std::int64_t i) {
  return std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
}

TEST(RopeTable, PlainTablesMatchTheFormula) {
  for (double base : {10000.0, 100000.0, 1000000.0}) {
    for (std::int64_t dim : {2, 64, 80, 256}) {
      RopeTable table({.rotary_dim = dim, .base = base}, 10'000);
      EXPECT_EQ(table.rotary_dim(), dim);
      EXPECT_EQ(table.num_positions(), 10'000);
      expect_table(
          table, [&](std::int64_t i) { return plain(base, dim, i); }, 1.0);
    }
  }
}

TEST(RopeTable, LinearScalingDividesFrequencies) {
  RopeParams params{.rotary_dim = 64, .scaling = {.type = RopeScaling::Type::linear, .factor = 4.0}};
  expect_table(
      RopeTable(params, 1000), [](std::int64_t i) { return plain(10000, 64, i) / 4; }, 1.0);
}

TEST(RopeTable, FrequencyFactorsDivideFrequencies) {
  RopeParams params{.rotary_dim = 8, .base = 500000};
  params.frequency_factors = {1.0f, 1.5f, 8.0f, 32.0f};
  expect_table(
      RopeTable(params, 1000),
      [&](std::int64_t i) { return plain(500000, 8, i) / params.frequency_factors[static_cast<std::size_t>(i)]; }, 1.0);
}

TEST(RopeTable, YarnFollowsThePaper) {
  constexpr std::int64_t kDim = 128;
  RopeParams params{.rotary_dim = kDim,
                    .base = 1000000,
                    .scaling = {.type = RopeScaling::Type::yarn, .factor = 4, .original_context = 32768}};
  auto pair = [](double rotations) { return 128 * std::log(32768 / (rotations * 2 * M_PI)) / (2 * std::log(1e6)); };
  double low = std::floor(pair(32)), high = std::ceil(pair(1));
  ASSERT_GT(low, 0);
  ASSERT_LT(high, kDim / 2);
  auto frequency = [&](std::int64_t i) {
    double ramp = std::min(1.0, std::max(0.0, (static_cast<double>(i) - low) / (high - low)));
    return plain(1e6, kDim, i) * (ramp / 4 + (1 - ramp));
  };
  expect_table(RopeTable(params, 40'000), frequency, 0.1 * std::log(4.0) + 1);
  params.scaling.attn_factor = 0.5;
  expect_table(RopeTable(params, 200), frequency, 0.5 * (0.1 * std::log(4.0) + 1));
}

TEST(RopeTable, BitsAreTheCommittedOnes) {
  RopeParams params{.rotary_dim = 64, .base = 100000};
  Digest digest;
  for (auto type : {RopeScaling::Type::none, RopeScaling::Type::linear, RopeScaling::Type::yarn}) {
    params.scaling = {.type = type, .factor = 2, .original_context = 2048};
    RopeTable table(params, 4096);
    digest.add_floats({table.cosine(0), static_cast<std::size_t>(4096 * 64)});
  }
  EXPECT_EQ(digest.value(), 1308064822429920119ull);
}

}  // namespace
}  // namespace quire::ops
