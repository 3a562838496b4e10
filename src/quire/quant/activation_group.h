#pragma once
// A group of 32 activations as int8: what the product kernels read. Included by kernels: nothing here may emit code.

#include <cstdint>

namespace quire::quant {

inline constexpr int kGroup = 32;

/// Rule 5 of the arithmetic: d = amax / 127, q = round-to-even(x * (1 / d)) clamped to [-127, 127], s = d * float(sum
/// of q). One record, so that a kernel reaches all of it, for all tokens of a block, from one pointer.
struct alignas(16) ActivationGroup {
  std::int8_t q[kGroup];
  float d;
  float s;
  std::int16_t sum16[2];      ///< of the first and the second half of q
  std::int32_t minus_128sum;  ///< -128 times the sum of q: where sums of products with weights + 128 start
};
static_assert(sizeof(ActivationGroup) == 48);

/// Rows side by side: group g of a block's rows is kRowBlock records, and then comes group g + 1.
inline constexpr int kRowBlock = 16;

}  // namespace quire::quant
