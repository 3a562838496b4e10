#include <immintrin.h>

#include "bench/roofline_kernels.h"
#include "quire/ops/matmul_unroll.h"

namespace quire::bench {
namespace {

constexpr int kChains = 12;  // as many as registers allow; each is in flight for four cycles, two at a time

std::uint64_t read(const std::byte* data, std::size_t bytes) {
  __m256i sum[8];
  for (auto& s : sum) s = _mm256_setzero_si256();
  for (std::size_t at = 0; at < bytes; at += 256) {
    for (int i = 0; i < 4; ++i)
      _mm_prefetch(reinterpret_cast<const char*>(data + at + kReadAhead + i * 64), _MM_HINT_T0);
    for (int i = 0; i < 8; ++i) {
      sum[i] = _mm256_xor_si256(sum[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + at + i * 32)));
    }
  }
  for (int i = 1; i < 8; ++i) sum[0] = _mm256_xor_si256(sum[0], sum[i]);
  return static_cast<std::uint64_t>(_mm256_extract_epi64(sum[0], 0));
}

float fma(std::int64_t iterations) {
  __m256 chain[kChains];
  QUIRE_UNROLL
  for (auto& c : chain) c = _mm256_set1_ps(1.0f);
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (std::int64_t n = 0; n < iterations; ++n) {
    QUIRE_UNROLL
    for (auto& c : chain) {
      c = _mm256_fmadd_ps(c, a, b);
      asm volatile("" : "+x"(c));  // else equal chains are computed once
    }
  }
  QUIRE_UNROLL
  for (int i = 1; i < kChains; ++i) chain[0] = _mm256_add_ps(chain[0], chain[i]);
  return _mm256_cvtss_f32(chain[0]);
}

/// In assembly, since the products are of constants and a compiler would compute them once.
__m256i products(__m256i u, __m256i s) {
  __m256i out;
  asm volatile("vpmaddubsw %2, %1, %0" : "=x"(out) : "x"(u), "x"(s));
  return out;
}

template <int kCount>
std::int32_t first(const __m256i (&chain)[kCount]) {
  __m256i sum = chain[0];
  QUIRE_UNROLL
  for (int i = 1; i < kCount; ++i) sum = _mm256_add_epi32(sum, chain[i]);
  return _mm256_extract_epi32(sum, 0);
}

/// Each chain sums kProducts products in 16 bits before it adds them in 32.
template <int kCount, int kProducts>
std::int32_t dot(std::int64_t iterations) {
  __m256i chain[kCount];
  QUIRE_UNROLL
  for (auto& c : chain) c = _mm256_setzero_si256();
  const __m256i u = _mm256_set1_epi8(3), s = _mm256_set1_epi8(-2), ones = _mm256_set1_epi16(1);
  for (std::int64_t n = 0; n < iterations; ++n) {
    __m256i sums[kCount];
    QUIRE_UNROLL
    for (auto& sum : sums) sum = products(u, s);
    QUIRE_UNROLL
    for (int i = 1; i < kProducts; ++i) {
      QUIRE_UNROLL
      for (auto& sum : sums) sum = _mm256_add_epi16(sum, products(u, s));
    }
    QUIRE_UNROLL
    for (int i = 0; i < kCount; ++i) chain[i] = _mm256_add_epi32(chain[i], _mm256_madd_epi16(sums[i], ones));
  }
  return first(chain);
}

}  // namespace

RooflineKernels roofline_avx2() {
  return {.read = read,
          .fma = fma,
          .fma_operations = kChains * 8 * 2,
          .dot = dot<6, 1>,
          .dot_operations = 6 * 32 * 2,
          .dot4 = dot<4, 8>,
          .dot4_operations = 4 * 8 * 32 * 2};
}

}  // namespace quire::bench
