#include <immintrin.h>

#include "quire/quant/activations_kernels.h"

namespace quire::quant {
namespace {

/// 16 values to integers in [-127, 127].
__m512i quantize16(__m512 x, __m512 inverse) {
  __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));  // rounds to the nearest, ties to even
  return _mm512_max_epi32(_mm512_min_epi32(q, _mm512_set1_epi32(127)), _mm512_set1_epi32(-127));
}

/// The sum of columns 4i, 4i + 1 and that of the others, of 16 columns in order.
void pair_sums(__m512i v, int (&out)[2]) {
  __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
  out[0] = _mm_cvtsi128_si32(s);
  out[1] = _mm_extract_epi32(s, 2);
}

}  // namespace

bool quantize_row_avx512(const float* x, std::int64_t cols, ActivationGroup* out) {
  const __m512i magnitude_mask = _mm512_set1_epi32(0x7FFFFFFF);
  bool finite = true;
  for (std::int64_t group = 0; group < cols / 32; ++group, x += 32, out += kRowBlock) {
    __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
    __m512i m0 = _mm512_and_si512(_mm512_castps_si512(x0), magnitude_mask);
    __m512i m1 = _mm512_and_si512(_mm512_castps_si512(x1), magnitude_mask);
    std::uint32_t largest = _mm512_reduce_max_epu32(_mm512_max_epu32(m0, m1));
    bool group_finite = largest < 0x7F800000u;
    finite = finite && group_finite;
    float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(largest))));
    float d = group_finite && amax >= kSmallestAmax ? amax / 127.0f : 0.0f;
    __m512i q0 = _mm512_setzero_si512(), q1 = q0;
    if (d != 0.0f) {
      __m512 inverse = _mm512_set1_ps(1.0f / d);
      q0 = quantize16(x0, inverse);
      q1 = quantize16(x1, inverse);
    }
    int sums[2][2];
    pair_sums(q0, sums[0]);
    pair_sums(q1, sums[1]);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out->q), _mm512_cvtepi32_epi8(q0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out->q + 16), _mm512_cvtepi32_epi8(q1));
    finish_group(*out, d, sums);
  }
  return finite;
}

}  // namespace quire::quant
