// Speculative decoding in the served engine, on tiny models: the same bits as without, and fewer steps. Random mixes
// with proposals are in same_bits_test.cpp; a real model is in tests/golden/speculation_golden_test.cpp.

#include <gtest/gtest.h>

#include "tests/support/run.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_model.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::FinishReason;
using engine::GenerateRequest;

EngineOptions proposing(const std::string& path, std::int32_t num_speculative_tokens = 6) {
  EngineOptions options;
  options.model_path = path;
  options.num_speculative_tokens = num_speculative_tokens;
  options.ngram = {1, 4};
  return options;
}

/// Greedy answers of a tiny model end in loops, which is what proposals are good at.
std::vector<GenerateRequest> looping_requests() {
  std::vector<GenerateRequest> requests;
  for (std::int64_t length : {1, 15, 40, 64, 130})
    requests.push_back(greedy_request(random_prompt(static_cast<std::uint64_t>(length), length), 120));
  return requests;
}

TEST(Speculation, AnswersHaveTheSameBitsInFewerSteps) {
  std::uint64_t num_rejected = 0;
  for (const char* family : {"llama", "qwen2", "gemma3"}) {
    SCOPED_TRACE(family);
    const TinyModelFile model(family);
    auto plain = open({.model_path = model.path()});
    auto engine = open(proposing(model.path()));
    for (const GenerateRequest& request : looping_requests())
      expect_same(run_one(*plain, request), run_one(*engine, request));
    EXPECT_LT(engine->stats().steps, plain->stats().steps * 9 / 10);
    EXPECT_GT(engine->stats().accepted_tokens, 0u);
    EXPECT_EQ(engine->stats().generated_tokens, plain->stats().generated_tokens);
    EXPECT_EQ(engine->stats().blocks_used, 0);
    num_rejected += engine->stats().proposed_tokens - engine->stats().accepted_tokens;
  }
  EXPECT_GT(num_rejected, 0u);
}

TEST(Speculation, PenaltiesCountWhatIsDrawnWithinTheStep) {
  const TinyModelFile model("llama");
  auto plain = open({.model_path = model.path()});
  auto engine = open(proposing(model.path()));
  std::vector<GenerateRequest> requests = looping_requests();
  for (GenerateRequest& request : requests) {
    // Too weak to end a loop soon, strong enough to end it.
    request.sampling.frequency_penalty = 0.05;
    request.sampling.repetition_penalty = 1.02;
  }
  const auto expected = run_all(*plain, requests), answers = run_all(*engine, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) expect_same(expected[i], answers[i]);
  EXPECT_GT(engine->stats().accepted_tokens, 0u);
}

TEST(Speculation, AStopStringInTheMiddleOfAStepEndsTheAnswerThere) {
  const TinyModelFile model("llama");
  auto plain = open({.model_path = model.path()});
  auto engine = open(proposing(model.path(), 12));
  GenerateRequest request = looping_requests()[2];
  const std::string text = run_one(*plain, request).text;
  int num_stopped = 0;
  for (std::size_t begin = 0; begin + 8 < text.size(); begin += 5) {
    request.stop = {text.substr(begin, 3)};
    request.max_tokens = 100;
    const Collected expected = run_one(*plain, request), answer = run_one(*engine, request);
    expect_same(expected, answer);
    EXPECT_EQ(expected.finish.stop_string, answer.finish.stop_string);
    EXPECT_EQ(expected.usage.completion_tokens, answer.usage.completion_tokens);
    EXPECT_EQ(answer.num_finishes, 1);
    num_stopped += answer.finish.stop_string.has_value();
  }
  EXPECT_GT(num_stopped, 5);
}

TEST(Speculation, EndTokensMinTokensAndLengthEndWhereTheyEndWithoutIt) {
  const TinyModelFile model("qwen2");
  auto plain = open({.model_path = model.path()});
  auto engine = open(proposing(model.path()));
  const std::vector<TokenId> loop = run_one(*plain, looping_requests()[1]).ids();
  for (std::int32_t max_tokens : {1, 2, 3, 50, 119, 120}) {
    for (std::int32_t min_tokens : {0, 60}) {
      for (std::size_t stop : {std::size_t{0}, std::size_t{40}, loop.size() - 1}) {
        GenerateRequest request = looping_requests()[1];
        request.max_tokens = max_tokens;
        request.min_tokens = min_tokens;
        request.stop_tokens = {loop[stop]};
        const Collected expected = run_one(*plain, request), answer = run_one(*engine, request);
        expect_same(expected, answer);
        EXPECT_EQ(expected.finish.stop_token, answer.finish.stop_token);
      }
    }
  }
}

TEST(Speculation, BranchesAndPreemptedRequestsGetTheSameBits) {
  const TinyModelFile model("gemma3");
  std::vector<GenerateRequest> requests = looping_requests();
  requests[1].num_branches = 3;
  requests[2].num_branches = 2;
  requests[2].sampling.temperature = 0.3;
  requests[2].sampling.seed = 5;
  auto plain = open({.model_path = model.path(), .prefix_cache = false});
  EngineOptions options = proposing(model.path());
  options.kv_memory_bytes = pool_bytes(model.path(), 500);
  options.threads = 2;
  auto engine = open(options);
  const auto expected = run_branches(*plain, requests), answers = run_branches(*engine, requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    for (std::size_t k = 0; k < expected[i].size(); ++k) {
      SCOPED_TRACE(cat("request ", i, ", branch ", k));
      expect_same(expected[i][k], answers[i][k]);
    }
  EXPECT_GT(engine->stats().preemptions, 0u) << "the pool is meant to be too small";
  EXPECT_GT(engine->stats().accepted_tokens, 0u);
}

TEST(Speculation, OtherMemoryManagersAndOptionsOutOfRangeAreRefusedByName) {
  const TinyModelFile model("llama");
  EngineOptions options = proposing(model.path());
  options.kv_manager = "vattention";
  EXPECT_EQ(Engine::open(options).error().message,
            "speculative tokens cannot be combined with the KV manager vattention; wanted paged");
  EXPECT_EQ(Engine::open(proposing(model.path(), 65)).error().message, "speculative tokens is 65; wanted 0 to 64");
  options = proposing(model.path());
  options.ngram = {5, 4};
  EXPECT_EQ(Engine::open(options).error().message, "n-grams of 5 to 4 tokens; wanted a range within 1 and 64");
}

}  // namespace
}  // namespace quire::test
