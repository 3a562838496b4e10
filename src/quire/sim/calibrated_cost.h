#pragma once
// CalibratedCost: how long steps take on a machine that was measured (planning/calibrate.h). A step's time is a sum:
//
//     by_tokens(T)            every layer's matrix products over the step's T tokens, and what every step has
//   + by_remainder[T % 8]     beyond 16: matrix kernels take tokens by eights, then by fours, twos and ones
//   + by_logits(L)            output head and sampling of the L positions whose logits are wanted
//   + decode_row, decode_context       of decode rows: each, and each position that they attend to
//   + lone_context            besides, each position of a row that decodes alone: threads share its work less evenly
//   + shared_context, shared_walk      instead, of positions that several rows share: each, and each that is walked
//   once
//   + prefill_row, prefill_square, prefill_read    of chunks of prompts: each, each unit of end^2 - begin^2, and each
//                             position that 32 of its tokens read together
//
// and around it what the engine's thread does besides: planning, detokenizing, delivery; waking up after a pause; and
// what interrupts it all.
// All in nanoseconds, immutable, arithmetic only: equal on every machine.

#include <array>
#include <vector>

#include "quire/sim/cost_model.h"
#include "quire/sim/interruptions.h"

namespace quire {

/// A function of one variable: straight lines between measured points. Before the first one it is the first one's
/// value; beyond the last one its slope goes on.
struct CostCurve {
  struct Point {
    double x = 0, ns = 0;
    friend bool operator==(const Point&, const Point&) = default;
  };
  std::vector<Point> points;  ///< x rises; empty: 0 everywhere

  double at(double x) const;
  friend bool operator==(const CostCurve&, const CostCurve&) = default;
};

struct CalibratedCost final : CostModel {
  static constexpr std::int64_t kTokensAtOnce = 8;
  static constexpr std::int64_t kMostExactTokens = 16;  ///< up to them the curve has a point at every number

  std::string name;
  CostCurve by_tokens;
  std::array<double, kTokensAtOnce> by_remainder{};  ///< [0] is 0
  CostCurve by_logits;
  double decode_row = 0, decode_context = 0, prefill_row = 0, prefill_square = 0, prefill_read = 0;
  double lone_context = 0, shared_context = 0, shared_walk = 0;
  double outside_step = 0, outside_row = 0;  ///< besides the step: each step, and each row that samples
  double wake = 0;
  Interruptions interruptions;

  /// What an executor needs (StepResult::elapsed_ns), without what is besides.
  std::uint64_t execute_ns(const StepShape& shape) const;
  std::uint64_t step_ns(const StepShape& shape) const override;
  std::uint64_t interruption_ns(std::uint64_t number, std::uint64_t ns) const override {
    return interruptions.of_step(number, ns);
  }
  std::uint64_t wake_ns() const override;
  std::string description() const override { return name; }
};

}  // namespace quire
