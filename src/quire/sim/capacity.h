#pragma once
// The highest request rate that a system sustains: Poisson arrivals for a given time, and the mean normalised latency
// (end-to-end time over output tokens, the PagedAttention paper's metric) must stay within a limit. Found by doubling
// and bisection; runs that cannot meet the limit any more are cut short.

#include <functional>
#include <memory>

#include "quire/sim/simulation.h"
#include "quire/workload/lengths.h"

namespace quire {

struct CapacitySearch {
  std::function<std::unique_ptr<System>()> make_system;
  const CostModel* cost = nullptr;
  const LengthSampler* lengths = nullptr;
  double seconds = 3600;       ///< of arrivals
  double max_latency_s = 0.3;  ///< a token
  double first_rate = 1;       ///< where the search begins, requests/s
  double precision = 0.02;     ///< relative
  std::uint64_t seed = 1;
  std::int32_t shared_prefix_tokens = 0;
  /// Another limit instead of the latency: true if the run is good. Runs then end with the arrivals and are not cut
  /// short.
  std::function<bool(const SimulationResult&)> is_good;
};

/// One run at a rate, as the search does it.
SimulationResult run_at_rate(const CapacitySearch& search, double rate);

/// The highest rate found good, up to about 1,000 times first_rate; 0 if none down to first_rate / 1,000 is. By
/// doubling and halving, then bisection down to the relative precision; what is good at a rate is taken to be so below
/// it.
double find_highest_rate(const std::function<bool(double rate)>& is_good, double first_rate, double precision);

double find_capacity(const CapacitySearch& search);

}  // namespace quire
