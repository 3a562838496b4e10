#pragma once
// What tests of the served engine share: engines with little memory, random prompts, and the comparison of answers bit
// by bit.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/check.h"
#include "quire/base/rng.h"
#include "tests/support/run.h"

namespace quire::test {

constexpr std::uint64_t kMiB = 1 << 20;

/// What is not said: a context of 512, 16 MiB for KV, one thread. A failure to open is a bug of the test.
inline std::unique_ptr<engine::Engine> open(engine::EngineOptions options) {
  if (options.context == 0) options.context = 512;
  if (options.kv_memory_bytes == 0) options.kv_memory_bytes = 16 * kMiB;
  if (options.threads == 0) options.threads = 1;
  auto engine = engine::Engine::open(std::move(options));
  QUIRE_CHECK(engine.ok(), engine.error().message);
  return std::move(*engine);
}

/// KV memory for so many tokens of this model.
inline std::uint64_t pool_bytes(const std::string& model_path, std::int64_t tokens) {
  auto probe = open({.model_path = model_path, .kv_memory_bytes = kMiB});
  return static_cast<std::uint64_t>(probe->info().kv_bytes_per_token * tokens);
}

/// Ids of the 256 bytes, which every tiny model and SmolLM2 has.
inline std::vector<TokenId> random_prompt(std::uint64_t seed, std::int64_t length) {
  std::vector<TokenId> prompt;
  for (std::int64_t i = 0; i < length; ++i)
    prompt.push_back(TokenId{static_cast<std::int32_t>(random_at(seed, static_cast<std::uint64_t>(i)) % 256)});
  return prompt;
}

/// Exactly max_tokens, with logprobs to compare.
inline engine::GenerateRequest greedy_request(std::vector<TokenId> prompt, std::int32_t max_tokens = 8) {
  engine::GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.top_logprobs = 2;
  request.sampling.temperature = 0;
  return request;
}

inline void expect_same(const Collected& a, const Collected& b) {
  EXPECT_EQ(a.finish.reason, b.finish.reason);
  EXPECT_EQ(a.text, b.text);
  ASSERT_EQ(a.ids(), b.ids());
  for (std::size_t i = 0; i < a.tokens.size(); ++i) ASSERT_EQ(a.tokens[i].logprob, b.tokens[i].logprob) << i;
  ASSERT_EQ(a.scores.size(), b.scores.size());
  for (std::size_t i = 0; i < a.scores.size(); ++i) ASSERT_EQ(a.scores[i].next_logprob, b.scores[i].next_logprob) << i;
}

}  // namespace quire::test
