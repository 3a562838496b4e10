#include "quire/planning/cost_parts.h"

#include <gtest/gtest.h>

namespace quire::planning {
namespace {

FittedCost fitted() {
  FittedCost cost;
  cost.name = "test";
  cost.prefill = {1, 0.5, 0};
  cost.decode = {4, 0, 0.25};
  return cost;
}

StepShape mixed() {
  StepShape shape;
  shape.add_prefill(0, 10);
  shape.add_decode(100);
  shape.add_decode(200);
  return shape;
}

TEST(CostParts, ADecodeComesFirstAndPromptsPayTheRest) {
  const CostParts parts = cost_parts(fitted(), mixed());
  EXPECT_EQ(parts.decode_ns, 4'500'000u);
  EXPECT_EQ(parts.prefill_ns, 5'000'000u);
  StepShape prompt;
  prompt.add_prefill(0, 10);
  EXPECT_EQ(cost_parts(fitted(), prompt).prefill_ns, 6'000'000u);
  EXPECT_EQ(cost_parts(fitted(), prompt).decode_ns, 0u);
}

TEST(CostParts, ScalingChangesOnePart) {
  const auto cost = std::make_shared<FittedCost>(fitted());
  EXPECT_EQ(scaled_cost(cost, 1, 1)->step_ns(mixed()), cost->step_ns(mixed()));
  EXPECT_EQ(scaled_cost(cost, 0.5, 1)->step_ns(mixed()), 7'000'000u);
  EXPECT_EQ(scaled_cost(cost, 1, 2)->step_ns(mixed()), 14'000'000u);
}

TEST(CostParts, AMeterAddsUpBoth) {
  const FittedCost cost = fitted();
  const MeteredCost meter(cost);
  EXPECT_EQ(meter.step_ns(mixed()), cost.step_ns(mixed()));
  EXPECT_EQ(meter.step_ns(mixed()), cost.step_ns(mixed()));
  EXPECT_EQ(meter.decode_ns(), 9e6);
  EXPECT_EQ(meter.prefill_ns(), 10e6);
}

}  // namespace
}  // namespace quire::planning
