#pragma once
// 2^x and e^x on sixteen lanes; a template over a tier's Lanes (lanes16_*.h). Polynomials: minimax in relative error
// on the reduced range, the constant term fixed at 1, coefficients rounded to f32; evaluated by Horner with fma.

#include "quire/ops/inline.h"

namespace quire::ops {

/// Adding and subtracting it rounds a float below 2^22 to the nearest integer, ties to even, and leaves that integer
/// in the low bits of the sum, where add_exponent looks for it.
inline constexpr float kRoundToInteger = 0x1.8p23f;

/// 2^x for x <= 127; 0 for x < -125 (rule 13 of the arithmetic). Within 2 ulp.
template <class Lanes>
QUIRE_INLINE Lanes exp2(Lanes x) {
  auto constant = [](float c) { return Lanes::broadcast(c); };
  Lanes steps = x + constant(kRoundToInteger);
  Lanes f = x - (steps - constant(kRoundToInteger));
  Lanes p = constant(0x1.41fbbcp-13f);
  p = fma(p, f, constant(0x1.5f3e54p-10f));
  p = fma(p, f, constant(0x1.3b2d4cp-7f));
  p = fma(p, f, constant(0x1.c6aee8p-5f));
  p = fma(p, f, constant(0x1.ebfbdcp-3f));
  p = fma(p, f, constant(0x1.62e43p-1f));
  p = fma(p, f, constant(1.0f));
  return select(less(x, constant(-125.0f)), Lanes::zero(), add_exponent(p, steps));
}

/// e^x: 0 for x < -86.5, infinity for x > 88.72. Within 2 ulp between.
template <class Lanes>
QUIRE_INLINE Lanes exp(Lanes x) {
  auto constant = [](float c) { return Lanes::broadcast(c); };
  Lanes steps = fma(x, constant(0x1.715476p+0f), constant(kRoundToInteger));
  Lanes n = steps - constant(kRoundToInteger);
  Lanes r = fnma(n, constant(0x1.62e43p-1f), x);  // ln 2 in two parts
  r = fnma(n, constant(-0x1.05c61p-29f), r);
  Lanes p = constant(0x1.6ae72cp-10f);
  p = fma(p, r, constant(0x1.126784p-7f));
  p = fma(p, r, constant(0x1.555822p-5f));
  p = fma(p, r, constant(0x1.55541ap-3f));
  p = fma(p, r, constant(0x1.fffffcp-2f));
  p = fma(p, r, constant(1.0f));
  p = fma(p, r, constant(1.0f));
  Lanes value = select(less(x, constant(-86.5f)), Lanes::zero(), add_exponent(p, steps));
  return select(less(constant(88.72f), x), constant(__builtin_inff()), value);
}

}  // namespace quire::ops
