#pragma once
// The matrix product of each CPU tier on plain pointers. Internal; included by files compiled with wider instruction
// sets, so it includes nothing that emits code.

#include <cstddef>
#include <cstdint>

#include "quire/quant/activation_group.h"

namespace quire::ops {

/// Consecutive strips of one matrix times consecutive tokens. Pointers are to the first strip, row and token.
struct MatmulTask {
  const std::byte* strips;
  std::int64_t strip_bytes;
  std::int64_t num_strips;
  std::int64_t num_rows;  ///< at most 16 * num_strips; rows beyond are padding, computed but not stored
  std::int64_t cols;
  std::int64_t num_tokens;

  const quant::ActivationGroup* groups;  ///< as in QuantizedRows, from the first row of a block; quantised formats only
  const float* x;                        ///< [num_tokens, cols], rows x_stride apart; float formats only
  std::int64_t x_stride;

  const float* bias;  ///< [num_rows] or null
  float* out;         ///< [num_tokens, num_rows], rows out_stride apart
  std::int64_t out_stride;

  const std::byte* stretch_end;  ///< the caller reads on from these strips to here,
  const std::byte* then;         ///< and then from here; both for prefetching alone
};

using MatmulKernel = void (*)(const MatmulTask&);

struct MatmulKernels {
  MatmulKernel f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k;
};

extern const MatmulKernels kMatmulScalar, kMatmulAvx2, kMatmulAvxVnni, kMatmulAvx512, kMatmulAvx512Vnni;

}  // namespace quire::ops
