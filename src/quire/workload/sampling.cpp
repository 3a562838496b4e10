#include "quire/workload/sampling.h"

#include <cmath>

#include "quire/base/elementary.h"

namespace quire {
namespace {

constexpr double kTwoPi = 6.283185307179586476925;

/// Uniform in (0, 1].
double positive_uniform(Rng& rng) { return 1.0 - rng.uniform(); }

}  // namespace

double sample_exponential(Rng& rng, double mean) { return -mean * log_f64(positive_uniform(rng)); }

double sample_normal(Rng& rng) {
  const double radius = std::sqrt(-2.0 * log_f64(positive_uniform(rng)));
  return radius * sin_cos_f64(kTwoPi * rng.uniform()).cos;
}

double sample_lognormal(Rng& rng, double mu, double sigma) { return exp_f64(mu + sigma * sample_normal(rng)); }

double sample_gamma(Rng& rng, double shape, double scale) {
  if (shape < 1.0) {
    const double boost = pow_f64(positive_uniform(rng), 1.0 / shape);
    return sample_gamma(rng, shape + 1.0, scale) * boost;
  }
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = sample_normal(rng);
    const double root = 1.0 + c * x;
    if (root <= 0.0) continue;
    const double v = root * root * root;
    if (log_f64(positive_uniform(rng)) < 0.5 * x * x + d - d * v + d * log_f64(v)) return d * v * scale;
  }
}

double sample_weibull(Rng& rng, double shape, double scale) {
  return scale * pow_f64(-log_f64(positive_uniform(rng)), 1.0 / shape);
}

double gamma_function(double x) {
  constexpr double kLanczos[] = {0.99999999999980993,  676.5203681218851,     -1259.1392167224028,
                                 771.32342877765313,   -176.61502916214059,   12.507343278686905,
                                 -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7};
  const double z = x - 1.0;
  double sum = kLanczos[0];
  for (int i = 1; i < 9; ++i) sum += kLanczos[i] / (z + i);
  const double t = z + 7.5;
  return std::sqrt(kTwoPi) * exp_f64((z + 0.5) * log_f64(t) - t) * sum;
}

double weibull_shape_for_cv(double cv) {
  double low = 0.08, high = 20.0;
  for (int i = 0; i < 60; ++i) {
    const double shape = 0.5 * (low + high);
    const double mean = gamma_function(1.0 + 1.0 / shape);
    const double found = gamma_function(1.0 + 2.0 / shape) / (mean * mean) - 1.0;
    (found > cv * cv ? low : high) = shape;
  }
  return 0.5 * (low + high);
}

}  // namespace quire
