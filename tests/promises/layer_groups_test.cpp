// Layer groups: memory behind sliding windows is given back, and never a bit of an answer changes for it.

#include <gtest/gtest.h>

#include <string>

#include "quire/base/rng.h"
#include "tests/support/goldens.h"
#include "tests/support/models.h"
#include "tests/support/run.h"
#include "tests/support/tiny_model.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::GenerateRequest;

std::unique_ptr<Engine> open(EngineOptions options) {
  auto engine = Engine::open(std::move(options));
  QUIRE_CHECK(engine.ok(), engine.error().message);
  return std::move(*engine);
}

GenerateRequest request_for(std::vector<TokenId> prompt, std::int32_t max_tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.top_logprobs = 3;
  request.sampling.temperature = 0;
  return request;
}

/// The golden prompts of the model one after another, beginning with the n-th, until there are `length` tokens.
std::vector<TokenId> long_prompt(const std::vector<GoldenAnswer>& answers, std::size_t n, std::size_t length) {
  std::vector<TokenId> prompt;
  for (; prompt.size() < length; ++n) {
    const GoldenAnswer& answer = answers[n % answers.size()];
    prompt.insert(prompt.end(), answer.prompt.begin(), answer.prompt.end());
    prompt.insert(prompt.end(), answer.greedy.begin(), answer.greedy.end());
  }
  prompt.resize(length);
  return prompt;
}

void expect_same(const std::vector<Collected>& a, const std::vector<Collected>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(a[i].ids(), b[i].ids());
    ASSERT_EQ(a[i].scores.size(), b[i].scores.size());
    for (std::size_t t = 0; t < a[i].tokens.size(); ++t) {
      ASSERT_EQ(a[i].tokens[t].logprob, b[i].tokens[t].logprob) << t;
      for (std::size_t k = 0; k < a[i].tokens[t].top.size(); ++k)
        ASSERT_EQ(a[i].tokens[t].top[k].logprob, b[i].tokens[t].top[k].logprob) << t;
    }
    for (std::size_t s = 0; s < a[i].scores.size(); ++s)
      ASSERT_EQ(a[i].scores[s].next_logprob, b[i].scores[s].next_logprob) << s;
  }
}

TEST(LayerGroups, Gemma270mGivesTheBitsOfTheUniformLayoutBatchedChunkedPreemptedAndFromTheCache) {
  const std::string path = model_path(kGemma270m);
  const std::vector<GoldenAnswer> answers = read_golden_answers(kGemma270m);
  std::vector<GenerateRequest> requests;
  requests.push_back(request_for(long_prompt(answers, 0, 700), 12));  // beyond the window of 512
  requests.push_back(request_for(long_prompt(answers, 1, 90), 40));
  requests.push_back(request_for(long_prompt(answers, 2, 530), 30));
  requests[1].scoring = engine::PromptScoring{10, 2};

  const EngineOptions base{.model_path = path, .context = 1024, .kv_memory_bytes = 64 << 20};
  EngineOptions uniform = base;
  uniform.kv_layout = "uniform";
  uniform.prefix_cache = false;
  std::vector<Collected> expected;
  {
    auto engine = open(uniform);
    EXPECT_EQ(engine->info().num_layer_groups, 1);
    for (const GenerateRequest& request : requests) expected.push_back(run_one(*engine, request));
  }
  {
    auto engine = open(base);
    EXPECT_EQ(engine->info().kv_layout, "grouped");
    EXPECT_EQ(engine->info().num_layer_groups, 6);
    EXPECT_EQ(engine->info().layers_per_group, 3);
    expect_same(expected, run_all(*engine, requests));
    const std::vector<Collected> warm = run_all(*engine, requests);
    expect_same(expected, warm);
    EXPECT_EQ(warm[0].usage.cached_tokens, 699) << "only the last token is computed";
    EXPECT_EQ(warm[2].usage.cached_tokens, 529);
    EXPECT_EQ(engine->stats().blocks_used, 0);
  }
  {
    // Room for one of the long ones and a little more, small chunks, another block size.
    EngineOptions tight = base;
    tight.block_size = 32;
    tight.max_batch_tokens = 100;
    tight.kv_memory_bytes = 12 << 20;
    auto engine = open(tight);
    expect_same(expected, run_all(*engine, requests));
    EXPECT_GT(engine->stats().preemptions, 0u) << "the pool is meant to be too small";
  }
}

std::vector<TokenId> random_prompt(std::uint64_t seed, std::int64_t length) {
  std::vector<TokenId> prompt;
  for (std::int64_t i = 0; i < length; ++i)
    prompt.push_back(TokenId{static_cast<std::int32_t>(random_at(seed, static_cast<std::uint64_t>(i)) % 256)});
  return prompt;
}

TEST(LayerGroups, ATinyGemmaAnswersTheSameInBothLayoutsInManyMixes) {
  const TinyModelFile model("gemma3");
  std::uint64_t preemptions = 0, hits = 0;
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    std::vector<GenerateRequest> requests;
    for (std::int64_t i = rng.between(2, 6); i > 0; --i) {
      requests.push_back(
          request_for(random_prompt(rng(), rng.between(1, 150)), static_cast<std::int32_t>(rng.between(1, 30))));
      const auto& first = requests.front().prompt;
      auto& prompt = requests.back().prompt;
      if (rng.chance(0.6)) std::copy_n(first.begin(), std::min(first.size(), prompt.size()) * 3 / 4, prompt.begin());
    }
    EngineOptions options{.model_path = model.path(), .threads = 1, .context = 256, .kv_memory_bytes = 16 << 20};
    options.block_size = rng.chance(0.5) ? 8 : 16;
    EngineOptions uniform = options;
    uniform.kv_layout = "uniform";
    uniform.prefix_cache = false;
    auto reference = open(uniform);
    options.max_batch_tokens = rng.between(5, 80);
    options.kv_memory_bytes = static_cast<std::uint64_t>(reference->info().kv_bytes_per_token * rng.between(190, 260));
    auto grouped = open(options);
    ASSERT_EQ(grouped->info().num_layer_groups, 2);
    std::vector<Collected> expected;
    for (const GenerateRequest& request : requests) expected.push_back(run_one(*reference, request));
    expect_same(expected, run_all(*grouped, requests));
    expect_same(expected, run_all(*grouped, requests));
    EXPECT_EQ(grouped->stats().blocks_used, 0);
    preemptions += grouped->stats().preemptions;
    hits += grouped->stats().prefix_hits;
  }
  EXPECT_GT(preemptions, 0u);
  EXPECT_GT(hits, 1000u);
}

TEST(LayerGroups, ARequestThatWouldNotFitUniformlyFitsWhereWindowsGiveMemoryBack) {
  const TinyModelFile model("gemma3");
  // One layer in two is full: with a window of 8 and small steps the other one hardly counts.
  EngineOptions options{.model_path = model.path(), .threads = 1, .context = 400};
  options.max_batch_tokens = 16;
  const auto probe = open(options);
  options.kv_memory_bytes = static_cast<std::uint64_t>(probe->info().kv_bytes_per_token * 260);
  auto grouped = open(options);
  EXPECT_GE(grouped->info().kv_tokens, 400);
  const Collected answer = run_one(*grouped, request_for(random_prompt(1, 380), 20));
  EXPECT_EQ(answer.tokens.size(), 20u);
  options.kv_layout = "uniform";
  auto uniform = open(options);
  EXPECT_LT(uniform->info().kv_tokens, 400);
  EXPECT_FALSE(uniform->submit(request_for(random_prompt(1, 380), 20), [](engine::Delta) {}).id.has_value());
}

}  // namespace
}  // namespace quire::test
