// Proposals under the shadow executor: every request gets what it gets without them, in fewer steps, and nobody pays
// for another one's. Random loads with proposals are in shadow_kv_test.cpp.

#include <gtest/gtest.h>

#include "quire/base/checked.h"
#include "quire/core/shadow_run.h"
#include "quire/core/shadow_run_test.h"
#include "quire/sched/scheduler.h"

namespace quire {
namespace {

CoreOptions make_options(std::int32_t num_blocks, std::int32_t num_speculative_tokens) {
  CoreOptions options;
  options.num_blocks = num_blocks;
  options.block_size = 8;
  options.context_tokens = 1024;
  options.num_speculative_tokens = num_speculative_tokens;
  options.ngram = {1, 4};
  return options;
}

CoreRequest make_request(std::uint64_t id, std::int32_t prompt_tokens, std::int32_t max_tokens,
                         std::int32_t vocabulary) {
  CoreRequest request;
  request.id = RequestId{id};
  request.prompt = make_prompt(request.id, prompt_tokens, vocabulary);
  request.max_tokens = max_tokens;
  return request;
}

std::int32_t num_proposed(const BatchPlan& plan) {
  std::int32_t count = 0;
  for (const PlanRow& row : plan.rows) count += row.num_proposed;
  return count;
}

TEST(Speculation, WhereEveryProposalComesTrueAStepYieldsAllOfThemAndOneMore) {
  ShadowRun run(make_options(64, 4), 1);  // there is only one token
  accept(run, make_request(1, 10, 23, 1));
  run.step();  // the prompt, and the first token
  for (int step = 0; step < 4; ++step) EXPECT_EQ(num_proposed(run.step()), 4);
  EXPECT_EQ(run.answer(RequestId{1}).tokens.size(), 21u);
  EXPECT_EQ(num_proposed(run.step()), 1) << "two more are wanted";
  EXPECT_EQ(run.answer(RequestId{1}).tokens.size(), 23u);
  EXPECT_EQ(run.core().counters().proposed_tokens, 17u);
  EXPECT_EQ(run.core().counters().accepted_tokens, 17u);
  end_well(run);
}

TEST(Speculation, WhatDoesNotComeTrueGivesItsBlocksBackAtOnce) {
  ShadowRun run(make_options(64, 12), 2);
  accept(run, make_request(1, 21, 300, 2));
  std::uint64_t num_rejected = 0;
  while (run.core().has_work()) {
    run.step();
    const auto& counters = run.core().counters();
    num_rejected = counters.proposed_tokens - counters.accepted_tokens;
    // All generated tokens but the last are computed.
    if (!run.core().has_work()) continue;
    const auto num_tokens = static_cast<std::int64_t>(run.answer(RequestId{1}).tokens.size());
    ASSERT_EQ(run.core().kv_capacity().used_blocks(), ceil_div(21 + num_tokens - 1, 8));
  }
  EXPECT_GT(num_rejected, 200u);
  EXPECT_GT(run.core().counters().accepted_tokens, 50u);
  end_well(run);
}

TEST(Speculation, AStepHasNoMoreTokensWithProposalsThanAFewAndRowsShareThem) {
  ShadowRun run(make_options(256, 8), 1);
  for (std::uint64_t id = 1; id <= 3; ++id) accept(run, make_request(id, 4, 100, 1));
  run.step();
  const BatchPlan& plan = run.step();
  EXPECT_EQ(plan.num_tokens(), kMaxTokensWithProposals);
  for (const PlanRow& row : plan.rows) EXPECT_GE(row.num_proposed, 1);
  accept(run, make_request(6, 300, 1, 1));
  EXPECT_EQ(num_proposed(run.step()), 0) << "the step is full of a prompt";
  for (std::uint64_t id = 7; id <= 20; ++id) accept(run, make_request(id, 4, 100, 1));
  run.step();
  EXPECT_EQ(num_proposed(run.step()), 0) << "the step is full of decodes";
  end_well(run);
}

TEST(Speculation, ProposalsLeaveTheBudgetToPrompts) {
  CoreOptions options = make_options(256, 8);
  options.token_budget = 6;
  ShadowRun run(options, 1);
  accept(run, make_request(1, 4, 100, 1));
  run.step();
  EXPECT_EQ(num_proposed(run.step()), 5);
  accept(run, make_request(2, 12, 1, 1));
  for (int step = 0; step < 2; ++step) {
    const BatchPlan& plan = run.step();
    ASSERT_EQ(plan.rows.size(), 2u);
    EXPECT_EQ(plan.rows[0].num_proposed, 0);
    EXPECT_EQ(plan.rows[1].num_tokens, 5);
  }
  const BatchPlan& last = run.step();
  EXPECT_EQ(last.rows[1].num_tokens, 2);
  EXPECT_EQ(last.rows[0].num_proposed, 3) << "what the prompt has left";
  end_well(run);
}

TEST(Speculation, NobodyIsPreemptedForAProposal) {
  CoreOptions options = make_options(8, 8);
  options.watermark_blocks = 0;
  ShadowRun run(options, 1);
  accept(run, make_request(1, 31, 10, 1));
  accept(run, make_request(2, 31, 2, 1));
  run.step();
  const BatchPlan& plan = run.step();  // both are at the end of their fourth block, and there are eight
  ASSERT_EQ(plan.rows.size(), 2u);
  EXPECT_EQ(num_proposed(plan), 0);
  end_well(run);
  EXPECT_EQ(run.core().counters().preemptions, 0u);
  EXPECT_GT(run.core().counters().accepted_tokens, 0u) << "once the other one has ended";
}

TEST(Speculation, AStopTokenIsNeverProposed) {
  CoreRequest request = make_request(1, 40, 200, 3);
  request.stop_tokens = {TokenId{2}};
  request.min_tokens = 100;
  ShadowRun run(make_options(64, 6), 3);
  accept(run, request);
  while (run.core().has_work()) {
    const BatchPlan& plan = run.step();
    for (const PlanRow& row : plan.rows)
      for (std::int32_t i = row.num_tokens - row.num_proposed; i < row.num_tokens; ++i)
        ASSERT_NE(plan.tokens[static_cast<std::size_t>(row.token_offset + i)], TokenId{2});
  }
  EXPECT_GT(run.core().counters().accepted_tokens, 0u);
  end_well(run);
}

TEST(Speculation, BranchesProposeEachForItselfAndBeamsNothing) {
  CoreRequest several = make_request(1, 20, 40, 2), search = make_request(2, 20, 20, 2);
  several.num_branches = 3;
  search.beams.emplace().width = 2;
  ShadowRun run(make_options(64, 4), 2);
  accept(run, several);
  end_well(run);
  const std::uint64_t num_proposals = run.core().counters().proposed_tokens;
  EXPECT_GT(num_proposals, 0u);
  ShadowRun other(make_options(64, 4), 2);
  accept(other, search);
  end_well(other);
  EXPECT_EQ(other.core().counters().proposed_tokens, 0u);
}

TEST(Speculation, FewerStepsGiveTheSameTokens) {
  const auto steps = [](std::int32_t num_speculative_tokens) {
    ShadowRun run(make_options(64, num_speculative_tokens), 2);
    accept(run, make_request(1, 50, 200, 2));
    end_well(run);  // compares with the oracle
    return run.core().counters().steps;
  };
  EXPECT_LT(steps(4), steps(0) * 3 / 4);
}

TEST(Speculation, AResultThatDoesNotAgreeWithTheProposalsIsRefusedByReplay) {
  MemoryLog log;
  CoreOptions options = make_options(64, 2);
  auto core = *EngineCore::create(options, &log);
  ASSERT_FALSE(core->submit(make_request(1, 10, 50, 1)).has_value());
  static_cast<void>(core->plan_step());
  core->commit({.rows = {RowResult{.token = TokenId{0}}}});
  const BatchPlan& plan = core->plan_step();
  ASSERT_EQ(plan.rows.at(0).num_proposed, 2);
  core->commit({.rows = {RowResult{.token = TokenId{0}, .more = {TokenId{7}}}}});
  ASSERT_TRUE(replay(log.bytes()).ok());
  std::vector<std::byte> bytes = log.bytes();
  ASSERT_EQ(bytes[bytes.size() - 4], std::byte{7});
  const std::size_t token = bytes.size() - 4 - 4 - 4 - 1 - 4;  // before it: more, candidates, failed
  ASSERT_EQ(bytes[token], std::byte{0});
  bytes[token] = std::byte{1};
  const auto wrong = replay(bytes);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("row 0"), std::string::npos) << wrong.error().message;
}

TEST(Speculation, OptionsOutOfRangeAreNamed) {
  CoreOptions options = make_options(64, 65);
  EXPECT_NE(check_options(options).error().message.find("num_speculative_tokens is 65"), std::string::npos);
  options = make_options(64, 4);
  options.ngram = {3, 2};
  EXPECT_NE(check_options(options).error().message.find("3 to 2"), std::string::npos);
  options = make_options(64, 4);
  options.kv_manager = "reserved";
  options.context_tokens = 64;
  EXPECT_NE(check_options(options).error().message.find("num_speculative_tokens is 4"), std::string::npos);
}

}  // namespace
}  // namespace quire
