// The AVX-VNNI tier. Everything here lives in a namespace of its own, so that no other file links to its code.

#include <immintrin.h>

#include "quire/ops/matmul_kernels.h"
#include "quire/ops/matmul_unroll.h"
#include "quire/quant/packed_layout.h"

namespace quire::ops {
namespace avxvnni {

inline constexpr int kMaxTokens = 8, kTokensAtOnce = 4, kMaxFloatTokens = 4;

#include "quire/ops/matmul_simd256.inl.h"

inline Ints dot4(Ints acc, Bytes u, const std::int8_t* x) {
  Bytes s = broadcast4(x);
  return {_mm256_dpbusd_avx_epi32(acc.low, u.low, s.low), _mm256_dpbusd_avx_epi32(acc.high, u.high, s.high)};
}

#include "quire/ops/matmul_dot_vnni.inl.h"
#include "quire/ops/matmul_formats.inl.h"
#include "quire/ops/matmul_tile.inl.h"

}  // namespace avxvnni

const MatmulKernels kMatmulAvxVnni = avxvnni::kKernels;

}  // namespace quire::ops
