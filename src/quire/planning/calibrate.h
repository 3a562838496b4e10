#pragma once
// calibrate: measures what steps cost on this machine with a model. In turn, round after round, it times steps of many
// shapes with the engine's executor: decodes by rows and context, with and without common beginnings, chunks of prompts
// by length and start, both together, with and without logits; then it serves a few requests with a whole engine, for
// what its thread does around a step (outside_cost.h). Of each shape the median counts: it is what steps of a run take
// as often more as less. How much longer they take on average is kept too: how busy the machine was.

#include <functional>
#include <memory>
#include <vector>

#include "quire/planning/calibration_fit.h"
#include "quire/planning/outside_cost.h"
#include "quire/planning/step_timer.h"

namespace quire::planning {

struct MeasuredCost {
  Calibration calibration;
  std::vector<CostPoint> points;  ///< what it was made from
};

/// Measures in slices, between which something else may run: what a shared machine does then hits both alike. One
/// thread.
class Calibrator {
 public:
  using Progress = std::function<void(double fraction)>;

  /// Loads the model. Errors are those of loading, and what StepTimer cannot measure.
  static Result<std::unique_ptr<Calibrator>> open(const engine::EngineOptions& options);

  /// One more slice: each shape that there is room for at least once, in turns until the time is over.
  void measure(double seconds, const Progress& progress = {});
  std::size_t num_slices() const { return num_slices_; }

  /// From the slices [begin, end), of which there is at least one. An error if pool, context or batch limits left no
  /// room for a reasonable range of steps.
  Result<MeasuredCost> fit(std::size_t begin, std::size_t end) const;

 private:
  Calibrator(CalibrationSetting setting, std::unique_ptr<StepTimer> timer, OutsideCost outside);
  struct Sample {
    std::size_t slice;
    double ns;
  };

  CalibrationSetting setting_;
  std::unique_ptr<StepTimer> timer_;
  OutsideCost outside_;
  std::vector<TimedStep> steps_;
  std::vector<std::vector<Sample>> samples_;  ///< of each step
  std::size_t num_slices_ = 0;
  double seconds_ = 0;  ///< measured in all
};

struct CalibrateOptions {
  engine::EngineOptions engine;
  double seconds = 40;            ///< to measure; loading the model twice comes on top
  Calibrator::Progress progress;  ///< may be empty
};

/// A single slice. Errors are those of Calibrator.
Result<MeasuredCost> calibrate(const CalibrateOptions& options);

}  // namespace quire::planning
