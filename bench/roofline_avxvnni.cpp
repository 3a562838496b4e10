#include <immintrin.h>

#include "bench/roofline_kernels.h"
#include "quire/ops/matmul_unroll.h"

namespace quire::bench {
namespace {

constexpr int kChains = 12;

std::int32_t dot(std::int64_t iterations) {
  __m256i chain[kChains];
  QUIRE_UNROLL
  for (auto& c : chain) c = _mm256_setzero_si256();
  const __m256i u = _mm256_set1_epi8(3), s = _mm256_set1_epi8(-2);
  for (std::int64_t n = 0; n < iterations; ++n) {
    QUIRE_UNROLL
    for (auto& c : chain) {
      c = _mm256_dpbusd_avx_epi32(c, u, s);
      asm volatile("" : "+x"(c));
    }
  }
  QUIRE_UNROLL
  for (int i = 1; i < kChains; ++i) chain[0] = _mm256_add_epi32(chain[0], chain[i]);
  return _mm256_extract_epi32(chain[0], 0);
}

}  // namespace

RooflineKernels roofline_avxvnni() {
  RooflineKernels kernels = roofline_avx2();
  kernels.dot = kernels.dot4 = dot;
  kernels.dot_operations = kernels.dot4_operations = kChains * 32 * 2;
  return kernels;
}

}  // namespace quire::bench
