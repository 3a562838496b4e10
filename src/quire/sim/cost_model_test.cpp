#include "quire/sim/cost_model.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

StepShape decodes(std::int64_t rows, std::int64_t context) {
  StepShape shape;
  shape.num_decode_rows = shape.num_decode_tokens = rows;
  shape.decode_context = context;
  return shape;
}

TEST(CostModel, TheFitOfOpt13bIsThePublishedOne) {
  const auto cost = make_cost_model("opt-13b").value();
  EXPECT_NEAR(static_cast<double>(cost->step_ns(decodes(10, 4000))) / 1e6,
              23.475041 + 0.000592934 * 4000 + 0.0607268 * 10, 1e-3);
  EXPECT_NEAR(static_cast<double>(cost->step_ns(decodes(95, 40000))) / 1e6,
              20.206356 + 0.00049077 * 40000 + 0.1200031 * 95, 1e-2);
  StepShape prefill;
  prefill.add_prefill(0, 1000);
  EXPECT_NEAR(static_cast<double>(cost->step_ns(prefill)) / 1e6, 22.0522 + 140.50923 + 8.076585, 1e-3);
}

TEST(CostModel, AStepOfPromptsAndDecodesHasOneConstantPart) {
  const auto cost = make_cost_model("opt-13b").value();
  StepShape prefill, both = decodes(10, 4000);
  prefill.add_prefill(0, 100);
  both.add_prefill(0, 100);
  EXPECT_LT(cost->step_ns(both), cost->step_ns(prefill) + cost->step_ns(decodes(10, 4000)) - 20'000'000);
}

TEST(CostModel, APromptInChunksHasTheSquaresOfTheWhole) {
  StepShape whole, first, second;
  whole.add_prefill(0, 1000);
  first.add_prefill(0, 400);
  second.add_prefill(400, 1000);
  EXPECT_DOUBLE_EQ(first.prefill_squares + second.prefill_squares, whole.prefill_squares);
}

TEST(CostModel, ATableGoesThroughItsPointsAndOnBeyondThem) {
  TableCost cost;
  cost.prefill = {{100, 10}, {200, 30}};
  cost.decode = {{1, 5}, {11, 6}};
  EXPECT_EQ(cost.step_ns(decodes(1, 99)), 5'000'000u);
  EXPECT_EQ(cost.step_ns(decodes(6, 99)), 5'500'000u);
  EXPECT_EQ(cost.step_ns(decodes(21, 99)), 7'000'000u);
  StepShape shape;
  shape.add_prefill(0, 300);
  EXPECT_EQ(cost.step_ns(shape), 50'000'000u);
  StepShape tiny;
  tiny.add_prefill(0, 1);
  EXPECT_EQ(cost.step_ns(tiny), 0u);
}

TEST(CostModel, ARooflineIsTheSlowerOfBytesAndOperations) {
  RooflineCost cost;
  cost.bytes_per_second = 1e9;
  cost.operations_per_second = 1e12;
  cost.weight_bytes = 1e9;
  cost.num_parameters = 1e9;
  EXPECT_EQ(cost.step_ns(decodes(1, 0)), 1'000'000'000u);
  StepShape shape;
  shape.add_prefill(0, 1000);
  EXPECT_EQ(cost.step_ns(shape), 2'000'000'000u);
  EXPECT_EQ(cost.step_ns({}), 0u);
}

TEST(CostModel, AnUnknownNameIsRefusedWithTheKnownOnes) {
  EXPECT_EQ(make_cost_model("gpu").error().message, "found 'gpu', wanted one of opt-13b, yi-34b");
}

}  // namespace
}  // namespace quire
