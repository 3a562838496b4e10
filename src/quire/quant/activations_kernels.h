#pragma once
// quantize_row of each instruction set on plain pointers. Internal; included by files compiled with wider instruction
// sets, so it includes nothing that emits code.

#include <cstdint>

#include "quire/quant/activation_group.h"

namespace quire::quant {

inline constexpr float kSmallestAmax = 0x1.0p-100f;  ///< groups below it are all zero (rule 5)

/// What follows from a group's codes: sums[half][0] is that of columns 4i, 4i + 1 of a half, sums[half][1] of the
/// others.
[[gnu::always_inline]] inline void finish_group(ActivationGroup& out, float d, const int (&sums)[2][2]) {
  int total = 0;
  for (int half = 0; half < 2; ++half) {
    const int sum = sums[half][0] + sums[half][1];
    total += sum;
    out.minus_32sum[half] = -32 * sum;
    for (int i = 0; i < 2; ++i) out.minus_32sum_pair[half][i] = static_cast<std::int16_t>(-32 * sums[half][i]);
  }
  for (int i = 0; i < 2; ++i) {
    out.minus_16sum_pair[i] = static_cast<std::int16_t>(-16 * (sums[0][i] + sums[1][i]));
  }
  out.d = d;
  out.s = d * static_cast<float>(total);
  out.minus_128sum = -128 * total;
}

/// One row [cols]; its groups are kRowBlock records apart.
bool quantize_row_scalar(const float* x, std::int64_t cols, ActivationGroup* out);
bool quantize_row_avx2(const float* x, std::int64_t cols, ActivationGroup* out);
bool quantize_row_avx512(const float* x, std::int64_t cols, ActivationGroup* out);

}  // namespace quire::quant
