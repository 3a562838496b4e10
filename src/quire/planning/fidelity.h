#pragma once
// fidelity: how a prediction made from a calibration compares with what the engine did: the cost of each recorded step,
// and what clients saw.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "quire/planning/served_run.h"
#include "quire/sim/calibrated_cost.h"
#include "quire/sim/recorded_run.h"
#include "quire/sim/simulation.h"

namespace quire::planning {

enum class StepKind { any, decodes, prompts };  ///< prompts: computes a part of at least one, beside decodes or alone

/// Of relative differences between the predicted and the recorded time of steps, without sign.
struct StepErrors {
  std::size_t num_steps = 0;
  double median = 0, p95 = 0;
  /// Of the recorded times themselves: the median difference that is left when the predictions of steps with equally
  /// many rows are scaled by what fits these best.
  double scatter = 0;
  double total_ratio = 0;  ///< all predicted time over all recorded time
};
StepErrors step_errors(const CalibratedCost& cost, std::span<const RecordedStep> steps, StepKind kind = StepKind::any);

/// How far two calibrations are apart: the relative difference of the time that they give these steps
/// typically, without sign.
double drift(const CalibratedCost& before, const CalibratedCost& after, std::span<const RecordedStep> steps);

/// One thing that clients see, from a run of the engine or of the simulator.
struct Figure {
  std::string_view name, unit;
  double value = 0;
};
/// p50 and p95 of time to the first token, between tokens, to the end, and output tokens a second; in this order from
/// both.
std::vector<Figure> figures_of(const ServedRun& run);
std::vector<Figure> figures_of(const SimulationResult& run);

/// What the engine would do with these requests, by its own core in virtual time.
Result<SimulationResult> predict(const CoreOptions& options, const CostModel& cost,
                                 const std::vector<RequestSpec>& requests);

/// Requests a second that the engine would end if all of them were there at once.
Result<double> predict_capacity(const CoreOptions& options, const CostModel& cost, std::vector<RequestSpec> requests);

}  // namespace quire::planning
