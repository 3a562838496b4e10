#pragma once
// quantize_row of each instruction set on plain pointers. Internal; included by files compiled with wider instruction
// sets, so it includes nothing that emits code.

#include <cstdint>

#include "quire/quant/activation_group.h"

namespace quire::quant {

inline constexpr float kSmallestAmax = 0x1.0p-100f;  ///< groups below it are all zero (rule 5)

/// What follows from a group's codes: the sums of its halves are sum0 and sum1.
[[gnu::always_inline]] inline void finish_group(ActivationGroup& out, float d, int sum0, int sum1) {
  out.d = d;
  out.s = d * static_cast<float>(sum0 + sum1);
  out.sum16[0] = static_cast<std::int16_t>(sum0);
  out.sum16[1] = static_cast<std::int16_t>(sum1);
  out.minus_128sum = -128 * (sum0 + sum1);
}

/// One row [cols]; its groups are kRowBlock records apart.
bool quantize_row_scalar(const float* x, std::int64_t cols, ActivationGroup* out);
bool quantize_row_avx2(const float* x, std::int64_t cols, ActivationGroup* out);
bool quantize_row_avx512(const float* x, std::int64_t cols, ActivationGroup* out);

}  // namespace quire::quant
