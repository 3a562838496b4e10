#pragma once
// OutsideCost: what a whole engine takes beside its executor, measured by serving a few requests: around a step
// (planning, detokenizing, delivery), and to wake up when there was nothing to do. Nanoseconds, medians.

#include "quire/base/result.h"
#include "quire/engine/engine.h"

namespace quire::planning {

struct OutsideCost {
  double step = 0;  ///< each step
  double row = 0;   ///< each row of it that samples
  double wake = 0;  ///< from a request's submission to its step, if the engine was idle
};

/// Opens an engine for it; a second or two.
Result<OutsideCost> measure_outside(engine::EngineOptions options);

}  // namespace quire::planning
