#pragma once
// A group of 32 activations as int8: what the product kernels read. Included by kernels: nothing here may emit code.

#include <cstdint>

namespace quire::quant {

inline constexpr int kGroup = 32;

/// Rule 5 of the arithmetic: d = amax / 127, q = round-to-even(x * (1 / d)) clamped to [-127, 127], s = d * float(sum
/// of q). One record and one cache line, so that a kernel reaches all of it, for all tokens of a block, from one
/// pointer.
///
/// The rest is where sums of products with weights start that are stored with an offset. In 16 bits a dword of a chain
/// holds two sums, of columns 4i, 4i + 1 and of columns 4i + 2, 4i + 3: such a pair is stored as it is broadcast.
struct alignas(64) ActivationGroup {
  std::int8_t q[kGroup];
  float d;
  float s;
  std::int32_t minus_128sum;            ///< -128 times the sum of q
  std::int32_t minus_32sum[2];          ///< -32 times the sum of the first and of the second half of q
  std::int16_t minus_16sum_pair[2];     ///< -16 times the sums of a pair
  std::int16_t minus_32sum_pair[2][2];  ///< -32 times the sums of a pair, of each half of q
};
static_assert(sizeof(ActivationGroup) == 64);

/// Rows side by side: group g of a block's rows is kRowBlock records, and then comes group g + 1.
inline constexpr int kRowBlock = 16;

}  // namespace quire::quant
