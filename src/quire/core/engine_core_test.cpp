// Named cases, most of them from public bug reports of serving engines (the numbers in the comments are ours).

#include "quire/core/engine_core.h"

#include <gtest/gtest.h>

#include "quire/base/rng.h"
#include "quire/core/shadow_run.h"
#include "quire/core/shadow_run_test.h"
#include "quire/sched/scheduler.h"

namespace quire {
namespace {

CoreOptions make_options(std::int32_t num_blocks, std::int32_t block_size, std::int32_t context_tokens,
                         std::int32_t token_budget = 512) {
  CoreOptions options;
  options.num_blocks = num_blocks;
  options.block_size = block_size;
  options.context_tokens = context_tokens;
  options.token_budget = token_budget;
  return options;
}

CoreRequest make_request(std::uint64_t id, std::int32_t prompt_tokens, std::optional<std::int32_t> max_tokens) {
  CoreRequest request;
  request.id = RequestId{id};
  request.prompt = make_prompt(request.id, prompt_tokens);
  request.max_tokens = max_tokens;
  return request;
}

FinishReason reason_of(const ShadowRun& run, std::uint64_t id) { return run.answer(RequestId{id}).finished->reason; }

TEST(EngineCore, WrongOptionsAreAnErrorThatNamesThem) {
  const auto core = EngineCore::create(make_options(4, 10, 64));
  ASSERT_FALSE(core.ok());
  EXPECT_EQ(core.error().message, "option block_size is 10; it must be 8, 16, 32, 64 or 128");
}

TEST(EngineCore, WithoutWorkAPlanIsEmpty) {
  ShadowRun run(make_options(4, 8, 64));
  EXPECT_FALSE(run.core().has_work());
  EXPECT_TRUE(run.step().rows.empty());
  end_well(run);
}

// B07: a prompt within the context and bigger than the pool waited for ever and held up those behind it.
TEST(EngineCore, APromptLargerThanThePoolIsRefusedAtOnceWithTheNumbers) {
  ShadowRun run(make_options(64, 16, 4096));
  const auto refusal = run.submit(make_request(1, 1500, std::nullopt));
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, Refusal::Reason::exceeds_pool);
  EXPECT_EQ(refusal->prompt_tokens, 1500);
  EXPECT_EQ(refusal->needed_tokens, 1501);
  EXPECT_EQ(refusal->limit_tokens, 1024);
  EXPECT_NE(refusal->message.find("1500"), std::string::npos);
  EXPECT_NE(refusal->message.find("1024"), std::string::npos);
  accept(run, make_request(2, 10, 5));
  end_well(run);
  EXPECT_EQ(reason_of(run, 2), FinishReason::length);
}

// B09: an empty cache, nothing running, requests waiting.
TEST(EngineCore, NothingWaitsWhileNothingRuns) {
  ShadowRun run(make_options(8, 8, 64));
  Rng rng(9);
  for (std::uint64_t id = 1; id <= 400; ++id) {
    static_cast<void>(run.submit(make_request(id, static_cast<std::int32_t>(rng.between(1, 63)),
                                              static_cast<std::int32_t>(rng.between(0, 20)))));
    if (rng.chance(0.3)) run.cancel(RequestId{static_cast<std::uint64_t>(rng.between(1, static_cast<int>(id)))});
    if (!run.core().has_work()) continue;
    EXPECT_FALSE(run.step().rows.empty()) << "somebody waits, and nothing runs";
  }
  end_well(run);
}

// B10: a preempted long prompt came back as soon as one chunk fitted and was thrown out in the next step.
TEST(EngineCore, ALongPromptBesideALargeDecodeIsHardlyEverPreempted) {
  ShadowRun run(make_options(64, 16, 1024, 64));
  accept(run, make_request(1, 614, 300));  // holds 60 % of the pool and grows
  while (run.answer(RequestId{1}).tokens.empty()) run.step();
  accept(run, make_request(2, 600, 20));
  end_well(run);
  EXPECT_LE(run.core().counters().preemptions, 1u);
}

// B16: one very long prompt took the whole budget until its prefill was done.
TEST(EngineCore, ShortPromptsBehindALongOneStartWithinAFewSteps) {
  ShadowRun run(make_options(512, 16, 4096, 256));
  accept(run, make_request(1, 3500, 4));
  run.step();
  for (std::uint64_t id = 2; id <= 11; ++id) accept(run, make_request(id, 10, 4));
  end_well(run);
  for (std::uint64_t id = 2; id <= 11; ++id) {
    const auto& answer = run.answer(RequestId{id});
    EXPECT_LE(answer.first_token_step - answer.submitted_at_step, 2u) << "request " << id;
  }
  // The long one keeps at least half of the budget.
  EXPECT_LE(run.answer(RequestId{1}).first_token_step, 2u * 3500 / 256 + 1);
}

// K01: a pool smaller than the sum of what requests may need failed every running one at the first overflow.
TEST(EngineCore, FourRequestsThatTogetherOutgrowThePoolAllFinish) {
  ShadowRun run(make_options(64, 16, 1024));
  for (std::uint64_t id = 1; id <= 4; ++id) accept(run, make_request(id, 100, 400));
  end_well(run);
  for (std::uint64_t id = 1; id <= 4; ++id) {
    EXPECT_EQ(reason_of(run, id), FinishReason::length);
    EXPECT_EQ(run.answer(RequestId{id}).tokens.size(), 400u);
  }
  EXPECT_GT(run.core().counters().preemptions, 0u);
  EXPECT_EQ(run.answer(RequestId{1}).num_preemptions, 0) << "the first come is not disturbed";
}

// K07: one request that outgrows the whole pool raised an exception.
TEST(EngineCore, ARequestThatWouldOutgrowThePoolIsRefusedOrEndsWithLength) {
  ShadowRun run(make_options(32, 16, 4096));
  EXPECT_TRUE(run.submit(make_request(1, 500, 200)).has_value());
  accept(run, make_request(2, 500, std::nullopt));
  end_well(run);
  EXPECT_EQ(reason_of(run, 2), FinishReason::length);
  EXPECT_EQ(run.answer(RequestId{2}).tokens.size(), 12u) << "the pool holds 512";
}

// K10: cancelling a queued request ended somebody else's decode.
TEST(EngineCore, CancellingAQueuedRequestLeavesTheRunningOneAlone) {
  CoreOptions options = make_options(64, 16, 1024);
  options.max_rows = 1;
  ShadowRun run(options);
  accept(run, make_request(1, 20, 50));
  accept(run, make_request(2, 20, 50));
  run.step();
  EXPECT_EQ(run.core().num_waiting(), 1);
  EXPECT_TRUE(run.cancel(RequestId{2}));
  EXPECT_FALSE(run.cancel(RequestId{2}));
  end_well(run);
  EXPECT_EQ(reason_of(run, 1), FinishReason::length);
  EXPECT_EQ(run.answer(RequestId{1}).tokens.size(), 50u);
  EXPECT_EQ(reason_of(run, 2), FinishReason::cancelled);
}

// A03: generating past the window aborted the process.
TEST(EngineCore, TheEndOfTheContextIsLength) {
  ShadowRun run(make_options(64, 16, 100));
  accept(run, make_request(1, 30, std::nullopt));
  end_well(run);
  EXPECT_EQ(reason_of(run, 1), FinishReason::length);
  EXPECT_EQ(run.answer(RequestId{1}).tokens.size(), 70u);
}

// B60: prompts about as long as the context.
TEST(EngineCore, APromptMustLeaveRoomForOneToken) {
  ShadowRun run(make_options(64, 16, 100));
  accept(run, make_request(1, 99, std::nullopt));
  accept(run, make_request(2, 99, 1));
  for (std::int32_t prompt_tokens : {100, 101}) {
    const auto refusal = run.submit(make_request(3, prompt_tokens, std::nullopt));
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->reason, Refusal::Reason::exceeds_context);
    EXPECT_NE(refusal->message.find(std::to_string(prompt_tokens)), std::string::npos);
    EXPECT_NE(refusal->message.find("100"), std::string::npos);
  }
  EXPECT_TRUE(run.submit(make_request(4, 99, 2)).has_value());
  accept(run, make_request(5, 100, 0));
  end_well(run);
  EXPECT_EQ(run.answer(RequestId{1}).tokens.size(), 1u);
  EXPECT_EQ(run.answer(RequestId{5}).tokens.size(), 0u);
}

TEST(EngineCore, RequestsThatMakeNoSenseAreRefusedByField) {
  ShadowRun run(make_options(64, 16, 100));
  const auto message = [&](const CoreRequest& request) {
    const auto refusal = run.submit(request);
    return refusal ? refusal->message : std::string("accepted");
  };
  EXPECT_EQ(message(make_request(1, 0, 1)), "the prompt is empty; at least one token is needed");
  EXPECT_EQ(message(make_request(1, 5, -1)), "max_tokens is -1; at least 0 is needed");
  CoreRequest request = make_request(1, 5, 1);
  request.prompt[3] = TokenId{-7};
  EXPECT_EQ(message(request), "prompt token 3 is -7; token ids start at 0");
  request = make_request(1, 5, 1);
  request.min_tokens = -1;
  EXPECT_EQ(message(request), "min_tokens is -1; at least 0 is needed");
  request = make_request(1, 5, 1);
  request.logits_from = 5;
  EXPECT_EQ(message(request), "logits_from is 5; the prompt has positions 0 to 4");
  accept(run, make_request(1, 5, 1));
  EXPECT_EQ(message(make_request(1, 5, 1)), "a request with id 1 is being served");
  EXPECT_EQ(
      message(make_request(2, 5, 2'147'483'647)),
      "the prompt has 5 tokens and max_tokens is 2147483647: 2147483652 tokens are needed, but the context is 100 "
      "tokens");
  end_well(run);
  EXPECT_EQ(run.core().counters().refused, 7u);
}

/// The request with the token that it samples as number `index` among its stop tokens.
CoreRequest stopping_at(CoreRequest request, std::size_t index, const CoreOptions& options) {
  request.stop_tokens = {oracle_answer(request, options, 1000).tokens.at(index)};
  return request;
}

TEST(EngineCore, AStopTokenIsTheReasonAndNotOutput) {
  const CoreOptions options = make_options(64, 16, 1024);
  ShadowRun run(options);
  const CoreRequest request = stopping_at(make_request(1, 10, 50), 4, options);
  accept(run, request);
  end_well(run);
  EXPECT_EQ(reason_of(run, 1), FinishReason::stop_token);
  EXPECT_EQ(run.answer(RequestId{1}).branches.at(0).finished->stop_token, request.stop_tokens[0]);
  EXPECT_LE(run.answer(RequestId{1}).tokens.size(), 4u);
}

TEST(EngineCore, BeforeMinTokensAStopTokenIsOutput) {
  const CoreOptions options = make_options(64, 16, 1024);
  ShadowRun run(options);
  CoreRequest request = stopping_at(make_request(1, 10, 20), 4, options);
  request.min_tokens = 20;
  accept(run, request);
  end_well(run);
  EXPECT_EQ(reason_of(run, 1), FinishReason::length);
  EXPECT_EQ(run.answer(RequestId{1}).tokens.size(), 20u);
}

TEST(EngineCore, ARequestFinishedFromOutsideEndsWithThatReason) {
  ShadowRun run(make_options(64, 16, 1024));
  accept(run, make_request(1, 10, 50));
  accept(run, make_request(2, 10, 50));
  run.step();
  run.step();
  EXPECT_TRUE(run.finish(RequestId{1}));
  EXPECT_FALSE(run.finish(RequestId{1}));
  end_well(run);
  EXPECT_EQ(reason_of(run, 1), FinishReason::stopped_by_caller);
  EXPECT_EQ(run.answer(RequestId{1}).finished->num_tokens, 2);
  EXPECT_EQ(reason_of(run, 2), FinishReason::length);
}

TEST(EngineCore, AFailedRowEndsItsRequestAndNobodyElse) {
  ShadowRun run(make_options(64, 16, 1024));
  for (std::uint64_t id = 1; id <= 3; ++id) accept(run, make_request(id, 10, 20));
  run.step();
  run.fail_next_row(RequestId{2});
  end_well(run);
  EXPECT_EQ(reason_of(run, 1), FinishReason::length);
  EXPECT_EQ(reason_of(run, 2), FinishReason::failed);
  EXPECT_EQ(reason_of(run, 3), FinishReason::length);
}

TEST(EngineCore, APreemptedRequestKeepsItsTokensAndIsExemptAfterThreeTimes) {
  CoreOptions options = make_options(8, 8, 64);
  options.watermark_blocks = 0;
  ShadowRun run(options);
  // Many requests that all want the pool: the later ones are thrown out again and again, up to the bound.
  for (std::uint64_t id = 1; id <= 12; ++id) accept(run, make_request(id, 7, 40));
  end_well(run);
  std::int32_t most = 0;
  for (const auto& [id, answer] : run.answers()) {
    EXPECT_EQ(answer.tokens.size(), 40u);
    most = std::max(most, answer.num_preemptions);
  }
  EXPECT_EQ(most, kMaxPreemptions) << "this load is meant to reach the bound";
}

TEST(EngineCore, SixtyFourRequestsThroughAPoolForTwentyAllFinish) {
  ShadowRun run(make_options(20 * 4, 16, 64));
  for (std::uint64_t id = 1; id <= 64; ++id) accept(run, make_request(id, 24, 40));
  end_well(run);
  for (std::uint64_t id = 1; id <= 64; ++id) EXPECT_EQ(reason_of(run, id), FinishReason::length);
}

TEST(EngineCore, MoreRequestsThanTheBudgetHasTokensStillAllAdvance) {
  CoreOptions options = make_options(64, 8, 64, 3);
  options.max_rows = 100;
  ShadowRun run(options);
  for (std::uint64_t id = 1; id <= 10; ++id) accept(run, make_request(id, 5, 6));
  while (run.core().has_work() && !run.problem()) {
    run.step();
    EXPECT_LE(run.core().num_running(), 3);
  }
  end_well(run);
}

TEST(EngineCore, TheNumberOfGeneratedTokensIsKnownWhileARequestLives) {
  ShadowRun run(make_options(64, 16, 1024));
  accept(run, make_request(1, 10, 3));
  EXPECT_EQ(run.core().num_generated(RequestId{1}), 0);
  run.step();
  run.step();
  EXPECT_EQ(run.core().num_generated(RequestId{1}), 2);
  end_well(run);
  EXPECT_EQ(run.core().num_generated(RequestId{1}), std::nullopt);
}

// Tokens must not depend on how a request was batched, chunked or paged: the same requests under very different
// settings.
TEST(EngineCore, TokensAreTheSameUnderAnyBlockSizeBudgetAndPool) {
  std::vector<std::vector<TokenId>> first;
  for (std::int32_t block_size : {8, 16, 32, 64, 128}) {
    for (std::int32_t budget : {1, 7, 64, 512}) {
      ShadowRun run(make_options(384 / block_size, block_size, 128, budget));
      for (std::uint64_t id = 1; id <= 8; ++id) accept(run, make_request(id, static_cast<std::int32_t>(11 * id), 30));
      end_well(run);
      std::vector<std::vector<TokenId>> tokens;
      for (const auto& [id, answer] : run.answers()) tokens.push_back(answer.tokens);
      if (first.empty()) first = tokens;
      EXPECT_EQ(tokens, first) << "block size " << block_size << ", budget " << budget;
    }
  }
}

}  // namespace
}  // namespace quire
