#pragma once
// Lanes of the scalar tier: float[16]. The definition that the AVX2 and AVX-512 forms must equal bit for bit (NaN
// payloads aside). Kernels are templates over the tier's Lanes and find these functions by argument.
//
// Each tier's header gives the same names in its own namespace: Lanes, Mask, Doubles and the functions below. All are
// always inlined, so that no copy compiled for one instruction set is ever linked into another's code.

#include <cstdint>

#include "quire/ops/inline.h"
#include "quire/quant/dequantize.h"

namespace quire::ops::scalar {

/// One bit for each lane.
struct Mask {
  std::uint32_t lanes;
};

struct Doubles;

struct Lanes {
  float v[16];

  using Doubles = scalar::Doubles;
  static constexpr int kCount = 16;
  static constexpr int kRegisters = 8;  ///< how many Lanes the tier holds in registers; sizes register blocks

  static QUIRE_INLINE Lanes load(const float* p) {
    Lanes r;
    for (int i = 0; i < 16; ++i) r.v[i] = p[i];
    return r;
  }
  /// The first n elements, 0 <= n <= 16; the other lanes are +0 and their memory is not touched.
  static QUIRE_INLINE Lanes load_partial(const float* p, std::int64_t n) {
    Lanes r;
    for (int i = 0; i < 16; ++i) r.v[i] = i < n ? p[i] : 0.0f;
    return r;
  }
  static QUIRE_INLINE Lanes broadcast(float x) {
    Lanes r;
    for (int i = 0; i < 16; ++i) r.v[i] = x;
    return r;
  }
  static QUIRE_INLINE Lanes zero() { return broadcast(0.0f); }
  static QUIRE_INLINE Lanes load_f16(const std::uint16_t* p) {
    Lanes r;
    for (int i = 0; i < 16; ++i) r.v[i] = quant::f16_to_f32(p[i]);
    return r;
  }
  static QUIRE_INLINE Lanes load_bf16(const std::uint16_t* p) {
    Lanes r;
    for (int i = 0; i < 16; ++i) r.v[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(p[i]) << 16);
    return r;
  }
  static QUIRE_INLINE Lanes load_int8(const std::int8_t* p) {
    Lanes r;
    for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>(p[i]);
    return r;
  }
  /// Lanes 0 to 7 from low, 8 to 15 from high; nothing else of memory is touched.
  static QUIRE_INLINE Lanes load_halves(const float* low, const float* high) {
    Lanes r;
    for (int i = 0; i < 8; ++i) r.v[i] = low[i], r.v[8 + i] = high[i];
    return r;
  }
  static QUIRE_INLINE Lanes load_f16_halves(const std::uint16_t* low, const std::uint16_t* high) {
    Lanes r;
    for (int i = 0; i < 8; ++i) r.v[i] = quant::f16_to_f32(low[i]), r.v[8 + i] = quant::f16_to_f32(high[i]);
    return r;
  }
  static QUIRE_INLINE Lanes load_bf16_halves(const std::uint16_t* low, const std::uint16_t* high) {
    Lanes r;
    for (int i = 0; i < 8; ++i) {
      r.v[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(low[i]) << 16);
      r.v[8 + i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(high[i]) << 16);
    }
    return r;
  }
  static QUIRE_INLINE Lanes load_int8_halves(const std::int8_t* low, const std::int8_t* high) {
    Lanes r;
    for (int i = 0; i < 8; ++i) r.v[i] = static_cast<float>(low[i]), r.v[8 + i] = static_cast<float>(high[i]);
    return r;
  }
  QUIRE_INLINE void store(float* p) const {
    for (int i = 0; i < 16; ++i) p[i] = v[i];
  }
  QUIRE_INLINE void store_partial(float* p, std::int64_t n) const {
    for (int i = 0; i < n; ++i) p[i] = v[i];
  }
  /// Rounds to nearest even, subnormals kept, overflow gives infinity.
  QUIRE_INLINE void store_f16(std::uint16_t* p) const {
    for (int i = 0; i < 16; ++i) p[i] = quant::f32_to_f16(v[i]);
  }
  /// Lanes i with begin <= i < end; the bounds may lie outside [0, 16].
  static QUIRE_INLINE Mask between(std::int64_t begin, std::int64_t end) {
    Mask m{0};
    for (int i = 0; i < 16; ++i) m.lanes |= static_cast<std::uint32_t>(begin <= i && i < end) << i;
    return m;
  }
  QUIRE_INLINE float first() const { return v[0]; }
};

#define QUIRE_EACH_LANE(expression)                   \
  Lanes r;                                            \
  for (int i = 0; i < 16; ++i) r.v[i] = (expression); \
  return r

QUIRE_INLINE Lanes operator+(Lanes a, Lanes b) { QUIRE_EACH_LANE(a.v[i] + b.v[i]); }
QUIRE_INLINE Lanes operator-(Lanes a, Lanes b) { QUIRE_EACH_LANE(a.v[i] - b.v[i]); }
QUIRE_INLINE Lanes operator*(Lanes a, Lanes b) { QUIRE_EACH_LANE(a.v[i] * b.v[i]); }
QUIRE_INLINE Lanes operator/(Lanes a, Lanes b) { QUIRE_EACH_LANE(a.v[i] / b.v[i]); }
/// a * b + c, rounded once.
QUIRE_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) { QUIRE_EACH_LANE(__builtin_fmaf(a.v[i], b.v[i], c.v[i])); }
/// c - a * b, rounded once.
QUIRE_INLINE Lanes fnma(Lanes a, Lanes b, Lanes c) { QUIRE_EACH_LANE(__builtin_fmaf(-a.v[i], b.v[i], c.v[i])); }
/// a > b ? a : b, so b where either is NaN or both are zero.
QUIRE_INLINE Lanes max(Lanes a, Lanes b) { QUIRE_EACH_LANE(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
QUIRE_INLINE Lanes abs(Lanes a) { QUIRE_EACH_LANE(__builtin_fabsf(a.v[i])); }
/// Adds the low nine bits of the representation of `steps` to the exponent of a: with steps = n + 1.5 * 2^23 this is
/// a * 2^n, where a and the result are normal.
QUIRE_INLINE Lanes add_exponent(Lanes a, Lanes steps) {
  QUIRE_EACH_LANE(__builtin_bit_cast(
      float, __builtin_bit_cast(std::uint32_t, a.v[i]) + (__builtin_bit_cast(std::uint32_t, steps.v[i]) << 23)));
}
#undef QUIRE_EACH_LANE

/// Lanes where a < b (false where either is NaN).
QUIRE_INLINE Mask less(Lanes a, Lanes b) {
  Mask m{0};
  for (int i = 0; i < 16; ++i) m.lanes |= static_cast<std::uint32_t>(a.v[i] < b.v[i]) << i;
  return m;
}
QUIRE_INLINE Mask equal(Lanes a, Lanes b) {
  Mask m{0};
  for (int i = 0; i < 16; ++i) m.lanes |= static_cast<std::uint32_t>(a.v[i] == b.v[i]) << i;
  return m;
}
/// a in the lanes of the mask, b elsewhere.
QUIRE_INLINE Lanes select(Mask mask, Lanes a, Lanes b) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.v[i] = (mask.lanes >> i & 1) != 0 ? a.v[i] : b.v[i];
  return r;
}
/// Bit i for lane i.
QUIRE_INLINE std::uint32_t bits(Mask mask) { return mask.lanes; }

/// The sum of the lanes, folded 8, 4, 2, 1: lane i takes lane i + 8, then i + 4, i + 2, i + 1.
QUIRE_INLINE float sum(Lanes a) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) a.v[i] = a.v[i] + a.v[i + width];
  }
  return a.v[0];
}
/// The largest lane, folded in the same way.
QUIRE_INLINE float largest(Lanes a) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) a.v[i] = a.v[i] > a.v[i + width] ? a.v[i] : a.v[i + width];
  }
  return a.v[0];
}
/// Splits 32 consecutive values (a, then b) into those of even and of odd index.
QUIRE_INLINE void deinterleave(Lanes a, Lanes b, Lanes& even, Lanes& odd) {
  for (int i = 0; i < 8; ++i) {
    even.v[i] = a.v[2 * i];
    odd.v[i] = a.v[2 * i + 1];
    even.v[8 + i] = b.v[2 * i];
    odd.v[8 + i] = b.v[2 * i + 1];
  }
}
/// The inverse of deinterleave.
QUIRE_INLINE void interleave(Lanes even, Lanes odd, Lanes& a, Lanes& b) {
  for (int i = 0; i < 8; ++i) {
    a.v[2 * i] = even.v[i];
    a.v[2 * i + 1] = odd.v[i];
    b.v[2 * i] = even.v[8 + i];
    b.v[2 * i + 1] = odd.v[8 + i];
  }
}

/// Sixteen running sums in f64.
struct Doubles {
  double v[16];
  static QUIRE_INLINE Doubles zero() { return Doubles{}; }
};
QUIRE_INLINE Doubles accumulate(Doubles a, Lanes b) {
  for (int i = 0; i < 16; ++i) a.v[i] = a.v[i] + static_cast<double>(b.v[i]);
  return a;
}
QUIRE_INLINE double sum(Doubles a) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) a.v[i] = a.v[i] + a.v[i + width];
  }
  return a.v[0];
}

}  // namespace quire::ops::scalar
