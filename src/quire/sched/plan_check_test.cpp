#include "quire/sched/plan_check.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

CoreOptions pool_of_8() {
  CoreOptions options;
  options.num_blocks = 8;
  options.context_tokens = 100;
  options.token_budget = 6;
  options.max_rows = 2;
  return options;
}

/// A decode with a proposal, and the first chunk of a prompt.
BatchPlan good_plan() {
  BatchPlan plan;
  PlanRow decode{.sequence = SequenceId{1}, .begin = 16, .num_tokens = 2};
  decode.samples = true;
  decode.num_proposed = 1;
  decode.num_new_blocks = 1;
  PlanRow prefill{.sequence = SequenceId{2}, .num_tokens = 4, .token_offset = 2};
  prefill.is_prefill = true;
  prefill.new_blocks_offset = 1;
  prefill.num_new_blocks = 1;
  plan.rows = {decode, prefill};
  plan.tokens.assign(6, TokenId{0});
  plan.new_blocks = {BlockId{3}, BlockId{8}};
  return plan;
}

/// What is found once `change` has been made to a good plan; empty: nothing.
template <class Change>
std::string found_after(Change change, const CoreOptions& options = pool_of_8()) {
  BatchPlan plan = good_plan();
  change(plan);
  return find_violation(plan, options).value_or("");
}

TEST(PlanCheck, FindsNothingInAPlanThatIsRight) {
  EXPECT_EQ(found_after([](BatchPlan&) {}), "");
  EXPECT_EQ(find_violation(BatchPlan{}, pool_of_8()), std::nullopt);
}

TEST(PlanCheck, I7AStepIsWithinItsBudgetAndItsRows) {
  CoreOptions tight = pool_of_8();
  tight.token_budget = 5;
  EXPECT_EQ(found_after([](BatchPlan&) {}, tight), "I7: a step of 6 tokens, the budget is 5");
  tight = pool_of_8();
  tight.max_rows = 1;
  EXPECT_EQ(found_after([](BatchPlan&) {}, tight), "I7: a step of 2 rows, max_rows is 1");
}

TEST(PlanCheck, I2ANewBlockIsOneOfThePoolsAndNullOnlyWithWindows) {
  EXPECT_EQ(found_after([](BatchPlan& plan) { plan.new_blocks[1] = BlockId{9}; }),
            "I2: block 9 is given out; the pool has 1 to 8");
  const auto null_block = [](BatchPlan& plan) { plan.new_blocks[0] = kNullBlock; };
  EXPECT_EQ(found_after(null_block), "I2: block 0 is given out; the pool has 1 to 8");
  CoreOptions windows = pool_of_8();
  windows.layer_groups = {LayerGroup{}, LayerGroup{.window = 32}};
  const auto null_among_two_groups = [](BatchPlan& plan) {
    plan.rows[1].new_blocks_offset = 2;
    plan.new_blocks = {BlockId{1}, kNullBlock, BlockId{2}, BlockId{3}};
  };
  EXPECT_EQ(found_after(null_among_two_groups, windows), "");
}

TEST(PlanCheck, RowsLieOneAfterAnotherDecodesFirstAndOnlyTheyPropose) {
  EXPECT_EQ(found_after([](BatchPlan& plan) { plan.rows[1].token_offset = 1; }),
            "B2: the tokens of the row of sequence 2 begin at 1, not at 2");
  EXPECT_EQ(found_after([](BatchPlan& plan) { plan.rows[1].new_blocks_offset = 0; }),
            "B2: the new blocks of the row of sequence 2 begin at 0, not at 1");
  EXPECT_EQ(found_after([](BatchPlan& plan) { plan.rows[0].num_tokens = 0; }),
            "B2: the row of sequence 1 begins at 16 and has 0 tokens");
  EXPECT_EQ(found_after([](BatchPlan& plan) { plan.rows.pop_back(); }), "B2: rows have 2 tokens, the plan 6");
  EXPECT_EQ(found_after([](BatchPlan& plan) { plan.rows[0].samples = false; }),
            "B7: the row of sequence 1 has 2 tokens, of them 1 proposals");
  const auto prefill_first = [](BatchPlan& plan) {
    plan.rows[0].is_prefill = true;
    plan.rows[0].num_proposed = 0;
    plan.rows[1].is_prefill = false;
  };
  EXPECT_EQ(found_after(prefill_first), "B5: sequence 2 decodes behind a prefill");
}

}  // namespace
}  // namespace quire
