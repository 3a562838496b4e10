#include "quire/ops/rope.h"

#include <algorithm>
#include <cmath>

#include "quire/base/check.h"
#include "quire/base/elementary.h"

namespace quire::ops {
namespace {

constexpr double kTwoPi = 6.283185307179586;

/// YaRN (Peng et al., 2023, section 3.2): the dimension pair whose wavelength fits `rotations` times into the original
/// context.
double yarn_pair_of(double rotations, const RopeParams& params) {
  double context = static_cast<double>(params.scaling.original_context);
  return static_cast<double>(params.rotary_dim) * log_f64(context / (rotations * kTwoPi)) / (2 * log_f64(params.base));
}

/// How far each pair is interpolated: 0 keeps its frequency, 1 divides it by the factor.
std::vector<double> yarn_ramp(const RopeParams& params) {
  double low = std::max(0.0, std::floor(yarn_pair_of(params.scaling.beta_fast, params)));
  double high =
      std::min(static_cast<double>(params.rotary_dim - 1), std::ceil(yarn_pair_of(params.scaling.beta_slow, params)));
  double width = std::max(0.001, high - low);
  std::vector<double> ramp(static_cast<std::size_t>(params.rotary_dim / 2));
  for (std::size_t i = 0; i < ramp.size(); ++i) {
    ramp[i] = std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
  }
  return ramp;
}

/// Radians a position, for each pair.
std::vector<double> frequencies(const RopeParams& params) {
  auto half = static_cast<std::size_t>(params.rotary_dim / 2);
  std::vector<double> result(half);
  for (std::size_t i = 0; i < half; ++i) {
    result[i] = pow_f64(params.base, -2.0 * static_cast<double>(i) / static_cast<double>(params.rotary_dim));
    if (!params.frequency_factors.empty()) result[i] /= static_cast<double>(params.frequency_factors[i]);
  }
  const RopeScaling& scaling = params.scaling;
  if (scaling.type == RopeScaling::Type::linear) {
    for (double& frequency : result) frequency /= scaling.factor;
  }
  if (scaling.type == RopeScaling::Type::yarn) {
    auto ramp = yarn_ramp(params);
    for (std::size_t i = 0; i < half; ++i) {
      result[i] = result[i] / scaling.factor * ramp[i] + result[i] * (1 - ramp[i]);
    }
  }
  return result;
}

/// The factor on cosine and sine, which stands for a temperature of the attention.
double magnitude(const RopeScaling& scaling) {
  if (scaling.type != RopeScaling::Type::yarn) return 1.0;
  return scaling.attn_factor * (scaling.factor > 1 ? 0.1 * log_f64(scaling.factor) + 1.0 : 1.0);
}

}  // namespace

RopeTable::RopeTable(const RopeParams& params, std::int64_t num_positions) : half_(params.rotary_dim / 2) {
  QUIRE_CHECK(params.rotary_dim > 0 && params.rotary_dim % 2 == 0, "rotary_dim ", params.rotary_dim);
  QUIRE_CHECK(params.frequency_factors.empty() || static_cast<std::int64_t>(params.frequency_factors.size()) == half_);
  QUIRE_CHECK(params.scaling.type != RopeScaling::Type::yarn || params.scaling.original_context > 0);
  values_.resize(bytes_for(params, num_positions) / sizeof(float));
  auto frequency = frequencies(params);
  double factor = magnitude(params.scaling);

  // Position = coarse + fine; the angle sum by the addition theorem, which costs a few ulps of f64 and saves most of
  // the load time of long tables.
  constexpr std::int64_t kFine = 128;
  for (std::int64_t pair = 0; pair < half_; ++pair) {
    SinCos fine[kFine];
    for (std::int64_t i = 0; i < kFine; ++i) {
      fine[i] = sin_cos_f64(static_cast<double>(i) * frequency[static_cast<std::size_t>(pair)]);
    }
    for (std::int64_t start = 0; start < num_positions; start += kFine) {
      auto coarse = sin_cos_f64(static_cast<double>(start) * frequency[static_cast<std::size_t>(pair)]);
      for (std::int64_t i = 0; i < std::min(kFine, num_positions - start); ++i) {
        float* at = values_.data() + (start + i) * 2 * half_ + pair;
        at[0] = static_cast<float>(factor * (coarse.cos * fine[i].cos - coarse.sin * fine[i].sin));
        at[half_] = static_cast<float>(factor * (coarse.sin * fine[i].cos + coarse.cos * fine[i].sin));
      }
    }
  }
}

}  // namespace quire::ops
