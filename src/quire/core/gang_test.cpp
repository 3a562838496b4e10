// Requests with several branches and beam searches, under the shadow executor's oracle. Named cases, most of them from
// public bug reports of serving engines (the numbers in the comments are ours).

#include <gtest/gtest.h>

#include <algorithm>

#include "quire/core/shadow_run.h"
#include "quire/core/shadow_run_test.h"
#include "quire/sched/scheduler.h"

namespace quire {
namespace {

CoreOptions make_options(std::int32_t num_blocks, std::int32_t block_size, std::int32_t token_budget = 512) {
  CoreOptions options;
  options.num_blocks = num_blocks;
  options.block_size = block_size;
  options.context_tokens = num_blocks * block_size;
  options.token_budget = token_budget;
  return options;
}

CoreRequest make_request(std::uint64_t id, std::int32_t prompt_tokens, std::int32_t max_tokens,
                         std::int32_t num_branches) {
  CoreRequest request;
  request.id = RequestId{id};
  request.prompt = make_prompt(request.id, prompt_tokens);
  request.max_tokens = max_tokens;
  request.num_branches = num_branches;
  return request;
}

CoreRequest make_search(std::uint64_t id, std::int32_t prompt_tokens, std::int32_t max_tokens, BeamParams beams) {
  CoreRequest request = make_request(id, prompt_tokens, max_tokens, 1);
  request.beams = beams;
  return request;
}

// B30: samples of one prompt were separate requests, and the prompt was computed for each.
TEST(Gang, ThePromptIsComputedOnceAndEachBranchHoldsItsOwnTokensOnly) {
  ShadowRun run(make_options(200, 16));
  accept(run, make_request(1, 500, 64, 8));
  std::int32_t most_used = 0;
  std::int64_t num_computed = 0;
  while (run.core().has_work() && !run.problem()) {
    num_computed += run.step().num_tokens();
    most_used = std::max(most_used, run.core().kv_capacity().used_blocks());
  }
  end_well(run);
  EXPECT_EQ(num_computed, 500 + 8 * 63) << "the last token of a branch is not computed";
  // 31 whole blocks of the prompt; 4 + 63 positions behind them in each branch.
  EXPECT_LE(most_used, 31 + 8 * 5);
  EXPECT_EQ(run.core().counters().copied_blocks, 7u) << "all branches but one copy the prompt's unfilled block";
}

TEST(Gang, APromptThatFillsItsBlocksIsSharedWithoutACopy) {
  ShadowRun run(make_options(64, 16));
  accept(run, make_request(1, 64, 10, 4));
  end_well(run);
  EXPECT_EQ(run.core().counters().copied_blocks, 0u);
}

// K05: n answers needed as many free rows at the same moment, and held others up while they waited.
TEST(Gang, K05FourAnswersWaitForRowsWhileThoseThatRunGoOn) {
  CoreOptions options = make_options(64, 16);
  options.max_rows = 4;
  ShadowRun run(options);
  for (std::uint64_t id = 1; id <= 3; ++id) accept(run, make_request(id, 20, 10, 1));
  run.step();
  accept(run, make_request(4, 40, 8, 4));
  while (run.live().size() > 1 && !run.problem()) {
    std::size_t num_running = 0;
    for (RequestId id : run.live()) num_running += id != RequestId{4};
    EXPECT_EQ(run.step().rows.size(), num_running) << "all who run have a row, and nobody else";
  }
  end_well(run);
  EXPECT_EQ(run.answer(RequestId{4}).computed_tokens, 40) << "the prompt is computed once";
  EXPECT_EQ(run.answer(RequestId{4}).branches.size(), 4u);
}

// K03: a long prompt froze all who were being streamed to.
TEST(Gang, K03BesideALongPromptEveryStreamGetsATokenInEveryStep) {
  ShadowRun run(make_options(1200, 16, 256));
  for (std::uint64_t id = 1; id <= 3; ++id) accept(run, make_request(id, 20, 80, 1));
  run.step();
  accept(run, make_request(4, 16'000, 1, 1));
  while (!run.answer(RequestId{4}).finished && !run.problem()) {
    const BatchPlan& plan = run.step();
    EXPECT_LE(plan.num_tokens(), 256);
    EXPECT_EQ(std::count_if(plan.rows.begin(), plan.rows.end(), [](const PlanRow& row) { return row.samples; }),
              run.answer(RequestId{4}).finished ? 4 : 3);
  }
  end_well(run);
}

// B14: many requests with n >= 2 pushed everything out until there was no room for that either.
TEST(Gang, TwoHundredRequestsOfFourBranchesInASmallPoolAllFinish) {
  CoreOptions options = make_options(32, 8, 64);
  options.prefix_cache = true;
  options.kv_ram_frames = 32;
  options.preemption = "swap";
  ShadowRun run(options);
  for (std::uint64_t id = 1; id <= 200; ++id) accept(run, make_request(id, 5 + static_cast<int>(id % 20), 12, 4));
  end_well(run);
  EXPECT_GT(run.core().counters().preemptions, 0u) << "this load is meant to run out of blocks";
  for (const auto& [id, answer] : run.answers())
    for (std::int32_t k = 0; k < 4; ++k) EXPECT_EQ(answer.branches.at(k).finished->reason, FinishReason::length);
}

TEST(Gang, IsPreemptedWholeAndOnce) {
  CoreOptions options = make_options(9, 8);
  options.watermark_blocks = 0;
  ShadowRun run(options);
  accept(run, make_request(1, 12, 20, 2));
  accept(run, make_request(2, 12, 20, 2));
  std::size_t most_dropped = 0;
  std::uint64_t seen = 0;
  while (run.core().has_work() && !run.problem()) {
    const std::size_t num_dropped = run.step().dropped.size();
    if (run.core().counters().preemptions > seen) most_dropped = std::max(most_dropped, num_dropped);
    seen = run.core().counters().preemptions;
  }
  end_well(run);
  EXPECT_GE(seen, 1u);
  EXPECT_EQ(most_dropped, 2u) << "all branches go in one plan";
}

TEST(Gang, AFailedRowEndsItsBranchAndItsSiblingsGoOn) {
  ShadowRun run(make_options(64, 16));
  accept(run, make_request(1, 10, 20, 3));
  run.step();
  run.fail_next_row(RequestId{1}, 1);
  end_well(run);
  const auto& branches = run.answer(RequestId{1}).branches;
  EXPECT_EQ(branches.at(0).finished->reason, FinishReason::length);
  EXPECT_EQ(branches.at(1).finished->reason, FinishReason::failed);
  EXPECT_EQ(branches.at(2).finished->reason, FinishReason::length);
}

TEST(Gang, ABranchStoppedFromOutsideEndsAlone) {
  ShadowRun run(make_options(64, 16));
  accept(run, make_request(1, 10, 20, 2));
  EXPECT_FALSE(run.finish(RequestId{1}, 1)) << "there are no branches before the prompt is computed";
  run.step();
  EXPECT_TRUE(run.finish(RequestId{1}, 0));
  EXPECT_FALSE(run.finish(RequestId{1}, 0));
  EXPECT_FALSE(run.finish(RequestId{1}, 7));
  end_well(run);
  EXPECT_EQ(run.answer(RequestId{1}).branches.at(0).tokens.size(), 1u);
  EXPECT_EQ(run.answer(RequestId{1}).branches.at(1).tokens.size(), 20u);
}

TEST(Gang, ACancelledGangGivesAllItsMemoryBackAtOnce) {
  ShadowRun run(make_options(64, 16));
  accept(run, make_request(1, 40, 20, 4));
  run.step();
  run.step();
  EXPECT_TRUE(run.cancel(RequestId{1}));
  EXPECT_EQ(run.core().kv_capacity().used_blocks(), 0);
  end_well(run);
  EXPECT_EQ(run.answer(RequestId{1}).finished->reason, FinishReason::cancelled);
}

TEST(Gang, MoreBranchesThanAStepHasRowsOrThePoolHasBlocksAreRefusedWithTheNumbers) {
  CoreOptions options = make_options(10, 16);
  options.max_rows = 4;
  ShadowRun run(options);
  EXPECT_EQ(run.submit(make_request(1, 10, 10, 5))->message,
            "the request has 5 branches, but a step has at most 4 rows (max_rows is 4, token_budget 512)");
  EXPECT_EQ(run.submit(make_request(1, 20, 45, 3))->message,
            "the prompt has 20 tokens and max_tokens is 45: 65 tokens are needed by each of 3 branches, 13 blocks in "
            "all, but the whole KV pool holds 160 tokens (10 blocks of 16)");
  EXPECT_EQ(run.submit(make_request(1, 10, 10, 17))->message, "num_branches is 17; 1 to 16 branches are allowed");
  EXPECT_EQ(run.submit(make_search(1, 10, 10, {.width = 3, .num_returned = 4}))->message,
            "num_returned is 4; 1 to the beam width, 3, are allowed");
  EXPECT_EQ(run.submit(make_search(1, 10, 0, {.width = 2}))->message,
            "max_tokens is 0; a beam search needs at least 1");
  accept(run, make_request(1, 20, 28, 3));
  accept(run, make_request(2, 20, 0, 4));
  end_well(run);
}

TEST(Gang, WithoutMaxTokensAllBranchesEndWhereThePoolIsFull) {
  ShadowRun run(make_options(10, 16));
  CoreRequest request = make_request(1, 20, 0, 3);
  request.max_tokens.reset();
  accept(run, request);
  end_well(run);
  for (std::int32_t k = 0; k < 3; ++k)
    EXPECT_EQ(run.answer(RequestId{1}).branches.at(k).tokens.size(), 44u) << "3 blocks behind the shared one";
}

// B32: beam search with a stop string and max_tokens never returned.
TEST(BeamSearchCore, EndsWithinMaxTokensThoughBeamsAreStoppedFromOutside) {
  ShadowRun run(make_options(64, 16));
  accept(run, make_search(1, 2, 10, {.width = 2, .num_returned = 2}));
  int num_steps = 0;
  for (; run.core().has_work() && !run.problem(); ++num_steps) {
    run.step();
    if (num_steps == 3) run.finish(RequestId{1}, 1);
    if (num_steps == 5) run.finish(RequestId{1}, 0);
  }
  end_well(run);
  EXPECT_LE(num_steps, 10);
  EXPECT_LE(run.answer(RequestId{1}).tokens.size(), 10u);
}

TEST(BeamSearchCore, EndsWhenAllItsBeamsAreStopped) {
  ShadowRun run(make_options(64, 16));
  accept(run, make_search(1, 5, 50, {.width = 2, .num_returned = 2}));
  run.step();
  run.step();
  EXPECT_TRUE(run.finish(RequestId{1}, 0));
  EXPECT_TRUE(run.finish(RequestId{1}, 1));
  end_well(run);
  EXPECT_EQ(run.answer(RequestId{1}).branches.at(0).finished->reason, FinishReason::stopped_by_caller);
  EXPECT_EQ(run.answer(RequestId{1}).branches.at(1).tokens.size(), 2u);
}

// B33: a width above 10 was refused.
TEST(BeamSearchCore, SixteenBeamsReturnSixteenHypotheses) {
  ShadowRun run(make_options(256, 16), 200);
  accept(run, make_search(1, 30, 12, {.width = 16, .num_returned = 16}));
  end_well(run);
  EXPECT_EQ(run.answer(RequestId{1}).branches.size(), 16u);
  EXPECT_EQ(run.answer(RequestId{1}).finished->reason, FinishReason::length);
}

// B36: each step copied whole token lists for every candidate, and memory grew with them.
TEST(BeamSearchCore, HoldsTheMemoryOfItsLiveBeamsAndCopiesAtMostABlockForEachOfThem) {
  ShadowRun run(make_options(400, 16), 50);
  accept(run, make_search(1, 100, 200, {.width = 8}));
  std::int32_t most_used = 0;
  std::size_t most_forks = 0, most_copies = 0;
  while (run.core().has_work() && !run.problem()) {
    const BatchPlan& plan = run.step();
    most_used = std::max(most_used, run.core().kv_capacity().used_blocks());
    most_forks = std::max(most_forks, plan.forks.size());
    most_copies = std::max(most_copies, plan.copies.size());
  }
  end_well(run);
  EXPECT_LE(most_used, 6 + 8 * 13) << "dead beams' blocks return at once";
  EXPECT_LE(most_forks, 7u) << "the last child of a beam takes its table over";
  EXPECT_LE(most_copies, 7u);
}

TEST(BeamSearchCore, ResumesAfterAPreemptionWithTheSameBeams) {
  CoreOptions options = make_options(16, 8);
  options.watermark_blocks = 0;
  ShadowRun run(options, 50);
  for (std::uint64_t id = 1; id <= 4; ++id) accept(run, make_search(id, 12, 36, {.width = 3, .num_returned = 3}));
  end_well(run);
  std::int32_t num_preemptions = 0;
  for (const auto& [id, answer] : run.answers()) num_preemptions += answer.num_preemptions;
  EXPECT_GE(num_preemptions, 1) << "this load is meant to preempt searches";
}

}  // namespace
}  // namespace quire
