#include "quire/planning/cost_parts.h"

#include <utility>

#include "quire/base/cat.h"

namespace quire::planning {
namespace {

class ScaledCost final : public CostModel {
 public:
  ScaledCost(std::shared_ptr<const CostModel> cost, double prefill, double decode)
      : cost_(std::move(cost)), prefill_(prefill), decode_(decode) {}

  std::uint64_t step_ns(const StepShape& shape) const override {
    const CostParts parts = cost_parts(*cost_, shape);
    return static_cast<std::uint64_t>(static_cast<double>(parts.decode_ns) * decode_ +
                                      static_cast<double>(parts.prefill_ns) * prefill_ + 0.5);
  }
  std::uint64_t interruption_ns(std::uint64_t number, std::uint64_t ns) const override {
    return cost_->interruption_ns(number, ns);
  }
  std::uint64_t wake_ns() const override { return cost_->wake_ns(); }
  std::string description() const override {
    return cat(cost_->description(), ", prompts x ", prefill_, ", decodes x ", decode_);
  }

 private:
  const std::shared_ptr<const CostModel> cost_;
  const double prefill_, decode_;
};

}  // namespace

CostParts cost_parts(const CostModel& cost, const StepShape& shape) {
  const std::uint64_t whole = cost.step_ns(shape);
  if (shape.num_decode_rows == 0) return {0, whole};
  if (shape.num_prefill_rows == 0) return {whole, 0};
  StepShape decodes;
  decodes.num_decode_rows = shape.num_decode_rows;
  decodes.num_decode_tokens = shape.num_decode_tokens;
  decodes.decode_context = shape.decode_context;
  decodes.shared = shape.shared;
  decodes.num_logit_rows = std::min(shape.num_logit_rows, shape.num_decode_tokens);
  const std::uint64_t decode = std::min(whole, cost.step_ns(decodes));
  return {decode, whole - decode};
}

std::shared_ptr<const CostModel> scaled_cost(std::shared_ptr<const CostModel> cost, double prefill, double decode) {
  return std::make_shared<ScaledCost>(std::move(cost), prefill, decode);
}

std::uint64_t MeteredCost::step_ns(const StepShape& shape) const {
  const CostParts parts = cost_parts(cost_, shape);
  prefill_ns_ += static_cast<double>(parts.prefill_ns);
  decode_ns_ += static_cast<double>(parts.decode_ns);
  return parts.prefill_ns + parts.decode_ns;
}

}  // namespace quire::planning
