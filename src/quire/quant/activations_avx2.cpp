#include <immintrin.h>

#include "quire/quant/activations_kernels.h"

namespace quire::quant {
namespace {

/// 8 values to integers in [-127, 127].
__m256i quantize8(__m256 x, __m256 inverse) {
  __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse));  // rounds to the nearest, ties to even
  return _mm256_max_epi32(_mm256_min_epi32(q, _mm256_set1_epi32(127)), _mm256_set1_epi32(-127));
}

std::uint32_t largest_of(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(m));
}

/// The sum of columns 4i, 4i + 1 and that of the others, of 16 columns in order.
void pair_sums(__m256i first, __m256i second, int (&out)[2]) {
  __m256i v = _mm256_add_epi32(first, second);
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
  out[0] = _mm_cvtsi128_si32(s);
  out[1] = _mm_extract_epi32(s, 2);
}

}  // namespace

bool quantize_row_avx2(const float* x, std::int64_t cols, ActivationGroup* out) {
  const __m256i magnitude_mask = _mm256_set1_epi32(0x7FFFFFFF);
  bool finite = true;
  for (std::int64_t group = 0; group < cols / 32; ++group, x += 32, out += kRowBlock) {
    __m256 v[4];
    __m256i q[4];
    __m256i magnitudes = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + i * 8);
      q[i] = _mm256_setzero_si256();
      magnitudes = _mm256_max_epu32(magnitudes, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude_mask));
    }
    std::uint32_t largest = largest_of(magnitudes);
    bool group_finite = largest < 0x7F800000u;
    finite = finite && group_finite;
    float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(largest))));
    float d = group_finite && amax >= kSmallestAmax ? amax / 127.0f : 0.0f;
    if (d != 0.0f) {
      __m256 inverse = _mm256_set1_ps(1.0f / d);
      for (int i = 0; i < 4; ++i) q[i] = quantize8(v[i], inverse);
    }
    int sums[2][2];
    pair_sums(q[0], q[1], sums[0]);
    pair_sums(q[2], q[3], sums[1]);
    // Packing works within 128-bit halves; the permutation puts the dwords back in order.
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out->q), bytes);
    finish_group(*out, d, sums);
  }
  return finite;
}

}  // namespace quire::quant
