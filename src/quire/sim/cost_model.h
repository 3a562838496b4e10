#pragma once
// CostModel: how long a step takes, from its shape alone. Time is in integer nanoseconds. Models are
// immutable; any thread may ask them.
//
//     FittedCost     a + b tokens + c tokens^2 for prefill, a + b context + c rows for decode, as the published fits of
//                    GPU profiles have it
//     TableCost      measured points, straight lines between them
//     RooflineCost   bytes over bandwidth, or operations over their rate, whichever takes longer
//     CalibratedCost what this machine took, measured (sim/calibrated_cost.h)
//
// A step that computes prompts and decodes costs both variable parts and the larger constant part once.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/result.h"
#include "quire/sim/step_shape.h"

namespace quire {

class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual std::uint64_t step_ns(const StepShape& shape) const = 0;
  /// What interrupts the step of that number besides, if it takes so long.
  virtual std::uint64_t interruption_ns(std::uint64_t number, std::uint64_t ns) const {
    return static_cast<void>(number), static_cast<void>(ns), 0;
  }
  /// What the first step after a pause takes besides: waking up.
  virtual std::uint64_t wake_ns() const { return 0; }
  /// What it is, for reports: name, source, units.
  virtual std::string description() const = 0;
};

/// Milliseconds. `large` replaces the decode terms from threshold_rows up.
struct FittedCost final : CostModel {
  struct Terms {
    double constant, per_token, third;  ///< third: per squared token (prefill), per row (decode)
  };
  std::string name;
  Terms prefill, decode, decode_large;
  std::int64_t threshold_rows = 0;

  std::uint64_t step_ns(const StepShape& shape) const override;
  std::string description() const override { return name; }
};

/// Milliseconds at measured points; beyond the last one its slope goes on. Decode depends on rows, and on the context
/// by per_context_ms.
struct TableCost final : CostModel {
  struct Point {
    double x, ms;
  };
  std::string name;
  std::vector<Point> prefill;  ///< by tokens of the step, rising; not empty
  std::vector<Point> decode;   ///< by rows, rising; not empty
  double per_context_ms = 0;

  std::uint64_t step_ns(const StepShape& shape) const override;
  std::string description() const override { return name; }
};

/// One device: weights are read once a step, K and V of the context once a decode row.
struct RooflineCost final : CostModel {
  double bytes_per_second = 0, operations_per_second = 0;
  double weight_bytes = 0;    ///< read in every step
  double num_parameters = 0;  ///< 2 operations a token each
  double kv_bytes_per_token = 0;
  double overhead_ms = 0;  ///< a step

  std::uint64_t step_ns(const StepShape& shape) const override;
  std::string description() const override;
};

/// A model by its name; an error lists the names. "opt-13b": OPT-13B on one A100-80GB under vLLM (DistServe's fit);
/// "yi-34b": Yi-34B on two A100-80GB (Sarathi-Serve's measurements).
Result<std::shared_ptr<const CostModel>> make_cost_model(std::string_view name);

}  // namespace quire
