// The engine on the real models: greedy answers against the reference's, and the digests of scores that every machine
// and every CPU tier must reproduce.

#include <gtest/gtest.h>

#include <cstdio>

#include "quire/base/hash.h"
#include "quire/json/json.h"
#include "tests/support/goldens.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::GenerateRequest;

std::unique_ptr<Engine> open(const RealModel& real, std::string tier = "") {
  auto engine = Engine::open({.model_path = model_path(real),
                              .context = 4096,
                              .kv_memory_bytes = std::uint64_t{512} << 20,
                              .cpu_tier = std::move(tier)});
  QUIRE_CHECK(engine.ok(), engine.error().message);
  return std::move(*engine);
}

/// All golden prompts at once. Each answer equals the golden one up to the first step at which the reference itself was
/// undecided; after that it is free.
void expect_greedy_goldens(const RealModel& real, double decided) {
  auto engine = open(real);
  const auto goldens = read_golden_answers(real);
  std::vector<GenerateRequest> requests;
  for (const GoldenAnswer& golden : goldens) {
    requests.push_back({.prompt = golden.prompt,
                        .max_tokens = static_cast<std::int32_t>(golden.greedy.size()),
                        .ignore_eos = true,
                        .sampling = {.temperature = 0}});
  }
  const auto answers = run_all(*engine, requests);
  std::size_t compared = 0;
  for (std::size_t i = 0; i < goldens.size(); ++i) {
    for (std::size_t k = 0; k < goldens[i].greedy.size() && goldens[i].margin[k] >= decided; ++k, ++compared) {
      ASSERT_EQ(answers[i].tokens[k].token, goldens[i].greedy[k]) << "prompt " << i << ", token " << k;
    }
    EXPECT_EQ(answers[i].finish.reason, engine::FinishReason::length);
  }
  EXPECT_GT(compared, 0u);
}

TEST(GreedyGolden, SmolLm2) { expect_greedy_goldens(kSmolLm2, 0.5); }
TEST(GreedyGolden, Qwen05b) { expect_greedy_goldens(kQwen05b, 0.5); }
TEST(GreedyGolden, Gemma270m) { expect_greedy_goldens(kGemma270m, 1.5); }

/// Digest of all logprobs of a teacher-forced text, and of a sampled continuation.
std::uint64_t score_digest(const RealModel& real, const std::string& tier) {
  auto engine = open(real, tier);
  std::vector<GenerateRequest> requests;
  const auto goldens = read_golden_answers(real);
  for (std::size_t i = 0; i < 2; ++i) {
    GenerateRequest request{.prompt = goldens[i].prompt, .max_tokens = 6, .ignore_eos = true, .top_logprobs = 4};
    request.scoring = engine::PromptScoring{0, 8};
    request.sampling = {.temperature = 0.8, .top_p = 0.95, .seed = 7 + i};
    requests.push_back(std::move(request));
  }
  Digest digest;
  const auto add = [&digest](const std::vector<engine::TokenLogprob>& top) {
    for (const auto& entry : top) {
      digest.add(static_cast<std::uint64_t>(entry.token.value));
      digest.add_floats({&entry.logprob, 1});
    }
  };
  for (const Collected& answer : run_all(*engine, requests)) {
    for (const auto& row : answer.scores) add(row.top);
    for (const auto& token : answer.tokens) {
      digest.add(static_cast<std::uint64_t>(token.token.value));
      digest.add_floats({&token.logprob, 1});
      add(token.top);
    }
  }
  return digest.value();
}

void expect_digest_on_every_tier(const RealModel& real, std::uint64_t committed) {
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    const std::uint64_t found = score_digest(real, std::string(to_string(tier)));
    char text[32];
    std::snprintf(text, sizeof text, "0x%016llX", static_cast<unsigned long long>(found));
    EXPECT_EQ(found, committed) << to_string(tier) << " gives " << text;
  }
}

TEST(ScoreDigest, SmolLm2) { expect_digest_on_every_tier(kSmolLm2, 0x6C67615FACBDAD83); }
TEST(ScoreDigest, Qwen05b) { expect_digest_on_every_tier(kQwen05b, 0x7F9FED6B3A39D703); }
TEST(ScoreDigest, Gemma270m) { expect_digest_on_every_tier(kGemma270m, 0x6256692F9C4F6D36); }

}  // namespace
}  // namespace quire::test
