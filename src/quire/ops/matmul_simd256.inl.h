// Sixteen lanes in pairs of AVX2 registers. Included inside the namespace of a tier, after <immintrin.h>.
//
//   Bytes   64 bytes [16 lanes][4]     Shorts  32 16-bit integers     Ints, Floats  16 lanes

struct Ints {
  __m256i low, high;
};
using Bytes = Ints;
using Shorts = Ints;
struct Floats {
  __m256 low, high;
};

inline Bytes load_bytes(const std::uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline Bytes bytes_and(Bytes a, Bytes b) { return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)}; }
inline Bytes bytes_or(Bytes a, Bytes b) { return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)}; }
inline Bytes bytes_xor(Bytes a, Bytes b) { return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)}; }
inline Bytes every_byte(int value) {
  __m256i v = _mm256_set1_epi8(static_cast<char>(value));
  return {v, v};
}
/// Shifts of 16-bit units: the caller masks off what crosses from the neighbouring byte.
template <int kBits>
inline Bytes shift_left(Bytes a) {
  return {_mm256_slli_epi16(a.low, kBits), _mm256_slli_epi16(a.high, kBits)};
}
template <int kBits>
inline Bytes shift_right(Bytes a) {
  return {_mm256_srli_epi16(a.low, kBits), _mm256_srli_epi16(a.high, kBits)};
}
/// The same four bytes in every lane.
inline Bytes broadcast4(const void* p) {
  int value;
  __builtin_memcpy(&value, p, 4);
  __m256i v = _mm256_set1_epi32(value);
  return {v, v};
}

inline Ints zero_ints() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
template <int kBits>
inline Ints shift_ints_right(Ints a) {
  return {_mm256_srai_epi32(a.low, kBits), _mm256_srai_epi32(a.high, kBits)};
}
inline Ints every_int(int value) {
  __m256i v = _mm256_set1_epi32(value);
  return {v, v};
}
// The empty asm keeps a chain of sums a chain: as the tree that g++ likes better, its leaves spill.
inline Ints add_ints(Ints a, Ints b) {
  Ints sum = {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
  asm("" : "+x"(sum.low), "+x"(sum.high));
  return sum;
}
inline Shorts add_shorts(Shorts a, Shorts b) {
  Shorts sum = {_mm256_add_epi16(a.low, b.low), _mm256_add_epi16(a.high, b.high)};
  asm("" : "+x"(sum.low), "+x"(sum.high));
  return sum;
}
/// Sums of neighbouring products; u is unsigned, s signed; the caller keeps them within 16 bits.
inline Shorts multiply_bytes(Bytes u, Bytes s) {
  return {_mm256_maddubs_epi16(u.low, s.low), _mm256_maddubs_epi16(u.high, s.high)};
}
/// Sums of neighbouring products of 16-bit integers.
inline Ints multiply_shorts(Shorts a, Shorts b) {
  return {_mm256_madd_epi16(a.low, b.low), _mm256_madd_epi16(a.high, b.high)};
}
inline Bytes magnitudes(Bytes a) { return {_mm256_abs_epi8(a.low), _mm256_abs_epi8(a.high)}; }
/// x negated where w is negative; also zero where w is zero.
inline Bytes with_sign_of(Bytes x, Bytes w) {
  return {_mm256_sign_epi8(x.low, w.low), _mm256_sign_epi8(x.high, w.high)};
}

inline Floats zero_floats() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Floats every_float(float value) {
  __m256 v = _mm256_set1_ps(value);
  return {v, v};
}
inline Floats load_floats(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store_floats(float* p, Floats v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
inline Floats to_floats(Ints v) { return {_mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high)}; }
inline Floats multiply(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats add(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Floats fused(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Floats negative(Floats a) {
  __m256 sign = _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MIN));
  return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
}
inline Floats load_f16(const std::uint8_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}
inline Floats load_bf16(const std::uint8_t* p) {
  auto half = [](const std::uint8_t* at) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  };
  return {half(p), half(p + 16)};
}
inline Floats load_u8(const std::uint8_t* p) {
  return to_floats({_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
                    _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))});
}
inline Floats load_i8(const std::uint8_t* p) {
  return to_floats({_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
                    _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))});
}
