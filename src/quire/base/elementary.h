#pragma once
// Elementary functions in f64 that give the same bits on every machine: libm picks its variants by CPU, so results
// that must be reproducible (sampling, log-probabilities, RoPE tables, simulated arrivals) come from here. Only
// additions, multiplications, divisions and fused multiply-adds are used, which IEEE 754 defines exactly.
// Thread-safety: pure functions. Accuracy is stated in units in the last place (ulp) of the exact result; NaN gives
// NaN.

namespace quire {

/// e^x, within 1 ulp where the result is normal. Overflow gives infinity, underflow subnormals and 0.
double exp_f64(double x);

/// Natural logarithm, within 1 ulp. 0 gives -infinity, a negative x NaN.
double log_f64(double x);

/// x^y for x > 0, as e^(y log x), within 2 + 2 |y log x| ulp. Anything else but x = 0, y > 0 (which gives 0) is NaN.
double pow_f64(double x, double y);

struct SinCos {
  double sin, cos;
};
/// Sine and cosine, each within 2 ulp, for |x| <= 2^30 (radians); beyond that NaN.
SinCos sin_cos_f64(double x);

}  // namespace quire
