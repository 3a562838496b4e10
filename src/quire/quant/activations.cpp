#include "quire/quant/activations.h"

#include <bit>

#include "quire/base/check.h"
#include "quire/base/checked.h"
#include "quire/quant/activations_kernels.h"

namespace quire::quant {
QuantizedRows::QuantizedRows(std::int64_t max_rows, std::int64_t max_cols)
    : groups_(static_cast<std::size_t>(round_up(max_rows, kRowBlock) * (max_cols / kGroup)) * sizeof(ActivationGroup),
              Pages::at_once) {}

void QuantizedRows::reshape(std::int64_t rows, std::int64_t cols) {
  QUIRE_CHECK(rows >= 0 && cols >= 0 && cols % kGroup == 0, rows, " x ", cols);
  const auto bytes = static_cast<std::size_t>(round_up(rows, kRowBlock) * (cols / kGroup)) * sizeof(ActivationGroup);
  QUIRE_CHECK(bytes <= groups_.size(), rows, " x ", cols, " in ", groups_.size());
  rows_ = rows;
  cols_ = cols;
}

bool quantize_row(CpuTier tier, const float* x, std::int64_t row, QuantizedRows& out) {
  ActivationGroup* to = out.row(row);
  switch (tier) {
    case CpuTier::scalar:
      return quantize_row_scalar(x, out.cols(), to);
    case CpuTier::avx2:
    case CpuTier::avxvnni:
      return quantize_row_avx2(x, out.cols(), to);
    case CpuTier::avx512:
    case CpuTier::avx512vnni:
      return quantize_row_avx512(x, out.cols(), to);
  }
  return false;
}

namespace {

/// The largest magnitude of 32 values; a NaN counts as larger than infinity.
float largest_magnitude(const float* x) {
  std::uint32_t largest = 0;
  for (int i = 0; i < kGroup; ++i) {
    std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFu;
    if (magnitude > largest) largest = magnitude;
  }
  return std::bit_cast<float>(largest);
}

/// |x| below 2^22. Adding 1.5 * 2^23 leaves a last place of 1, so that the addition rounds to the nearest, ties to
/// even.
int round_to_even(float x) { return static_cast<int>((x + 0x1.8p23f) - 0x1.8p23f); }

int quantize(float x, float inverse) {
  int q = round_to_even(x * inverse);
  return q > 127 ? 127 : q < -127 ? -127 : q;
}

}  // namespace

bool quantize_row_scalar(const float* x, std::int64_t cols, ActivationGroup* out) {
  bool finite = true;
  for (std::int64_t group = 0; group < cols / kGroup; ++group, x += kGroup, out += kRowBlock) {
    float amax = largest_magnitude(x);
    bool group_finite = amax < std::bit_cast<float>(0x7F800000u);
    finite = finite && group_finite;
    float d = group_finite && amax >= kSmallestAmax ? amax / 127.0f : 0.0f;
    int sums[2][2] = {};
    for (int i = 0; i < kGroup; ++i) {
      int q = d == 0.0f ? 0 : quantize(x[i], 1.0f / d);
      out->q[i] = static_cast<std::int8_t>(q);
      sums[i / 16][i % 4 / 2] += q;
    }
    finish_group(*out, d, sums);
  }
  return finite;
}

}  // namespace quire::quant
