// What the engine promises to requests with several answers, on a tiny model: branch k is the answer of a request with
// the derived seed, bit for bit; the prompt is counted once; beam search ends at stop strings and within max_tokens.

#include <gtest/gtest.h>

#include "quire/text/tokenizer.h"
#include "tests/support/run.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_model.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::FinishReason;
using engine::GenerateRequest;

GenerateRequest request_of(std::int32_t length, std::int32_t max_tokens, std::int32_t num_branches) {
  GenerateRequest request{.max_tokens = max_tokens, .ignore_eos = true, .top_logprobs = 2};
  for (std::int32_t i = 0; i < length; ++i) request.prompt.push_back(TokenId{(i * 7 + 1) % 256});
  request.sampling.seed = 41;
  request.sampling.repetition_penalty = 1.2;
  request.sampling.presence_penalty = 0.5;
  request.num_branches = num_branches;
  return request;
}

GenerateRequest single(GenerateRequest request, std::int32_t branch) {
  request.num_branches = 1;
  request.sampling.seed = sampling::branch_seed(request.sampling.seed, static_cast<std::uint64_t>(branch));
  return request;
}

void expect_equal(const Collected& a, const Collected& b) {
  EXPECT_EQ(a.text, b.text);
  ASSERT_EQ(a.ids(), b.ids());
  for (std::size_t i = 0; i < a.tokens.size(); ++i) {
    EXPECT_EQ(a.tokens[i].logprob, b.tokens[i].logprob) << "bits, not about";
    for (std::size_t k = 0; k < a.tokens[i].top.size(); ++k)
      EXPECT_EQ(a.tokens[i].top[k].logprob, b.tokens[i].top[k].logprob);
  }
  EXPECT_EQ(a.finish.reason, b.finish.reason);
  EXPECT_EQ(a.finish.stop_string, b.finish.stop_string);
}

TEST(Branches, FourAnswersAreThoseOfFourRequestsBitForBit) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = 8 << 20});
  for (std::int32_t length : {1, 15, 16, 33}) {
    const GenerateRequest request = request_of(length, 40, 4);
    const auto together = run_branches(*engine, {request})[0];
    for (std::int32_t k = 0; k < 4; ++k) {
      SCOPED_TRACE(k);
      expect_equal(together[static_cast<std::size_t>(k)], run_one(*engine, single(request, k)));
      EXPECT_EQ(together[static_cast<std::size_t>(k)].usage.prompt_tokens, length);
      EXPECT_EQ(together[static_cast<std::size_t>(k)].num_finishes, 1);
    }
    EXPECT_NE(together[0].ids(), together[1].ids());
  }
}

// B30, served: the prompt's tokens are computed once.
TEST(Branches, ThePromptIsComputedOnce) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = 8 << 20, .prefix_cache = false});
  run_branches(*engine, {request_of(200, 10, 8)});
  const auto stats = engine->stats();
  EXPECT_EQ(stats.computed_tokens, 200u + 8 * 9);
  EXPECT_EQ(stats.prompt_tokens, 200u);
  EXPECT_EQ(stats.generated_tokens, 80u);
}

TEST(Branches, APreemptionChangesNoBitOfThem) {
  const TinyModelFile model("llama");
  std::uint64_t bytes_per_token = 0;
  {
    auto probe = open({.model_path = model.path(), .threads = 1, .kv_memory_bytes = 1 << 20});
    bytes_per_token = static_cast<std::uint64_t>(probe->info().kv_bytes_per_token);
  }
  auto small = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = bytes_per_token * 16 * 24});
  auto large = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = 8 << 20});
  std::vector<GenerateRequest> requests;
  for (std::int32_t i = 0; i < 6; ++i) {
    requests.push_back(request_of(20 + 3 * i, 50, 4));
    requests.back().sampling.seed = 1000 + static_cast<std::uint64_t>(i);
  }
  const auto tight = run_branches(*small, requests);
  EXPECT_GT(small->stats().preemptions, 0u);
  EXPECT_EQ(small->stats().blocks_used, 0);
  const auto roomy = run_branches(*large, requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    for (std::size_t k = 0; k < 4; ++k) expect_equal(tight[i][k], roomy[i][k]);
}

TEST(Branches, AStopStringEndsItsBranchAlone) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = 8 << 20});
  GenerateRequest request = request_of(12, 40, 3);
  const auto free = run_branches(*engine, {request})[0];
  const std::string text = free[1].text;
  request.stop = {text.substr(text.size() / 2, 4)};
  const auto stopped = run_branches(*engine, {request})[0];
  EXPECT_EQ(stopped[1].finish.reason, FinishReason::stop);
  EXPECT_EQ(stopped[1].finish.stop_string, request.stop[0]);
  for (std::int32_t k = 0; k < 3; ++k)
    expect_equal(stopped[static_cast<std::size_t>(k)], run_one(*engine, single(request, k)));
}

GenerateRequest search_of(std::int32_t length, std::int32_t max_tokens, BeamParams beams) {
  GenerateRequest request = request_of(length, max_tokens, 1);
  request.sampling = {};
  request.top_logprobs.reset();
  request.beams = beams;
  return request;
}

// B31: beam search ignored stop conditions.
TEST(Beams, EndAtAStopString) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = 8 << 20});
  GenerateRequest request = search_of(9, 50, {.width = 4, .num_returned = 4});
  const auto free = run_branches(*engine, {request})[0];
  const std::string text = free[0].text;
  request.stop = {text.substr(text.size() / 3, 3)};
  const auto stopped = run_branches(*engine, {request})[0];
  int num_stopped = 0;
  for (const Collected& answer : stopped) {
    EXPECT_EQ(answer.text.find(request.stop[0]), std::string::npos);
    num_stopped += answer.finish.stop_string == request.stop[0];
    EXPECT_TRUE(answer.finish.score.has_value());
  }
  EXPECT_GT(num_stopped, 0);
}

// B32: beam search with a stop string and max_tokens = 10 never returned.
TEST(Beams, ReturnWithinMaxTokensBesideAStopString) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = 8 << 20});
  GenerateRequest request = search_of(2, 10, {.width = 2, .num_returned = 2});
  request.stop = {"e", "a"};
  const auto answers = run_branches(*engine, {request})[0];
  for (const Collected& answer : answers) EXPECT_LE(answer.tokens.size(), 10u);
}

// B33: beam search wider than 10 was refused.
TEST(Beams, SixteenAreSearchedAndTheBestComeInOrder) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = 8 << 20});
  const auto answers = run_branches(*engine, {search_of(20, 24, {.width = 16, .num_returned = 16})})[0];
  ASSERT_EQ(answers.size(), 16u);
  for (std::size_t k = 0; k < 16; ++k) {
    EXPECT_EQ(answers[k].num_finishes, 1);
    EXPECT_EQ(answers[k].tokens.size(), 24u);
    EXPECT_GE(*answers[k > 0 ? k - 1 : 0].finish.score, *answers[k].finish.score);
  }
  EXPECT_EQ(engine->stats().blocks_used, 0);
}

TEST(Beams, OneBeamIsGreedy) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = 8 << 20});
  GenerateRequest greedy = request_of(20, 24, 1);
  greedy.sampling = {.temperature = 0};
  const auto beam = run_branches(*engine, {search_of(20, 24, {})})[0];
  EXPECT_EQ(beam[0].ids(), run_one(*engine, greedy).ids());
}

TEST(Beams, WhatASearchDoesNotDoIsRefusedByField) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .threads = 1, .kv_memory_bytes = 8 << 20, .max_batch_rows = 8});
  const auto field = [&](const GenerateRequest& request) {
    return engine->submit(request, [](engine::Delta) { FAIL(); }).refusal.field;
  };
  EXPECT_EQ(field(search_of(5, 5, {.width = 17})), "beams");
  EXPECT_EQ(field(search_of(5, 5, {.width = 9})), "beams") << "a step has 8 rows";
  EXPECT_EQ(field(search_of(5, 0, {.width = 2})), "max_tokens");
  GenerateRequest request = search_of(5, 5, {.width = 2});
  request.sampling.top_k = 3;
  EXPECT_EQ(field(request), "sampling");
  request = search_of(5, 5, {.width = 2});
  request.top_logprobs = 1;
  EXPECT_EQ(field(request), "top_logprobs");
  EXPECT_EQ(field(request_of(5, 5, 17)), "num_branches");
  EXPECT_EQ(field(request_of(5, 5, 9)), "num_branches");
}

}  // namespace
}  // namespace quire::test
