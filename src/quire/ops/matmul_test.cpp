#include "quire/ops/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "quire/base/hash.h"
#include "quire/quant/random_weights.h"

namespace quire::ops {
namespace {

using quant::PackedMatrix;
using quant::QuantizedRows;
using quant::ScaleKind;

/// One matrix with tokens to multiply it with.
struct Case {
  DType dtype;
  std::int64_t rows, cols, tokens;
  std::vector<std::byte> source;
  PackedMatrix weights;
  std::vector<float> x;
  QuantizedRows quantized;

  Case(DType type, std::int64_t num_rows, std::int64_t num_cols, std::int64_t num_tokens, ScaleKind kind)
      : dtype(type),
        rows(num_rows),
        cols(num_cols),
        tokens(num_tokens),
        source(quant::random_weights(type, num_rows, num_cols, kind, 1)),
        weights(PackedMatrix::pack(type, num_rows, num_cols, source.data())),
        x(quant::random_activations(num_tokens, num_cols, 2)),
        quantized(is_quantized(type) ? num_tokens : 1, is_quantized(type) ? num_cols : 32) {
    if (is_quantized(type)) quantize(CpuTier::scalar);
  }

  void quantize(CpuTier tier) {
    quantized.reshape(tokens, cols);
    for (std::int64_t t = 0; t < tokens; ++t)
      quant::quantize_row(tier, &x[static_cast<std::size_t>(t * cols)], t, quantized);
  }

  MatmulInput input() const { return {x.data(), cols, is_quantized(dtype) ? &quantized : nullptr, tokens}; }
};

/// [tokens, rows] for the first `tokens` tokens of the case.
std::vector<float> multiply(const Case& c, CpuTier tier, std::int64_t tokens, int threads,
                            const float* bias = nullptr) {
  std::vector<float> out(static_cast<std::size_t>(tokens * c.rows), std::numeric_limits<float>::quiet_NaN());
  MatmulInput input = c.input();
  input.num_tokens = tokens;
  MatmulOutput output{&c.weights, bias, out.data(), c.rows};
  ThreadPool pool(threads);
  pool.run([&](Worker& worker) { matmul(worker, tier, input, {&output, 1}); });
  return out;
}

std::vector<CpuTier> fast_tiers() {
  std::vector<CpuTier> tiers;
  for (CpuTier tier : kAllCpuTiers) {
    if (tier != CpuTier::scalar && cpu_supports(tier)) tiers.push_back(tier);
  }
  return tiers;
}

bool same_bits(const float* a, const float* b, std::size_t n) { return std::memcmp(a, b, n * sizeof(float)) == 0; }

std::vector<std::int64_t> odd_cols(DType dtype) {
  if (!is_quantized(dtype)) return {1, 3, 33, 257};
  if (info(dtype).block_elements == 256) return {256, 768};
  return {32, 64, 96, 576};
}

/// Every tier on tokens 1 .. 19 of a case against the scalar tier on all of them.
void expect_all_tiers_equal_scalar(const Case& c) {
  std::vector<float> expected = multiply(c, CpuTier::scalar, c.tokens, 1);
  for (CpuTier tier : fast_tiers()) {
    for (std::int64_t tokens = 1; tokens <= c.tokens; ++tokens) {
      std::vector<float> actual = multiply(c, tier, tokens, 1);
      ASSERT_TRUE(same_bits(actual.data(), expected.data(), actual.size()))
          << info(c.dtype).name << " " << c.rows << "x" << c.cols << " tokens " << tokens << " " << to_string(tier);
    }
  }
}

class MatmulOfFormat : public testing::TestWithParam<DType> {};

std::string format_name(const testing::TestParamInfo<DType>& param) { return std::string(info(param.param).name); }

INSTANTIATE_TEST_SUITE_P(Formats, MatmulOfFormat, testing::ValuesIn(kAllDTypes), format_name);

TEST_P(MatmulOfFormat, EveryTierEqualsScalarOnOddShapesForAnyNumberOfTokens) {
  for (std::int64_t cols : odd_cols(GetParam())) {
    for (std::int64_t rows : {1, 15, 16, 17, 33, 100}) {
      expect_all_tiers_equal_scalar(Case(GetParam(), rows, cols, 19, ScaleKind::usual));
    }
  }
}

TEST_P(MatmulOfFormat, EveryTierEqualsScalarOnExtremeCodesAndScales) {
  std::int64_t cols = is_quantized(GetParam()) ? 768 : 77;
  expect_all_tiers_equal_scalar(Case(GetParam(), 70, cols, 17, ScaleKind::extreme));
}

TEST_P(MatmulOfFormat, ThreadsAndSeveralOutputsChangeNoBit) {
  std::int64_t cols = is_quantized(GetParam()) ? 256 : 40;
  Case c(GetParam(), 150, cols, 130, ScaleKind::usual);
  PackedMatrix second = PackedMatrix::pack(c.dtype, 20, cols, c.source.data() + 3 * row_bytes(c.dtype, cols));
  std::vector<float> expected = multiply(c, CpuTier::scalar, c.tokens, 1);
  auto size = static_cast<std::size_t>(c.tokens);
  for (CpuTier tier : fast_tiers()) {
    for (int threads : {1, 2, 3}) {
      std::vector<float> first_out(size * 150), second_out(size * 20);
      MatmulOutput outputs[] = {{&c.weights, nullptr, first_out.data(), 150},
                                {&second, nullptr, second_out.data(), 20}};
      ThreadPool pool(threads);
      pool.run([&](Worker& worker) { matmul(worker, tier, c.input(), outputs); });
      ASSERT_TRUE(same_bits(first_out.data(), expected.data(), expected.size())) << to_string(tier) << threads;
      for (std::size_t t = 0; t < size; ++t) {
        ASSERT_TRUE(same_bits(&second_out[t * 20], &expected[t * 150 + 3], 20)) << to_string(tier) << threads;
      }
    }
  }
}

TEST_P(MatmulOfFormat, BiasIsAddedLast) {
  Case c(GetParam(), 21, 256, 3, ScaleKind::usual);
  std::vector<float> bias = quant::random_activations(1, 21, 7);
  std::vector<float> plain = multiply(c, CpuTier::scalar, 3, 1);
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    std::vector<float> with_bias = multiply(c, tier, 3, 1, bias.data());
    for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(with_bias[i], plain[i] + bias[i % 21]) << to_string(tier);
  }
}

/// Against the decoded weights in f64. The chain has one or two roundings a group (a column for float formats), each
/// relative to a partial sum of magnitude at most `magnitude`; scales and d * scale are rounded once more. Int8
/// activations are off by at most d / 2 each.
TEST_P(MatmulOfFormat, ScalarAgreesWithF64WithinTheRoundingErrors) {
  std::int64_t cols = is_quantized(GetParam()) ? 768 : 300;
  Case c(GetParam(), 18, cols, 2, ScaleKind::usual);
  std::vector<float> out = multiply(c, CpuTier::scalar, 2, 1);
  std::vector<float> w(static_cast<std::size_t>(18 * cols));
  quant::dequantize(c.dtype, c.source.data(), 18 * cols, w.data());
  double steps = is_quantized(c.dtype) ? 2.0 * static_cast<double>(cols) / 16 : static_cast<double>(cols);
  for (std::int64_t t = 0; t < 2; ++t) {
    for (std::int64_t r = 0; r < 18; ++r) {
      double sum = 0, magnitude = 0, quantisation = 0;
      for (std::int64_t k = 0; k < cols; ++k) {
        double weight = w[static_cast<std::size_t>(r * cols + k)], x = c.x[static_cast<std::size_t>(t * cols + k)];
        double error = is_quantized(c.dtype) ? 0.5001 * c.quantized.d(t)[k / 32] : 0.0;
        sum += weight * x;
        magnitude += std::abs(weight) * (std::abs(x) + error) * (quant::scale_places(c.dtype).m >= 0 ? 32 : 1);
        quantisation += std::abs(weight) * error;
      }
      double tolerance = quantisation + (steps + 8) * 0x1.0p-24 * magnitude;
      EXPECT_NEAR(out[static_cast<std::size_t>(t * 18 + r)], sum, tolerance) << t << " " << r;
    }
  }
}

}  // namespace
}  // namespace quire::ops
