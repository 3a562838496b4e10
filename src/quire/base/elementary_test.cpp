#include "quire/base/elementary.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "quire/base/hash.h"
#include "quire/base/rng.h"

namespace quire {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Distance in units in the last place of the exact value, whose long double form errs by 2^-11 of one.
double ulps(double value, long double exact) {
  double nearest = static_cast<double>(exact);
  double ulp = std::nextafter(std::fabs(nearest), kInfinity) - std::fabs(nearest);
  return static_cast<double>(std::fabs(static_cast<long double>(value) - exact) / ulp);
}

double between(Rng& rng, double low, double high) { return low + (high - low) * rng.uniform(); }

TEST(Elementary, ExpIsWithinOneUlp) {
  Rng rng(1);
  for (int i = 0; i < 200'000; ++i) {
    double x = i % 2 == 0 ? between(rng, -708, 709.7) : between(rng, -1, 1);
    ASSERT_LE(ulps(exp_f64(x), std::exp(static_cast<long double>(x))), 1.0) << x;
  }
}

TEST(Elementary, ExpHandlesTheEndsOfItsRange) {
  EXPECT_EQ(exp_f64(0.0), 1.0);
  EXPECT_EQ(exp_f64(-0.0), 1.0);
  EXPECT_EQ(exp_f64(kInfinity), kInfinity);
  EXPECT_EQ(exp_f64(-kInfinity), 0.0);
  EXPECT_EQ(exp_f64(709.8), kInfinity);
  EXPECT_EQ(exp_f64(-745.2), 0.0);
  EXPECT_TRUE(std::isnan(exp_f64(std::nan(""))));
  for (double x : {-708.5, -720.0, -740.0, -745.0}) {
    EXPECT_LE(std::fabs(exp_f64(x) - std::exp(x)), 0x1p-1074) << x;  // subnormal results: one step
  }
}

TEST(Elementary, LogIsWithinOneUlp) {
  Rng rng(2);
  for (int i = 0; i < 200'000; ++i) {
    double x = 0;
    if (i % 3 == 0) x = std::bit_cast<double>(rng() >> 2);  // any positive exponent below 2^513
    if (i % 3 == 1) x = between(rng, 0.4, 2.5);
    if (i % 3 == 2) x = 1.0 + between(rng, -1, 1) * 0x1p-20;
    if (!(x > 0)) continue;
    ASSERT_LE(ulps(log_f64(x), std::log(static_cast<long double>(x))), 1.0) << x;
  }
}

TEST(Elementary, LogHandlesTheEndsOfItsRange) {
  EXPECT_EQ(log_f64(1.0), 0.0);
  EXPECT_EQ(log_f64(0.0), -kInfinity);
  EXPECT_EQ(log_f64(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(log_f64(-1.0)));
  EXPECT_TRUE(std::isnan(log_f64(std::nan(""))));
  EXPECT_LE(ulps(log_f64(0x1p-1074), std::log(0x1p-1074l)), 1.0);
  EXPECT_LE(
      ulps(log_f64(std::numeric_limits<double>::max()), std::log((long double)std::numeric_limits<double>::max())),
      1.0);
}

TEST(Elementary, PowStaysWithinItsStatedBound) {
  Rng rng(3);
  for (int i = 0; i < 100'000; ++i) {
    double x = between(rng, 0.01, 1e6), y = between(rng, -8, 8);
    long double exact = std::pow(static_cast<long double>(x), static_cast<long double>(y));
    ASSERT_LE(ulps(pow_f64(x, y), exact), 2 + 2 * std::fabs(y * std::log(x))) << x << " ^ " << y;
  }
  EXPECT_EQ(pow_f64(10000.0, 0.0), 1.0);
  EXPECT_EQ(pow_f64(0.0, 2.0), 0.0);
  EXPECT_TRUE(std::isnan(pow_f64(-1.0, 2.0)));
}

TEST(Elementary, SineAndCosineAreWithinTwoUlps) {
  Rng rng(4);
  for (int i = 0; i < 300'000; ++i) {
    double x = 0;
    if (i % 4 == 0) x = between(rng, -7, 7);
    if (i % 4 == 1) x = between(rng, -131072, 131072);
    if (i % 4 == 2) x = static_cast<double>(rng.between(0, 1 << 20));
    if (i % 4 == 3) x = between(rng, -0x1p30, 0x1p30);
    auto result = sin_cos_f64(x);
    ASSERT_LE(ulps(result.sin, std::sin(static_cast<long double>(x))), 2.0) << x;
    ASSERT_LE(ulps(result.cos, std::cos(static_cast<long double>(x))), 2.0) << x;
  }
}

TEST(Elementary, SineAndCosineHandleTheEndsOfTheirRange) {
  EXPECT_EQ(sin_cos_f64(0.0).sin, 0.0);
  EXPECT_EQ(sin_cos_f64(0.0).cos, 1.0);
  EXPECT_TRUE(std::isnan(sin_cos_f64(0x1p31).sin));
  EXPECT_TRUE(std::isnan(sin_cos_f64(kInfinity).cos));
  EXPECT_TRUE(std::isnan(sin_cos_f64(std::nan("")).cos));
}

TEST(Elementary, BitsAreTheCommittedOnes) {
  Digest digest;
  Rng rng(5);
  for (int i = 0; i < 10'000; ++i) {
    double x = between(rng, -700, 700), angle = between(rng, -1e6, 1e6), positive = between(rng, 0, 1e6);
    auto [sine, cosine] = sin_cos_f64(angle);
    for (double value : {exp_f64(x), log_f64(positive), pow_f64(positive, x / 700), sine, cosine}) {
      digest.add(std::bit_cast<std::uint64_t>(value));
    }
  }
  EXPECT_EQ(digest.value(), 12543084220588764544ull);
}

}  // namespace
}  // namespace quire
