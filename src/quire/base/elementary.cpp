#include "quire/base/elementary.h"

#include <bit>
#include <cstdint>
#include <limits>

namespace quire {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLog2E = 0x1.71547652b82fep+0;
constexpr double kLn2High = 0x1.62e42fee00000p-1;  // 32 bits, so that n * kLn2High is exact for |n| < 2^21
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kRound = 0x1.8p52;  // x + kRound - kRound is x rounded to nearest even, |x| < 2^51

double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

/// 2^n for -1022 <= n <= 1023.
double power_of_two(std::int64_t n) { return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52); }

/// c[0] + c[1] x + ... by Horner's rule.
template <int N>
double polynomial(const double (&c)[N], double x) {
  double sum = c[N - 1];
  for (int i = N - 2; i >= 0; --i) sum = fma(sum, x, c[i]);
  return sum;
}

// Taylor coefficients, each the nearest double. The ranges are small enough for the first term left out to lie below
// 2^-57 of the result.
constexpr double kExp[] = {
    1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,          1.0 / 5040,         1.0 / 40320,
    1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0, 1.0 / 87178291200.0};
constexpr double kAtanh[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11, 2.0 / 13,
                             2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};
constexpr double kSin[] = {-1.0 / 6,
                           1.0 / 120,
                           -1.0 / 5040,
                           1.0 / 362880,
                           -1.0 / 39916800.0,
                           1.0 / 6227020800.0,
                           -1.0 / 1307674368000.0,
                           1.0 / 355687428096000.0};
constexpr double kCos[] = {1.0 / 24,        -1.0 / 720,           1.0 / 40320,           -1.0 / 3628800,
                           1.0 / 479001600, -1.0 / 87178291200.0, 1.0 / 20922789888000.0};

/// Sine of x + tail for |x| <= pi/4 and a tail below an ulp of x.
double sin_kernel(double x, double tail) {
  double z = x * x;
  double cubic = x * z * polynomial(kSin, z);
  return x + (cubic + fma(-0.5 * z, tail, tail));
}

/// Cosine of x + tail: 1 - z/2 is split so that its rounding error is added back.
double cos_kernel(double x, double tail) {
  double z = x * x;
  double half = 0.5 * z;
  double top = 1.0 - half;
  double lost = (1.0 - top) - half;
  return top + (lost + fma(z * z, polynomial(kCos, z), -x * tail));
}

}  // namespace

double exp_f64(double x) {
  if (!(x < 710.0)) return x >= 710.0 ? kInfinity : kNaN;
  if (x < -746.0) return 0.0;
  double n = (x * kLog2E + kRound) - kRound;
  double high = fma(-n, kLn2High, x);
  double low = n * kLn2Low;
  double r = high - low;
  double r_lost = (high - r) - low;
  double value = 1.0 + (r + (r_lost + r * r * polynomial(kExp, r)));
  // Two steps, since 2^n itself may lie outside the range; only the second can round.
  auto power = static_cast<std::int64_t>(n);
  auto first = power / 2;
  return value * power_of_two(first) * power_of_two(power - first);
}

double log_f64(double x) {
  if (!(x > 0.0)) return x == 0.0 ? -kInfinity : kNaN;
  if (x == kInfinity) return kInfinity;
  std::int64_t exponent = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    exponent = -54;
  }
  // x = m * 2^exponent with m in [sqrt(1/2), sqrt(2)).
  auto bits = std::bit_cast<std::uint64_t>(x);
  constexpr std::uint64_t kSqrtHalf = 0x3FE6A09E667F3BCDull;
  auto above = bits - kSqrtHalf;
  exponent += static_cast<std::int64_t>(above) >> 52;
  double m = std::bit_cast<double>((above & 0x000FFFFFFFFFFFFFull) + kSqrtHalf);
  // log m = 2 atanh(s), s = f / (2 + f), written as f - f^2/2 + s (f^2/2 + rest) to keep the leading term exact.
  double f = m - 1.0;
  double s = f / (2.0 + f);
  double z = s * s;
  double half_square = 0.5 * f * f;
  double rest = z * polynomial(kAtanh, z);
  double n = static_cast<double>(exponent);
  double low = fma(n, kLn2Low, s * (half_square + rest));
  return fma(n, kLn2High, f - (half_square - low));
}

double pow_f64(double x, double y) {
  if (!(x > 0.0)) return x == 0.0 && y > 0.0 ? 0.0 : kNaN;
  return exp_f64(y * log_f64(x));
}

SinCos sin_cos_f64(double x) {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHalfPi[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
  if (!(x <= 0x1p30 && x >= -0x1p30)) return {kNaN, kNaN};
  double n = (x * kTwoOverPi + kRound) - kRound;
  double a = fma(-n, kHalfPi[0], x);  // exact: the leading bits cancel
  double r = fma(-n, kHalfPi[1], a);
  double r_lost = fma(-n, kHalfPi[1], a - r);
  double tail = fma(-n, kHalfPi[2], r_lost);
  double sine = sin_kernel(r, tail), cosine = cos_kernel(r, tail);
  switch (static_cast<std::int64_t>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace quire
