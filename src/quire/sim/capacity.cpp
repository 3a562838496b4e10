#include "quire/sim/capacity.h"

#include "quire/workload/synthetic.h"

namespace quire {
namespace {

/// How far from first_rate the search goes, as a factor.
constexpr double kWidest = 1000;

}  // namespace

SimulationResult run_at_rate(const CapacitySearch& search, double rate) {
  const auto end_ns = static_cast<std::uint64_t>(search.seconds * 1e9);
  // Enough of them; the time ends the source.
  const auto most = static_cast<std::uint64_t>(2 * rate * search.seconds + 1000);
  SyntheticSource source({.num_requests = most,
                          .end_ns = end_ns,
                          .seed = search.seed,
                          .shared_prefix_tokens = search.shared_prefix_tokens},
                         ArrivalProcess::poisson(rate), *search.lengths);
  const auto system = search.make_system();
  SimulationOptions options{.max_samples = 0};
  if (search.is_good) {
    options.stop_ns = end_ns;
  } else {
    options.hopeless_latency = search.max_latency_s;
    options.expected_requests = static_cast<std::uint64_t>(rate * search.seconds);
  }
  return simulate(*system, *search.cost, source, options);
}

double find_highest_rate(const std::function<bool(double rate)>& is_good, double first_rate, double precision) {
  double low = 0, high = 0;
  for (double rate = first_rate; low == 0 || high == 0;) {
    if (is_good(rate)) {
      low = rate;
      rate *= high == 0 ? 1.5 : 1.0;
    } else {
      high = rate;
      rate /= low == 0 ? 1.5 : 1.0;
    }
    if (low == 0 && rate < first_rate / kWidest) return 0;
    if (high == 0 && rate > first_rate * kWidest) return low;
  }
  while (high / low > 1 + precision) {
    const double rate = 0.5 * (low + high);
    (is_good(rate) ? low : high) = rate;
  }
  return low;
}

double find_capacity(const CapacitySearch& search) {
  const auto is_good = [&](double rate) {
    const SimulationResult result = run_at_rate(search, rate);
    if (search.is_good) return search.is_good(result);
    return !result.was_hopeless && result.normalized_latency_s() <= search.max_latency_s;
  };
  return find_highest_rate(is_good, search.first_rate, search.precision);
}

}  // namespace quire
