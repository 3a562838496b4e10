#pragma once
// Lanes of the AVX-512 tiers: one zmm register. See lanes16_scalar.h for what each function means.

#include <immintrin.h>

#include <cstdint>

#include "quire/ops/inline.h"

namespace quire::ops::avx512 {

struct Mask {
  __mmask16 lanes;
};

struct Doubles;

struct Lanes {
  __m512 v;

  using Doubles = avx512::Doubles;
  static constexpr int kCount = 16;
  static constexpr int kRegisters = 32;

  static QUIRE_INLINE __mmask16 first_lanes(std::int64_t n) {
    return static_cast<__mmask16>(n >= 16 ? 0xFFFFu : (1u << (n < 0 ? 0 : n)) - 1);
  }
  static QUIRE_INLINE Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static QUIRE_INLINE Lanes load_partial(const float* p, std::int64_t n) {
    return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
  }
  static QUIRE_INLINE Lanes broadcast(float x) { return {_mm512_set1_ps(x)}; }
  static QUIRE_INLINE Lanes zero() { return {_mm512_setzero_ps()}; }
  static QUIRE_INLINE Lanes load_f16(const std::uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static QUIRE_INLINE Lanes load_bf16(const std::uint16_t* p) {
    auto halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
  }
  static QUIRE_INLINE Lanes load_int8(const std::int8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
  }
  static QUIRE_INLINE Lanes load_halves(const float* low, const float* high) {
    return {_mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(low)), _mm256_loadu_ps(high), 1)};
  }
  static QUIRE_INLINE __m256i join(const std::uint16_t* low, const std::uint16_t* high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
                                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
  }
  static QUIRE_INLINE Lanes load_f16_halves(const std::uint16_t* low, const std::uint16_t* high) {
    return {_mm512_cvtph_ps(join(low, high))};
  }
  static QUIRE_INLINE Lanes load_bf16_halves(const std::uint16_t* low, const std::uint16_t* high) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(join(low, high)), 16))};
  }
  static QUIRE_INLINE Lanes load_int8_halves(const std::int8_t* low, const std::int8_t* high) {
    auto codes = _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(low)),
                                    _mm_loadl_epi64(reinterpret_cast<const __m128i*>(high)));
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes))};
  }
  QUIRE_INLINE void store(float* p) const { _mm512_storeu_ps(p, v); }
  QUIRE_INLINE void store_partial(float* p, std::int64_t n) const { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
  QUIRE_INLINE void store_f16(std::uint16_t* p) const {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, kNearest));
  }
  static QUIRE_INLINE Mask between(std::int64_t begin, std::int64_t end) {
    return {static_cast<__mmask16>(first_lanes(end) & ~first_lanes(begin))};
  }
  QUIRE_INLINE float first() const { return _mm512_cvtss_f32(v); }
};

QUIRE_INLINE Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
QUIRE_INLINE Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
QUIRE_INLINE Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
QUIRE_INLINE Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
QUIRE_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
QUIRE_INLINE Lanes fnma(Lanes a, Lanes b, Lanes c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
QUIRE_INLINE Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
QUIRE_INLINE Lanes abs(Lanes a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
QUIRE_INLINE Lanes add_exponent(Lanes a, Lanes steps) {
  auto shifted = _mm512_slli_epi32(_mm512_castps_si512(steps.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), shifted))};
}

QUIRE_INLINE Mask less(Lanes a, Lanes b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
QUIRE_INLINE Mask equal(Lanes a, Lanes b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
QUIRE_INLINE Lanes select(Mask mask, Lanes a, Lanes b) { return {_mm512_mask_blend_ps(mask.lanes, b.v, a.v)}; }
QUIRE_INLINE std::uint32_t bits(Mask mask) { return mask.lanes; }

QUIRE_INLINE __m256 upper_half(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }
QUIRE_INLINE float sum(Lanes a) {
  auto eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), upper_half(a.v));
  auto four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  auto two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
QUIRE_INLINE float largest(Lanes a) {
  auto eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), upper_half(a.v));
  auto four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  auto two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
QUIRE_INLINE void deinterleave(Lanes a, Lanes b, Lanes& even, Lanes& odd) {
  auto picks = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  even = {_mm512_permutex2var_ps(a.v, picks, b.v)};
  odd = {_mm512_permutex2var_ps(a.v, _mm512_add_epi32(picks, _mm512_set1_epi32(1)), b.v)};
}
QUIRE_INLINE void interleave(Lanes even, Lanes odd, Lanes& a, Lanes& b) {
  auto picks = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  a = {_mm512_permutex2var_ps(even.v, picks, odd.v)};
  b = {_mm512_permutex2var_ps(even.v, _mm512_add_epi32(picks, _mm512_set1_epi32(8)), odd.v)};
}

struct Doubles {
  __m512d low, high;
  static QUIRE_INLINE Doubles zero() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
};
QUIRE_INLINE Doubles accumulate(Doubles a, Lanes b) {
  return {_mm512_add_pd(a.low, _mm512_cvtps_pd(_mm512_castps512_ps256(b.v))),
          _mm512_add_pd(a.high, _mm512_cvtps_pd(upper_half(b.v)))};
}
QUIRE_INLINE double sum(Doubles a) {
  auto eight = _mm512_add_pd(a.low, a.high);
  auto four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
  auto two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

}  // namespace quire::ops::avx512
