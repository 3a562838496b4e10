#include <immintrin.h>

#include "bench/roofline_kernels.h"

namespace quire::bench {
namespace {

constexpr int kChains = 12;

std::uint64_t read(const std::byte* data, std::size_t bytes) {
  __m256i sum[8];
  for (auto& s : sum) s = _mm256_setzero_si256();
  for (std::size_t at = 0; at < bytes; at += 256) {
    for (int i = 0; i < 4; ++i) _mm_prefetch(reinterpret_cast<const char*>(data + at + 2048 + i * 64), _MM_HINT_T0);
    for (int i = 0; i < 8; ++i) {
      sum[i] = _mm256_xor_si256(sum[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + at + i * 32)));
    }
  }
  for (int i = 1; i < 8; ++i) sum[0] = _mm256_xor_si256(sum[0], sum[i]);
  return static_cast<std::uint64_t>(_mm256_extract_epi64(sum[0], 0));
}

float fma(std::int64_t iterations) {
  __m256 chain[kChains];
  for (auto& c : chain) c = _mm256_set1_ps(1.0f);
  __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (std::int64_t n = 0; n < iterations; ++n) {
    for (int i = 0; i < kChains; ++i) chain[i] = _mm256_fmadd_ps(chain[i], a, b);
  }
  for (int i = 1; i < kChains; ++i) chain[0] = _mm256_add_ps(chain[0], chain[i]);
  return _mm256_cvtss_f32(chain[0]);
}

/// The products are of constants: the empty assembly keeps the compiler from computing them once.
__m256i products(__m256i u, __m256i s) {
  asm volatile("" : "+x"(u));
  return _mm256_maddubs_epi16(u, s);
}

std::int32_t first(const __m256i* chain, int count) {
  __m256i sum = chain[0];
  for (int i = 1; i < count; ++i) sum = _mm256_add_epi32(sum, chain[i]);
  return _mm256_extract_epi32(sum, 0);
}

std::int32_t dot(std::int64_t iterations) {
  __m256i chain[8];
  for (auto& c : chain) c = _mm256_setzero_si256();
  const __m256i u = _mm256_set1_epi8(3), s = _mm256_set1_epi8(-2), ones = _mm256_set1_epi16(1);
  for (std::int64_t n = 0; n < iterations; ++n) {
    for (auto& c : chain) c = _mm256_add_epi32(c, _mm256_madd_epi16(products(u, s), ones));
  }
  return first(chain, 8);
}

std::int32_t dot4(std::int64_t iterations) {
  __m256i chain[4];
  for (auto& c : chain) c = _mm256_setzero_si256();
  const __m256i u = _mm256_set1_epi8(3), s = _mm256_set1_epi8(-2), ones = _mm256_set1_epi16(1);
  for (std::int64_t n = 0; n < iterations; ++n) {
    __m256i sums[4];
    for (auto& sum : sums) sum = products(u, s);
    for (int i = 1; i < 8; ++i) {
      for (auto& sum : sums) sum = _mm256_add_epi16(sum, products(u, s));
    }
    for (int i = 0; i < 4; ++i) chain[i] = _mm256_add_epi32(chain[i], _mm256_madd_epi16(sums[i], ones));
  }
  return first(chain, 4);
}

}  // namespace

RooflineKernels roofline_avx2() {
  return {.read = read,
          .fma = fma,
          .fma_operations = kChains * 8 * 2,
          .dot = dot,
          .dot_operations = 8 * 32 * 2,
          .dot4 = dot4,
          .dot4_operations = 4 * 8 * 32 * 2};
}

}  // namespace quire::bench
