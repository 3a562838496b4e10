#include "quire/sim/recorded_run.h"

#include <gtest/gtest.h>

#include <cstring>

#include "quire/core/engine_core.h"

namespace quire {
namespace {

CoreOptions small_options() {
  CoreOptions options;
  options.block_size = 8;
  options.num_blocks = 12;
  options.context_tokens = 96;
  options.token_budget = 32;
  options.prefix_cache = true;
  return options;
}

CoreRequest request(std::uint64_t id, std::int32_t prompt_tokens, std::int32_t max_tokens) {
  CoreRequest request;
  request.id = RequestId{id};
  for (std::int32_t i = 0; i < prompt_tokens; ++i) request.prompt.push_back(TokenId{i % 5});
  request.max_tokens = max_tokens;
  return request;
}

/// The log of a core that runs out of blocks, refuses a request and is told to cancel one.
std::vector<std::byte> record_run(std::uint64_t* num_preemptions = nullptr) {
  MemoryLog log;
  const auto core = EngineCore::create(small_options(), &log).value();
  for (std::uint64_t id = 1; id <= 5; ++id) EXPECT_FALSE(core->submit(request(id, 20, 24)));
  EXPECT_TRUE(core->submit(request(6, 200, 24)));  // longer than the context: refused
  EXPECT_FALSE(core->submit(request(7, 9, 30)));
  for (std::int32_t step = 1; core->has_work(); ++step) {
    if (step == 4) core->cancel(RequestId{5});
    const BatchPlan& plan = core->plan_step();
    StepResult result;
    result.elapsed_ns = 1000 + static_cast<std::uint64_t>(step);
    for (const PlanRow& row : plan.rows) result.rows.push_back({TokenId{(row.end() * 7 + step) % 11}});
    core->commit(result);
  }
  if (num_preemptions) *num_preemptions = core->counters().preemptions;
  return log.bytes();
}

TEST(RecordedRun, TheSimulatorDecidesAsTheRecordedCoreDid) {
  std::uint64_t num_preemptions = 0;
  const std::vector<std::byte> log = record_run(&num_preemptions);
  const auto replayed = replay(log);
  ASSERT_TRUE(replayed.ok());
  const auto run = replay_in_simulator(log);
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_FALSE(run->difference);
  ASSERT_EQ(run->steps.size(), replayed->plan_digests.size());
  EXPECT_GT(num_preemptions, 0u);
  EXPECT_EQ(run->num_preemptions, num_preemptions);
  EXPECT_GT(run->cached_tokens, 0u);
  for (std::size_t i = 0; i < run->steps.size(); ++i) EXPECT_EQ(run->steps[i].elapsed_ns, 1001 + i);
}

TEST(RecordedRun, TheFirstPlanThatDiffersIsNamedWithItsStep) {
  std::vector<std::byte> log = record_run();
  const auto digests = replay(log)->plan_digests;
  const std::uint64_t wanted = digests[6];
  for (std::size_t at = 0; at + sizeof wanted <= log.size(); ++at) {
    if (std::memcmp(log.data() + at, &wanted, sizeof wanted) != 0) continue;
    log[at] ^= std::byte{1};
    break;
  }
  const auto run = replay_in_simulator(log);
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_TRUE(run->difference);
  EXPECT_EQ(run->difference->step, 7u);
  EXPECT_EQ(run->steps.size(), 6u);
  EXPECT_EQ(run->difference->found_digest, wanted);
  const std::string text = describe(*run->difference);
  EXPECT_NE(text.find("step 7 differs"), std::string::npos) << text;
  EXPECT_NE(text.find("decode"), std::string::npos) << text;
}

TEST(RecordedRun, ALogThatEndsAfterAPlanHasTheStepsBeforeIt) {
  const std::vector<std::byte> log = record_run();
  const std::size_t all = replay_in_simulator(log)->steps.size();
  std::size_t size = log.size() - 1;  // of the longest shorter log: without the last commit
  while (!replay_in_simulator(std::span(log).first(size)).ok()) --size;
  const auto run = replay_in_simulator(std::span(log).first(size));
  EXPECT_EQ(run->steps.size(), all - 1);
  EXPECT_FALSE(run->difference);
}

TEST(RecordedRun, WhatIsNoLogIsRefused) {
  const std::vector<std::byte> log = record_run();
  EXPECT_FALSE(replay_in_simulator({}).ok());
  EXPECT_FALSE(replay_in_simulator(std::span(log).first(log.size() - 3)).ok());
}

TEST(StepShape, OfAPlanCountsRowsTokensContextAndLogits) {
  BatchPlan plan;
  plan.rows.push_back({.begin = 9, .num_tokens = 1, .logits_begin = 9, .samples = true});
  plan.rows.push_back({.begin = 32, .num_tokens = 16, .logits_begin = 48, .is_prefill = true});
  plan.rows.push_back({.begin = 0, .num_tokens = 4, .logits_begin = 3, .samples = true, .is_prefill = true});
  const StepShape shape = shape_of(plan);
  EXPECT_EQ(shape.num_decode_rows, 1);
  EXPECT_EQ(shape.decode_context, 10);
  EXPECT_EQ(shape.num_prefill_rows, 2);
  EXPECT_EQ(shape.num_prefill_tokens, 20);
  EXPECT_EQ(shape.num_tokens(), 21);
  EXPECT_EQ(shape.prefill_squares, 48 * 48 - 32 * 32 + 16);
  EXPECT_EQ(shape.num_logit_rows, 2);
  StepShape several;
  several.add_decode(10, 3, 3);  // attend to 8, 9 and 10 positions
  EXPECT_EQ(several.decode_context, 27);
  EXPECT_EQ(several.num_decode_tokens, 3);
}

}  // namespace
}  // namespace quire
