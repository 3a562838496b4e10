#pragma once
// Lanes of the AVX2 tier: two ymm registers. See lanes16_scalar.h for what each function means.

#include <immintrin.h>

#include <cstdint>

#include "quire/ops/inline.h"

namespace quire::ops::avx2 {

struct Mask {
  __m256 low, high;
};

struct Doubles;

struct Lanes {
  __m256 low, high;

  using Doubles = avx2::Doubles;
  static constexpr int kCount = 16;
  static constexpr int kRegisters = 8;

  static QUIRE_INLINE __m256i first_lanes(std::int64_t n) {
    auto bound = _mm256_set1_epi32(static_cast<int>(n));
    return _mm256_cmpgt_epi32(bound, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static QUIRE_INLINE Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static QUIRE_INLINE Lanes load_partial(const float* p, std::int64_t n) {
    return {_mm256_maskload_ps(p, first_lanes(n)), _mm256_maskload_ps(p + 8, first_lanes(n - 8))};
  }
  static QUIRE_INLINE Lanes broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static QUIRE_INLINE Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static QUIRE_INLINE Lanes load_f16(const std::uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static QUIRE_INLINE __m256 widen_bf16(const std::uint16_t* p) {
    auto halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static QUIRE_INLINE Lanes load_bf16(const std::uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
  static QUIRE_INLINE __m256 widen_int8(const std::int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static QUIRE_INLINE Lanes load_int8(const std::int8_t* p) { return {widen_int8(p), widen_int8(p + 8)}; }
  static QUIRE_INLINE __m256 widen_f16(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static QUIRE_INLINE Lanes load_halves(const float* low, const float* high) {
    return {_mm256_loadu_ps(low), _mm256_loadu_ps(high)};
  }
  static QUIRE_INLINE Lanes load_f16_halves(const std::uint16_t* low, const std::uint16_t* high) {
    return {widen_f16(low), widen_f16(high)};
  }
  static QUIRE_INLINE Lanes load_bf16_halves(const std::uint16_t* low, const std::uint16_t* high) {
    return {widen_bf16(low), widen_bf16(high)};
  }
  static QUIRE_INLINE Lanes load_int8_halves(const std::int8_t* low, const std::int8_t* high) {
    return {widen_int8(low), widen_int8(high)};
  }
  QUIRE_INLINE void store(float* p) const {
    _mm256_storeu_ps(p, low);
    _mm256_storeu_ps(p + 8, high);
  }
  QUIRE_INLINE void store_partial(float* p, std::int64_t n) const {
    _mm256_maskstore_ps(p, first_lanes(n), low);
    _mm256_maskstore_ps(p + 8, first_lanes(n - 8), high);
  }
  QUIRE_INLINE void store_f16(std::uint16_t* p) const {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(low, kNearest));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(high, kNearest));
  }
  static QUIRE_INLINE __m256 between(__m256i lane, std::int64_t begin, std::int64_t end) {
    // begin <= lane < end as lane > begin - 1 and end > lane; the bounds are first cut to what 16 lanes need.
    auto below = _mm256_set1_epi32(static_cast<int>(begin < 0 ? -1 : begin > 16 ? 15 : begin - 1));
    auto above = _mm256_set1_epi32(static_cast<int>(end < 0 ? 0 : end > 16 ? 16 : end));
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_cmpgt_epi32(lane, below), _mm256_cmpgt_epi32(above, lane)));
  }
  static QUIRE_INLINE Mask between(std::int64_t begin, std::int64_t end) {
    return {between(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), begin, end),
            between(_mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15), begin, end)};
  }
  QUIRE_INLINE float first() const { return _mm256_cvtss_f32(low); }
};

QUIRE_INLINE Lanes operator+(Lanes a, Lanes b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
QUIRE_INLINE Lanes operator-(Lanes a, Lanes b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
QUIRE_INLINE Lanes operator*(Lanes a, Lanes b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
QUIRE_INLINE Lanes operator/(Lanes a, Lanes b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
QUIRE_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
QUIRE_INLINE Lanes fnma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
QUIRE_INLINE Lanes max(Lanes a, Lanes b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
QUIRE_INLINE Lanes abs(Lanes a) {
  auto sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
QUIRE_INLINE __m256 add_exponent(__m256 a, __m256 steps) {
  auto shifted = _mm256_slli_epi32(_mm256_castps_si256(steps), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), shifted));
}
QUIRE_INLINE Lanes add_exponent(Lanes a, Lanes steps) {
  return {add_exponent(a.low, steps.low), add_exponent(a.high, steps.high)};
}

QUIRE_INLINE Mask less(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}
QUIRE_INLINE Mask equal(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ)};
}
QUIRE_INLINE Lanes select(Mask mask, Lanes a, Lanes b) {
  return {_mm256_blendv_ps(b.low, a.low, mask.low), _mm256_blendv_ps(b.high, a.high, mask.high)};
}
QUIRE_INLINE std::uint32_t bits(Mask mask) {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(mask.low) | _mm256_movemask_ps(mask.high) << 8);
}

QUIRE_INLINE float sum(Lanes a) {
  auto eight = _mm256_add_ps(a.low, a.high);
  auto four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  auto two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
QUIRE_INLINE float largest(Lanes a) {
  auto eight = _mm256_max_ps(a.low, a.high);
  auto four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  auto two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
QUIRE_INLINE __m256 pick_even(__m256 a, __m256 b) {
  auto mixed = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));  // pairs of a, b, a, b
  return _mm256_castpd_ps(_mm256_permute4x64_pd(mixed, 0xD8));
}
QUIRE_INLINE __m256 pick_odd(__m256 a, __m256 b) {
  auto mixed = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xDD));
  return _mm256_castpd_ps(_mm256_permute4x64_pd(mixed, 0xD8));
}
QUIRE_INLINE void deinterleave(Lanes a, Lanes b, Lanes& even, Lanes& odd) {
  even = {pick_even(a.low, a.high), pick_even(b.low, b.high)};
  odd = {pick_odd(a.low, a.high), pick_odd(b.low, b.high)};
}
QUIRE_INLINE Lanes zip(__m256 even, __m256 odd) {
  auto low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
QUIRE_INLINE void interleave(Lanes even, Lanes odd, Lanes& a, Lanes& b) {
  a = zip(even.low, odd.low);
  b = zip(even.high, odd.high);
}

struct Doubles {
  __m256d v[4];
  static QUIRE_INLINE Doubles zero() {
    auto z = _mm256_setzero_pd();
    return {{z, z, z, z}};
  }
};
QUIRE_INLINE Doubles accumulate(Doubles a, Lanes b) {
  return {{_mm256_add_pd(a.v[0], _mm256_cvtps_pd(_mm256_castps256_ps128(b.low))),
           _mm256_add_pd(a.v[1], _mm256_cvtps_pd(_mm256_extractf128_ps(b.low, 1))),
           _mm256_add_pd(a.v[2], _mm256_cvtps_pd(_mm256_castps256_ps128(b.high))),
           _mm256_add_pd(a.v[3], _mm256_cvtps_pd(_mm256_extractf128_ps(b.high, 1)))}};
}
QUIRE_INLINE double sum(Doubles a) {
  auto four = _mm256_add_pd(_mm256_add_pd(a.v[0], a.v[2]), _mm256_add_pd(a.v[1], a.v[3]));
  auto two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

}  // namespace quire::ops::avx2
