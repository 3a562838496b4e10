// The AVX-512 VNNI tier. Everything here lives in a namespace of its own, so that no other file links to its code.

#include <immintrin.h>

#include "quire/ops/matmul_kernels.h"
#include "quire/ops/matmul_unroll.h"
#include "quire/quant/packed_layout.h"

namespace quire::ops {
namespace avx512vnni {

inline constexpr int kMaxTokens = 16, kTokensAtOnce = 4, kMaxFloatTokens = 8;

#include "quire/ops/matmul_simd512.inl.h"

/// In assembly since compilers load the broadcast on its own, which costs a register and a place in the queues.
inline Ints dot4(Ints acc, Bytes u, const std::int8_t* x) {
  struct Four {
    std::int8_t values[4];
  };
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(u), "m"(*reinterpret_cast<const Four*>(x)));
  return acc;
}

#include "quire/ops/matmul_dot_vnni.inl.h"
#include "quire/ops/matmul_formats.inl.h"
#include "quire/ops/matmul_tile.inl.h"

}  // namespace avx512vnni

const MatmulKernels kMatmulAvx512Vnni = avx512vnni::kKernels;

}  // namespace quire::ops
