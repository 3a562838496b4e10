#pragma once
// The scale, and the minimum, with which a few values are best written as small integers.
//
// For each of some candidate scales around the plain one (extreme value / extreme code) the values are rounded to
// codes; for these codes the scale and the minimum of least weighted squared error follow in closed form; the best
// candidate wins. So the result is never worse than rounding with the plain scale. Weights are |x| plus the root mean
// square: large values matter more, since they meet large activations more often than their number says.
//
// All arithmetic is in double, in a fixed order: the same bits on every machine. Values are finite.

#include <span>

namespace quire::quant {

/// Weights of the squared errors, written to `out` [values.size()]; all zero if all values are.
void error_weights(std::span<const float> values, std::span<double> out);

/// x is about scale * code with code in [lowest, -lowest - 1], lowest < 0. The scale's sign is opposite to that of the
/// value of largest magnitude, so that this one gets the lowest code. 0 if all values are 0.
double fit_scale(std::span<const float> values, std::span<const double> weights, int lowest);

struct AffineFit {
  double scale = 0, minimum = 0;
};

enum class MinimumSign {
  any,
  not_positive,  ///< formats that store a minimum as an unsigned number to subtract
};

/// x is about scale * code + minimum with code in [0, highest] and scale >= 0.
AffineFit fit_affine(std::span<const float> values, std::span<const double> weights, int highest, MinimumSign sign);

/// The integer nearest to x (ties to even), held to [low, high].
inline int nearest_code(double x, int low, int high) {
  constexpr double kShift = 0x1.8p52;  // leaves a last place of 1: the addition rounds
  const double bounded = x < low ? low : x > high ? high : x;
  return static_cast<int>(bounded + kShift - kShift);
}

}  // namespace quire::quant
