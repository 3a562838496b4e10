#pragma once
// Trial: one simulation of a scenario at a rate: the engine's own core, a cost model, a load. And what the steps' time
// went into, by counts of the core itself and by the cost model's two parts.
//
// Deterministic: the same scenario and rate give the same trial. Scenarios are values that refer to a load; trials of
// several may run at once on several threads.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/result.h"
#include "quire/planning/limits.h"
#include "quire/planning/load.h"
#include "quire/sched/options.h"
#include "quire/sim/simulation.h"

namespace quire::planning {

struct Scenario {
  CoreOptions core;
  std::shared_ptr<const CostModel> cost;
  const Load* load = nullptr;
  std::string arrivals = "poisson";  ///< workload/arrivals.h
  std::vector<Limit> limits;
  std::uint64_t num_requests = 600;
  std::uint64_t seed = 42;
  /// The longest time that a request takes alone. A run has kept up if it ends within twice that after the last
  /// arrival, or within a tenth of the time of arrivals.
  std::uint64_t alone_ns = 0;
};

/// Shares of the time in steps, 0 to 1.
struct StepShares {
  double busy = 0;             ///< of all time: steps
  double short_of_blocks = 0;  ///< a request waited because the pool had no room for it, or one was preempted
  double short_of_rows = 0;    ///< a request waited because as many ran as may
  double full_budget = 0;      ///< the step computed as many tokens as it may, prompts among them
  double prefill = 0;          ///< what prompts cost
  double decode = 0;           ///< what decodes cost
  double waiting = 0;          ///< anybody waited
};

struct Trial {
  double rate = 0;
  bool holds = false;
  std::string broken;  ///< the first limit that does not hold, or that the run did not keep up
  SimulationResult result;
  StepShares shares;
  double preemptions = 0;  ///< a request
  double recomputed = 0;   ///< share of computed tokens that had been computed before
  double cached = 0;       ///< share of looked-up prompt tokens that the prefix cache had
  std::uint64_t last_arrival_ns = 0;
};

enum class Completeness { full, stops_when_broken };

Trial run_trial(const Scenario& scenario, double rate, Completeness completeness);

/// The scenario with one request at a time: what a limit cannot be below. Few requests suffice.
Trial run_alone(const Scenario& scenario);

/// A search for the highest rate at which the limits hold.
struct Knee {
  Trial at;     ///< holds; its rate is 0 and nothing is in it if no rate does
  Trial above;  ///< the lowest rate tried that does not hold; rate 0: none was found
  std::vector<double> tried;
};
Knee find_knee(const Scenario& scenario, double first_rate, double precision);

/// The rate of the knee of a scenario that differs from the one whose knee is known, searched from there on. Two runs
/// suffice if the difference makes none.
double find_knee_again(const Scenario& scenario, const Knee& known, double precision);

/// Requests a second that are finished if there are always more: where a search begins.
double saturated_rate(const Scenario& scenario);

}  // namespace quire::planning
