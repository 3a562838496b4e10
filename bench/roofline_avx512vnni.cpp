#include <immintrin.h>

#include "bench/roofline_kernels.h"
#include "quire/ops/matmul_unroll.h"

namespace quire::bench {
namespace {

constexpr int kChains = 16;

std::int32_t dot(std::int64_t iterations) {
  __m512i chain[kChains];
  QUIRE_UNROLL
  for (auto& c : chain) c = _mm512_setzero_si512();
  const __m512i u = _mm512_set1_epi8(3), s = _mm512_set1_epi8(-2);
  for (std::int64_t n = 0; n < iterations; ++n) {
    QUIRE_UNROLL
    for (auto& c : chain) {
      c = _mm512_dpbusd_epi32(c, u, s);
      asm volatile("" : "+v"(c));
    }
  }
  QUIRE_UNROLL
  for (int i = 1; i < kChains; ++i) chain[0] = _mm512_add_epi32(chain[0], chain[i]);
  return _mm_cvtsi128_si32(_mm512_castsi512_si128(chain[0]));
}

}  // namespace

RooflineKernels roofline_avx512vnni() {
  RooflineKernels kernels = roofline_avx512();
  kernels.dot = kernels.dot4 = dot;
  kernels.dot_operations = kernels.dot4_operations = kChains * 64 * 2;
  return kernels;
}

}  // namespace quire::bench
