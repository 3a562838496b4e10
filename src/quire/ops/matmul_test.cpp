#include "quire/ops/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "quire/base/hash.h"
#include "quire/quant/group_codes.h"
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

TEST(Matmul, RowsAWholePageLongGiveTheSameBits) {
  Case c(DType::q4_k, 17, 4096, 9, ScaleKind::usual);
  expect_all_tiers_equal_scalar(c);
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

/// |scale * (code - offset)| + |minimum| of each weight: what a product adds up, before the two parts cancel.
std::vector<double> weight_magnitudes(const Case& c, std::int64_t row) {
  std::vector<double> out(static_cast<std::size_t>(c.cols));
  const std::byte* source = c.source.data() + row * row_bytes(c.dtype, c.cols);
  if (!is_quantized(c.dtype)) {
    std::vector<float> values(out.size());
    quant::dequantize(c.dtype, source, c.cols, values.data());
    for (std::size_t k = 0; k < out.size(); ++k) out[k] = std::abs(values[k]);
    return out;
  }
  for (std::size_t k = 0; k < out.size(); ++k) {
    auto codes = quant::read_file_group(c.dtype, source, static_cast<std::int64_t>(k / 32));
    int within = static_cast<int>(k % 32);
    double scale = quant::group_scale(c.dtype, codes, within / 16);
    double minimum = quant::has_minimum(c.dtype) ? quant::group_minimum(c.dtype, codes) : 0.0f;
    out[k] = std::abs(scale * quant::signed_code(c.dtype, codes, within)) + std::abs(minimum);
  }
  return out;
}

/// Against the decoded weights in f64. A chain of n fmas is off by at most n * 2^-24 times the sum of the magnitudes of
/// its terms; each term has a few roundings of its own (d * sum, dw * dx, dmin * min). With int8 activations n is two
/// for 16 or 32 columns, and each activation is off by half a step d, and by its own roundings.
TEST_P(MatmulOfFormat, ScalarAgreesWithF64WithinTheRoundingErrors) {
  std::int64_t cols = is_quantized(GetParam()) ? 768 : 300;
  Case c(GetParam(), 18, cols, 2, ScaleKind::usual);
  std::vector<float> out = multiply(c, CpuTier::scalar, 2, 1);
  std::vector<float> w(static_cast<std::size_t>(18 * cols));
  quant::dequantize(c.dtype, c.source.data(), 18 * cols, w.data());
  double roundings = (is_quantized(c.dtype) ? 2.0 * static_cast<double>(cols) / 16 : static_cast<double>(cols)) + 4;
  for (std::int64_t row = 0; row < 18; ++row) {
    std::vector<double> magnitudes = weight_magnitudes(c, row);
    for (std::int64_t t = 0; t < 2; ++t) {
      double sum = 0, tolerance = 0;
      for (std::int64_t k = 0; k < cols; ++k) {
        auto at = static_cast<std::size_t>(k);
        double weight = w[static_cast<std::size_t>(row * cols) + at];
        double x = c.x[static_cast<std::size_t>(t * cols) + at];
        double step = is_quantized(c.dtype) ? c.quantized.group(t, k / 32).d : 0.0;
        sum += weight * x;
        tolerance += std::abs(weight) * step * (0.5 + 127 * 4 * 0x1.0p-24);
        tolerance += roundings * 0x1.0p-24 * magnitudes[at] * (std::abs(x) + step);
      }
      EXPECT_NEAR(out[static_cast<std::size_t>(t * 18 + row)], sum, tolerance) << t << " " << row;
    }
  }
}

/// Results of a grid of shapes, ordinary and extreme.
std::uint64_t grid_digest(DType dtype, CpuTier tier) {
  Digest digest;
  for (std::int64_t cols : odd_cols(dtype)) {
    Case usual(dtype, 70, cols, 11, ScaleKind::usual);
    digest.add_floats(multiply(usual, tier, 11, 1));
    Case extreme(dtype, 33, cols, 3, ScaleKind::extreme);
    digest.add_floats(multiply(extreme, tier, 3, 1));
  }
  return digest.value();
}

std::uint64_t committed_digest(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 0x050330E2615C1241ull;
    case DType::f16:
      return 0x4F0EC17B825E636Eull;
    case DType::bf16:
      return 0x6B45B658C40FE5F9ull;
    case DType::q4_0:
      return 0x5E147C0EBB53BC82ull;
    case DType::q4_1:
      return 0x17D5AE5B3FA40396ull;
    case DType::q5_0:
      return 0xE7AF3C9846179435ull;
    case DType::q5_1:
      return 0x51D33A3B3FE62820ull;
    case DType::q8_0:
      return 0x6302C3CBABEE8DFBull;
    case DType::q4_k:
      return 0x89690C345190E194ull;
    case DType::q5_k:
      return 0x747302EF8FB26309ull;
    case DType::q6_k:
      return 0x181C5AA80153BAA1ull;
  }
  return 0;
}

/// Equality of tiers on one machine does not show equality between machines; these numbers do. They change only with
/// the arithmetic itself, whose revision is part of every cache key.
TEST_P(MatmulOfFormat, EveryTierOfEveryMachineReproducesTheCommittedDigest) {
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    EXPECT_EQ(grid_digest(GetParam(), tier), committed_digest(GetParam())) << to_string(tier);
  }
}

}  // namespace
}  // namespace quire::ops
