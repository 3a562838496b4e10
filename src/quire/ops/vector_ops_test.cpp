#include "quire/ops/vector_ops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "quire/base/hash.h"
#include "quire/base/rng.h"

namespace quire::ops {
namespace {

using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kEpsilon = 0x1p-24;  // relative error of one f32 rounding
constexpr std::int64_t kLengths[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 64, 100, 576, 640, 1001, 1536};

Floats random_floats(std::uint64_t seed, std::int64_t n, double magnitude = 1.0) {
  Rng rng(seed);
  Floats result(static_cast<std::size_t>(n));
  for (float& x : result) x = static_cast<float>((2 * rng.uniform() - 1) * magnitude);
  return result;
}

std::vector<CpuTier> supported_tiers() {
  std::vector<CpuTier> tiers;
  for (CpuTier tier : kAllCpuTiers) {
    if (cpu_supports(tier)) tiers.push_back(tier);
  }
  return tiers;
}

/// Every operation on random rows of n values; the results one after another.
Floats run_all(const VectorOps& ops, std::int64_t n, double magnitude) {
  auto seed = static_cast<std::uint64_t>(n);
  auto x = random_floats(seed, n, magnitude), y = random_floats(seed + 1000, n, magnitude);
  Floats all;
  auto keep = [&](const Floats& values) { all.insert(all.end(), values.begin(), values.end()); };
  Floats out(x.size());
  ops.rms_norm(x.data(), y.data(), 1e-5f, n, out.data()), keep(out);
  out = x, ops.add(out.data(), y.data(), n), keep(out);
  out = x, ops.scale(out.data(), 0.37f, n), keep(out);
  ops.silu_mul(x.data(), y.data(), n, out.data()), keep(out);
  ops.gelu_tanh_mul(x.data(), y.data(), n, out.data()), keep(out);
  if (n >= 2) {
    auto angles = random_floats(seed + 2000, n);
    std::int64_t rotary_dim = n / 2 * 2;
    out = x, ops.rope_interleaved(out.data(), angles.data(), angles.data() + rotary_dim / 2, rotary_dim), keep(out);
    out = x, ops.rope_neox(out.data(), angles.data(), angles.data() + rotary_dim / 2, rotary_dim), keep(out);
  }
  auto bits = std::bit_cast<std::uint64_t>(ops.log_sum_exp(x.data(), n));
  keep({std::bit_cast<float>(static_cast<std::uint32_t>(bits)),
        std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32)), static_cast<float>(ops.argmax(x.data(), n))});
  return all;
}

std::uint64_t digest_of(const Floats& values) {
  Digest digest;
  digest.add_floats(values);
  return digest.value();
}

TEST(VectorOps, EveryTierGivesTheScalarBits) {
  for (std::int64_t n : kLengths) {
    for (double magnitude : {1e-3, 1.0, 20.0, 300.0}) {
      auto expected = digest_of(run_all(vector_ops(CpuTier::scalar), n, magnitude));
      for (CpuTier tier : supported_tiers()) {
        EXPECT_EQ(digest_of(run_all(vector_ops(tier), n, magnitude)), expected)
            << to_string(tier) << ", n " << n << ", magnitude " << magnitude;
      }
    }
  }
}

TEST(VectorOps, BitsAreTheCommittedOnes) {
  for (CpuTier tier : supported_tiers()) {
    Digest digest;
    for (std::int64_t n : kLengths) {
      for (double magnitude : {1e-3, 1.0, 20.0, 300.0}) digest.add_floats(run_all(vector_ops(tier), n, magnitude));
    }
    EXPECT_EQ(digest.value(), 6589974536343456552ull) << to_string(tier);
  }
}

TEST(VectorOps, NothingBeyondTheRowIsWritten) {
  for (CpuTier tier : supported_tiers()) {
    const auto& ops = vector_ops(tier);
    for (std::int64_t n = 1; n <= 33; ++n) {
      auto x = random_floats(1, 64), y = random_floats(2, 64);
      auto expect_tail = [&](const Floats& changed, std::int64_t end) {
        for (auto i = static_cast<std::size_t>(end); i < 64; ++i) ASSERT_EQ(changed[i], x[i]) << to_string(tier) << n;
      };
      Floats out = x;
      ops.rms_norm(x.data(), y.data(), 0, n, out.data()), expect_tail(out, n);
      out = x, ops.add(out.data(), y.data(), n), expect_tail(out, n);
      out = x, ops.scale(out.data(), 2.0f, n), expect_tail(out, n);
      out = x, ops.silu_mul(x.data(), y.data(), n, out.data()), expect_tail(out, n);
      out = x, ops.gelu_tanh_mul(x.data(), y.data(), n, out.data()), expect_tail(out, n);
      out = x, ops.rope_interleaved(out.data(), y.data(), y.data() + n / 2, n / 2 * 2), expect_tail(out, n / 2 * 2);
      out = x, ops.rope_neox(out.data(), y.data(), y.data() + n / 2, n / 2 * 2), expect_tail(out, n / 2 * 2);
    }
  }
}

TEST(VectorOps, RmsNormMatchesItsFormula) {
  for (std::int64_t n : kLengths) {
    auto x = random_floats(3, n, 5.0), weight = random_floats(4, n, 2.0);
    Floats out(x.size());
    vector_ops(CpuTier::scalar).rms_norm(x.data(), weight.data(), 1e-6f, n, out.data());
    double squares = 0;
    for (float v : x) squares += double(v) * v;
    double inverse = 1 / std::sqrt(squares / static_cast<double>(n) + double(1e-6f));
    // A chain of n / 16 fmas and four folds, halved by the square root, then sqrt, two divisions and two products.
    double bound = (0.5 * (static_cast<double>(n) / 16 + 7) + 5) * kEpsilon;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double expected = x[i] * inverse * weight[i];
      ASSERT_NEAR(out[i], expected, std::fabs(expected) * bound) << "n " << n << ", i " << i;
    }
  }
}

TEST(VectorOps, SiluMatchesItsFormula) {
  auto gate = random_floats(5, 20'000, 80.0);
  Floats up(gate.size(), 1.0f), out(gate.size());
  vector_ops(CpuTier::scalar).silu_mul(gate.data(), up.data(), static_cast<std::int64_t>(gate.size()), out.data());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    double expected = gate[i] / (1 + std::exp(-double(gate[i])));
    // exp within 2 ulp (4 epsilon), then a sum, a quotient and a product.
    ASSERT_NEAR(out[i], expected, std::fabs(expected) * 7 * kEpsilon) << gate[i];
  }
}

TEST(VectorOps, SiluOfLargeMagnitudesIsTheIdentityOrZero) {
  Floats gate = {100.0f, 1e30f, -100.0f, -1e30f}, up(4, 1.0f), out(4);
  vector_ops(CpuTier::scalar).silu_mul(gate.data(), up.data(), 4, out.data());
  EXPECT_EQ(out, (Floats{100.0f, 1e30f, 0.0f, 0.0f}));
}

TEST(VectorOps, GeluMatchesItsFormula) {
  auto gate = random_floats(6, 20'000, 6.0);
  Floats up(gate.size(), 1.0f), out(gate.size());
  vector_ops(CpuTier::scalar).gelu_tanh_mul(gate.data(), up.data(), static_cast<std::int64_t>(gate.size()), out.data());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    double x = gate[i];
    double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    double expected = x / (1 + std::exp(-2 * u));
    // The exponent's own rounding (five operations and two constants) enters as an absolute error of 2u.
    double bound = (7 + 7 * std::fabs(2 * u)) * kEpsilon;
    ASSERT_NEAR(out[i], expected, std::fabs(expected) * bound) << x;
    ASSERT_NEAR(expected, 0.5 * x * (1 + std::tanh(u)), 1e-12);
  }
}

TEST(VectorOps, RotationsMatchTheirFormula) {
  for (std::int64_t dim : {2, 6, 16, 30, 32, 34, 64, 80, 256}) {
    auto x = random_floats(7, dim), angle = random_floats(8, dim / 2, 3.0);
    Floats cosine(angle.size()), sine(angle.size());
    for (std::size_t i = 0; i < angle.size(); ++i) cosine[i] = std::cos(angle[i]), sine[i] = std::sin(angle[i]);
    Floats neox = x, interleaved = x;
    vector_ops(CpuTier::scalar).rope_neox(neox.data(), cosine.data(), sine.data(), dim);
    vector_ops(CpuTier::scalar).rope_interleaved(interleaved.data(), cosine.data(), sine.data(), dim);
    auto half = static_cast<std::size_t>(dim / 2);
    auto check = [&](const Floats& out, std::size_t first, std::size_t second, std::size_t i) {
      double a = x[first], b = x[second];
      ASSERT_NEAR(out[first], a * cosine[i] - b * sine[i], 2 * 2 * kEpsilon);
      ASSERT_NEAR(out[second], a * sine[i] + b * cosine[i], 2 * 2 * kEpsilon);
    };
    for (std::size_t i = 0; i < half; ++i) {
      check(neox, i, i + half, i);
      check(interleaved, 2 * i, 2 * i + 1, i);
    }
  }
}

TEST(VectorOps, LogSumExpMatchesItsFormula) {
  for (std::int64_t n : kLengths) {
    for (double magnitude : {1e-3, 1.0, 30.0}) {
      auto x = random_floats(9, n, magnitude);
      double total = 0;
      for (float v : x) total += std::exp(double(v));
      // Terms err by 4 epsilon and by the rounding of x - max, at most 2 magnitudes wide.
      double bound = (4 + 2 * magnitude) * kEpsilon + 1e-14;
      ASSERT_NEAR(vector_ops(CpuTier::scalar).log_sum_exp(x.data(), n), std::log(total), bound) << n;
    }
  }
}

TEST(VectorOps, LogSumExpOfInfinitiesIsTheMaximum) {
  for (CpuTier tier : supported_tiers()) {
    Floats none(20, -kInfinity), one = none;
    EXPECT_EQ(vector_ops(tier).log_sum_exp(none.data(), 20), -kInfinity);
    one[18] = 2.5f;
    EXPECT_EQ(vector_ops(tier).log_sum_exp(one.data(), 20), 2.5);
    one[3] = kInfinity;
    EXPECT_EQ(vector_ops(tier).log_sum_exp(one.data(), 20), kInfinity);
  }
}

TEST(VectorOps, AllFiniteFindsASingleBadValueAnywhere) {
  for (CpuTier tier : supported_tiers()) {
    for (std::int64_t n : {1, 16, 17, 50}) {
      auto x = random_floats(10, n, 1e38);
      EXPECT_TRUE(vector_ops(tier).all_finite(x.data(), n));
      for (std::int64_t i = 0; i < n; ++i) {
        for (float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
          Floats spoiled = x;
          spoiled[static_cast<std::size_t>(i)] = bad;
          EXPECT_FALSE(vector_ops(tier).all_finite(spoiled.data(), n)) << to_string(tier) << " at " << i;
        }
      }
    }
  }
}

TEST(VectorOps, ArgmaxTakesTheLowestIndexAmongEquals) {
  for (CpuTier tier : supported_tiers()) {
    for (std::int64_t n : {1, 5, 16, 40, 100}) {
      for (std::int64_t at = 0; at < n; ++at) {
        Floats x(static_cast<std::size_t>(n), -3.0f);
        for (std::int64_t i = at; i < n; i += 3) x[static_cast<std::size_t>(i)] = -1.0f;
        EXPECT_EQ(vector_ops(tier).argmax(x.data(), n), at) << to_string(tier);
      }
    }
    Floats zeros = {-1.0f, -0.0f, 0.0f};
    EXPECT_EQ(vector_ops(tier).argmax(zeros.data(), 3), 1);
    Floats lowest(20, -kInfinity);
    EXPECT_EQ(vector_ops(tier).argmax(lowest.data(), 20), 0);
    Floats with_nan = {std::numeric_limits<float>::quiet_NaN(), 1.0f, 2.0f};
    EXPECT_EQ(vector_ops(tier).argmax(with_nan.data(), 3), 2);
  }
}

}  // namespace
}  // namespace quire::ops
