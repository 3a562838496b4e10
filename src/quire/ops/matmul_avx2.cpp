// The AVX2 tier. Everything here lives in a namespace of its own, so that no other file links to its code.

#include <immintrin.h>

#include "quire/ops/matmul_kernels.h"
#include "quire/ops/matmul_unroll.h"
#include "quire/quant/packed_layout.h"

namespace quire::ops {
namespace avx2 {

inline constexpr int kMaxTokens = 16, kTokensAtOnce = 4, kMaxFloatTokens = 4;

#include "quire/ops/matmul_simd256.inl.h"

#include "quire/ops/matmul_dot_maddubs.inl.h"
#include "quire/ops/matmul_formats.inl.h"
#include "quire/ops/matmul_tile.inl.h"

}  // namespace avx2

const MatmulKernels kMatmulAvx2 = avx2::kKernels;

}  // namespace quire::ops
