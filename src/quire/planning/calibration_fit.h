#pragma once
// calibration_fit: measured step times to the sum of sim/calibrated_cost.h: the terms that minimise the squares of the
// relative differences, none of them negative but those of remainders. A point that stays far from the others counts
// for less. Arithmetic only: the same points give the same cost.

#include <span>

#include "quire/base/result.h"
#include "quire/planning/calibration.h"

namespace quire::planning {

struct CostPoint {
  StepShape shape;
  double ns = 0;  ///< the median of what was measured
};

struct FittedSteps {
  CalibratedCost cost;  ///< without what is outside of steps
  CalibrationFit fit;   ///< without `seconds`
};

/// An error if the points are too few for the curves, or one of them is not a time.
Result<FittedSteps> fit_steps(std::span<const CostPoint> points);

}  // namespace quire::planning
