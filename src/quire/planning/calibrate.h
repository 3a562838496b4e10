#pragma once
// calibrate: measures what steps cost on this machine with a model. In turn, round after round, it times steps of many
// shapes with the engine's executor: decodes by rows and context, chunks of prompts by length and start, both together,
// with and without logits; then it serves a few requests with a whole engine, for what its thread does around a step.
// Of each shape the lower quartile counts: other processes only ever make a step longer.

#include <functional>
#include <vector>

#include "quire/planning/calibration_fit.h"

namespace quire::planning {

struct CalibrateOptions {
  engine::EngineOptions engine;
  double seconds = 40;                   ///< to measure; loading the model twice comes on top
  std::function<void(double)> progress;  ///< the fraction done; may be empty
};

struct MeasuredCost {
  Calibration calibration;
  std::vector<CostPoint> points;  ///< what it was made from
};

/// Errors are those of loading, and a pool, context or batch limits without room for a reasonable range of steps.
Result<MeasuredCost> calibrate(const CalibrateOptions& options);

}  // namespace quire::planning
