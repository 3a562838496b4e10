#include "quire/quant/scale_search.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

namespace quire::quant {
namespace {

/// Candidates reach from the plain scale to this many tenths of a code step to either side of it.
constexpr int kReach = 9;
constexpr double kTenth = 0.1;

/// Sums over the values y = x - origin and their codes.
struct Sums {
  double w = 0, y = 0, code = 0, y_code = 0, code_code = 0;

  void add(double weight, double value, double c) {
    w += weight;
    y += weight * value;
    code += weight * c;
    y_code += weight * value * c;
    code_code += weight * c * c;
  }
  /// What writing y as scale * code + offset takes off the sum of weighted squares.
  double gain(double scale, double offset) const {
    return 2 * (scale * y_code + offset * y) - scale * scale * code_code - 2 * scale * offset * code -
           offset * offset * w;
  }
};

struct Offset {
  double scale, offset;
};

/// Least squares for given codes, the offset at most max_offset; nothing if that needs a negative scale.
std::optional<Offset> solve(const Sums& s, double max_offset) {
  constexpr double kNoise = 1e-9;  // far below what codes that are not all equal give
  const double determinant = s.w * s.code_code - s.code * s.code;
  Offset fit{0, max_offset};
  if (determinant > kNoise * s.w * s.code_code) {
    fit = {(s.w * s.y_code - s.code * s.y) / determinant, (s.code_code * s.y - s.code * s.y_code) / determinant};
  }
  // Also for codes that are all equal: then every offset does, and this one is allowed.
  if (fit.offset >= max_offset) fit = {(s.y_code - max_offset * s.code) / s.code_code, max_offset};
  if (!(fit.scale >= 0)) return std::nullopt;
  return fit;
}

}  // namespace

void error_weights(std::span<const float> values, std::span<double> out) {
  double squares = 0;
  for (float value : values) squares += double{value} * double{value};
  const double rms = std::sqrt(squares / static_cast<double>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = rms + std::fabs(double{values[i]});
}

double fit_scale(std::span<const float> values, std::span<const double> weights, int lowest) {
  double extreme = 0;
  for (float value : values) {
    if (std::fabs(double{value}) > std::fabs(extreme)) extreme = double{value};
  }
  if (extreme == 0) return 0;
  double best_gain = -1, best_scale = 0;
  for (int k = -kReach; k <= kReach; ++k) {
    const double inverse = (lowest + k * kTenth) / extreme;
    double x_code = 0, code_code = 0;  // code_code > 0: the extreme value has a code other than 0
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double code = nearest_code(double{values[i]} * inverse, lowest, -lowest - 1);
      x_code += weights[i] * double{values[i]} * code;
      code_code += weights[i] * code * code;
    }
    const double gain = x_code * x_code / code_code;  // at the best scale for these codes, x_code / code_code
    if (gain > best_gain) {
      best_gain = gain;
      best_scale = x_code / code_code;
    }
  }
  return best_scale;
}

AffineFit fit_affine(std::span<const float> values, std::span<const double> weights, int highest, MinimumSign sign) {
  const auto [low_at, high_at] = std::minmax_element(values.begin(), values.end());
  const double low = sign == MinimumSign::any ? double{*low_at} : std::min(double{*low_at}, 0.0);
  const double range = double{*high_at} - low;
  if (!(range > 0)) return {0, low};
  const double max_offset = sign == MinimumSign::any ? range : -low;
  double best_gain = -1;
  AffineFit best{range / highest, low};
  for (int k = -kReach; k <= kReach; ++k) {
    const double inverse = (highest + k * kTenth) / range;
    Sums sums;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double y = double{values[i]} - low;
      sums.add(weights[i], y, nearest_code(y * inverse, 0, highest));
    }
    const auto fit = solve(sums, max_offset);
    if (!fit) continue;
    const double gain = sums.gain(fit->scale, fit->offset);
    if (gain > best_gain) {
      best_gain = gain;
      best = {fit->scale, low + fit->offset};
    }
  }
  return best;
}

}  // namespace quire::quant
