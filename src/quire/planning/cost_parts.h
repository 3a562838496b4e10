#pragma once
// A step's cost in two parts: its decodes by themselves, and what the prompts add to them.

#include <algorithm>
#include <memory>

#include "quire/sim/cost_model.h"

namespace quire::planning {

struct CostParts {
  std::uint64_t decode_ns = 0, prefill_ns = 0;
};
CostParts cost_parts(const CostModel& cost, const StepShape& shape);

/// A cost model whose prompts and decodes cost so many times as much.
std::shared_ptr<const CostModel> scaled_cost(std::shared_ptr<const CostModel> cost, double prefill, double decode);

/// Sums up both parts of the steps that it is asked for. Of one run, on one thread.
class MeteredCost final : public CostModel {
 public:
  explicit MeteredCost(const CostModel& cost) : cost_(cost) {}
  std::uint64_t step_ns(const StepShape& shape) const override;
  std::uint64_t interruption_ns(std::uint64_t number, std::uint64_t ns) const override {
    return cost_.interruption_ns(number, ns);
  }
  std::uint64_t wake_ns() const override { return cost_.wake_ns(); }
  std::string description() const override { return cost_.description(); }
  double prefill_ns() const { return prefill_ns_; }
  double decode_ns() const { return decode_ns_; }

 private:
  const CostModel& cost_;
  mutable double prefill_ns_ = 0, decode_ns_ = 0;
};

}  // namespace quire::planning
