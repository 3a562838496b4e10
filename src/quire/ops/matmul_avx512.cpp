// The AVX-512 tier. Everything here lives in a namespace of its own, so that no other file links to its code.

#include <immintrin.h>

#include "quire/ops/matmul_kernels.h"
#include "quire/ops/matmul_unroll.h"
#include "quire/quant/packed_layout.h"

namespace quire::ops {
namespace avx512 {

inline constexpr int kMaxTokens = 16, kTokensAtOnce = 1, kMaxFloatTokens = 8;

#include "quire/ops/matmul_simd512.inl.h"

#include "quire/ops/matmul_dot_maddubs.inl.h"
#include "quire/ops/matmul_formats.inl.h"
#include "quire/ops/matmul_tile.inl.h"

}  // namespace avx512

const MatmulKernels kMatmulAvx512 = avx512::kKernels;

}  // namespace quire::ops
