#include <immintrin.h>

#include "bench/roofline_kernels.h"
#include "quire/ops/matmul_unroll.h"

namespace quire::bench {
namespace {

constexpr int kChains = 16;

std::uint64_t read(const std::byte* data, std::size_t bytes) {
  __m512i sum[8];
  for (auto& s : sum) s = _mm512_setzero_si512();
  for (std::size_t at = 0; at < bytes; at += 512) {
    for (int i = 0; i < 8; ++i)
      _mm_prefetch(reinterpret_cast<const char*>(data + at + kReadAhead + i * 64), _MM_HINT_T0);
    for (int i = 0; i < 8; ++i) sum[i] = _mm512_xor_si512(sum[i], _mm512_load_si512(data + at + i * 64));
  }
  for (int i = 1; i < 8; ++i) sum[0] = _mm512_xor_si512(sum[0], sum[i]);
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(sum[0])));
}

float fma(std::int64_t iterations) {
  __m512 chain[kChains];
  QUIRE_UNROLL
  for (auto& c : chain) c = _mm512_set1_ps(1.0f);
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (std::int64_t n = 0; n < iterations; ++n) {
    QUIRE_UNROLL
    for (auto& c : chain) {
      c = _mm512_fmadd_ps(c, a, b);
      asm volatile("" : "+v"(c));  // else equal chains are computed once
    }
  }
  QUIRE_UNROLL
  for (int i = 1; i < kChains; ++i) chain[0] = _mm512_add_ps(chain[0], chain[i]);
  return _mm512_cvtss_f32(chain[0]);
}

/// In assembly, since the products are of constants and a compiler would compute them once.
__m512i products(__m512i u, __m512i s) {
  __m512i out;
  asm volatile("vpmaddubsw %2, %1, %0" : "=v"(out) : "v"(u), "v"(s));
  return out;
}

template <int kCount>
std::int32_t first(const __m512i (&chain)[kCount]) {
  __m512i sum = chain[0];
  QUIRE_UNROLL
  for (int i = 1; i < kCount; ++i) sum = _mm512_add_epi32(sum, chain[i]);
  return _mm_cvtsi128_si32(_mm512_castsi512_si128(sum));
}

/// Each chain sums kProducts products in 16 bits before it adds them in 32.
template <int kCount, int kProducts>
std::int32_t dot(std::int64_t iterations) {
  __m512i chain[kCount];
  QUIRE_UNROLL
  for (auto& c : chain) c = _mm512_setzero_si512();
  const __m512i u = _mm512_set1_epi8(3), s = _mm512_set1_epi8(-2), ones = _mm512_set1_epi16(1);
  for (std::int64_t n = 0; n < iterations; ++n) {
    __m512i sums[kCount];
    QUIRE_UNROLL
    for (auto& sum : sums) sum = products(u, s);
    QUIRE_UNROLL
    for (int i = 1; i < kProducts; ++i) {
      QUIRE_UNROLL
      for (auto& sum : sums) sum = _mm512_add_epi16(sum, products(u, s));
    }
    QUIRE_UNROLL
    for (int i = 0; i < kCount; ++i) chain[i] = _mm512_add_epi32(chain[i], _mm512_madd_epi16(sums[i], ones));
  }
  return first(chain);
}

}  // namespace

RooflineKernels roofline_avx512() {
  return {.read = read,
          .fma = fma,
          .fma_operations = kChains * 16 * 2,
          .dot = dot<8, 1>,
          .dot_operations = 8 * 64 * 2,
          .dot4 = dot<8, 8>,
          .dot4_operations = 8 * 8 * 64 * 2};
}

}  // namespace quire::bench
