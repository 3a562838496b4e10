// Sixteen lanes in AVX-512 registers. Included inside the namespace of a tier, after <immintrin.h>.
//
//   Bytes   64 bytes [16 lanes][4]     Shorts  32 16-bit integers     Ints, Floats  16 lanes

using Bytes = __m512i;
using Shorts = __m512i;
using Ints = __m512i;
using Floats = __m512;

inline Bytes load_bytes(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
inline Bytes bytes_and(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
inline Bytes bytes_or(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
inline Bytes bytes_xor(Bytes a, Bytes b) { return _mm512_xor_si512(a, b); }
inline Bytes every_byte(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
/// Shifts of 16-bit units: the caller masks off what crosses from the neighbouring byte.
template <int kBits>
inline Bytes shift_left(Bytes a) {
  return _mm512_slli_epi16(a, kBits);
}
template <int kBits>
inline Bytes shift_right(Bytes a) {
  return _mm512_srli_epi16(a, kBits);
}
/// The same four bytes in every lane.
inline Bytes broadcast4(const void* p) {
  int value;
  __builtin_memcpy(&value, p, 4);
  return _mm512_set1_epi32(value);
}

inline Ints zero_ints() { return _mm512_setzero_si512(); }
template <int kBits>
inline Ints shift_ints_right(Ints a) {
  return kBits == 0 ? a : _mm512_srai_epi32(a, kBits);
}
inline Ints every_int(int value) { return _mm512_set1_epi32(value); }
// The empty asm keeps a chain of sums a chain: as the tree that g++ likes better, its leaves spill.
inline Ints add_ints(Ints a, Ints b) {
  Ints sum = _mm512_add_epi32(a, b);
  asm("" : "+v"(sum));
  return sum;
}
inline Shorts add_shorts(Shorts a, Shorts b) {
  Shorts sum = _mm512_add_epi16(a, b);
  asm("" : "+v"(sum));
  return sum;
}
/// Sums of neighbouring products; u is unsigned, s signed; the caller keeps them within 16 bits.
inline Shorts multiply_bytes(Bytes u, Bytes s) { return _mm512_maddubs_epi16(u, s); }
/// Sums of neighbouring products of 16-bit integers.
inline Ints multiply_shorts(Shorts a, Shorts b) { return _mm512_madd_epi16(a, b); }
inline Bytes magnitudes(Bytes a) { return _mm512_abs_epi8(a); }
/// x negated where w is negative.
inline Bytes with_sign_of(Bytes x, Bytes w) {
  return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
}

inline Floats zero_floats() { return _mm512_setzero_ps(); }
inline Floats every_float(float value) { return _mm512_set1_ps(value); }
inline Floats load_floats(const float* p) { return _mm512_loadu_ps(p); }
inline void store_floats(float* p, Floats v) { _mm512_storeu_ps(p, v); }
inline Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
inline Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats fused(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats negative(Floats a) {
  return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)));
}
inline Floats load_f16(const std::uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Floats load_bf16(const std::uint8_t* p) {
  __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline Floats load_u8(const std::uint8_t* p) {
  return to_floats(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Floats load_i8(const std::uint8_t* p) {
  return to_floats(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
