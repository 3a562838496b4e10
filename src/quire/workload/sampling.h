#pragma once
// Random variates with the same bits on every machine: from base/rng and base/elementary, which use no libm.
// Thread-safety: as that of the Rng.

#include "quire/base/rng.h"

namespace quire {

/// Exponential with the given mean, by inversion.
double sample_exponential(Rng& rng, double mean);

/// Standard normal, by Box and Muller; takes two numbers, returns one.
double sample_normal(Rng& rng);

/// e^(mu + sigma N(0, 1)).
double sample_lognormal(Rng& rng, double mu, double sigma);

/// Gamma with the given shape > 0 and scale, by Marsaglia and Tsang (2000); a shape under 1 by the boost U^(1/shape).
double sample_gamma(Rng& rng, double shape, double scale);

/// Weibull with the given shape > 0 and scale, by inversion.
double sample_weibull(Rng& rng, double shape, double scale);

/// Gamma(x) for x > 0, by Lanczos' sum (g = 7, nine terms), within 1e-13 relative for x <= 100.
double gamma_function(double x);

/// The Weibull shape whose coefficient of variation is cv (0.1 to 30), by bisection to 1e-12.
double weibull_shape_for_cv(double cv);

}  // namespace quire
