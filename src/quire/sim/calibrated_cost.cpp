#include "quire/sim/calibrated_cost.h"

#include <algorithm>

namespace quire {
namespace {

constexpr double kMostNs = 1e18;

std::uint64_t rounded(double ns) { return static_cast<std::uint64_t>(std::clamp(ns, 0.0, kMostNs) + 0.5); }

double remainder_ns(const CalibratedCost& cost, std::int64_t tokens) {
  if (tokens <= CalibratedCost::kMostExactTokens) return 0;
  return cost.by_remainder[static_cast<std::size_t>(tokens % CalibratedCost::kTokensAtOnce)];
}

double execute(const CalibratedCost& cost, const StepShape& shape) {
  if (shape.empty()) return 0;
  const std::int64_t tokens = shape.num_tokens();
  return cost.by_tokens.at(static_cast<double>(tokens)) + remainder_ns(cost, tokens) +
         cost.by_logits.at(static_cast<double>(shape.num_logit_rows)) +
         cost.decode_row * static_cast<double>(shape.num_decode_rows) +
         cost.decode_context * static_cast<double>(shape.decode_context - shape.shared.positions) +
         (shape.is_lone_decode() ? cost.lone_context * static_cast<double>(shape.decode_context) : 0.0) +
         cost.shared_context * static_cast<double>(shape.shared.positions) +
         cost.shared_walk * static_cast<double>(shape.shared.walked) +
         cost.prefill_row * static_cast<double>(shape.num_prefill_rows) + cost.prefill_square * shape.prefill_squares +
         cost.prefill_read * static_cast<double>(shape.prefill_reads);
}

}  // namespace

double CostCurve::at(double x) const {
  if (points.empty()) return 0;
  if (points.size() == 1 || x <= points.front().x) return points.front().ns;
  std::size_t i = 1;
  while (i + 1 < points.size() && points[i].x < x) ++i;
  const Point &a = points[i - 1], &b = points[i];
  return a.ns + (b.ns - a.ns) * (x - a.x) / (b.x - a.x);
}

std::uint64_t CalibratedCost::execute_ns(const StepShape& shape) const { return rounded(execute(*this, shape)); }

std::uint64_t CalibratedCost::step_ns(const StepShape& shape) const {
  return rounded(execute(*this, shape) + outside_step + outside_row * static_cast<double>(shape.num_logit_rows));
}

std::uint64_t CalibratedCost::wake_ns() const { return rounded(wake); }

}  // namespace quire
