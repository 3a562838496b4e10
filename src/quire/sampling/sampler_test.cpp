#include "quire/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "quire/base/rng.h"

namespace quire::sampling {
namespace {

const ops::VectorOps& kOps = ops::vector_ops(CpuTier::scalar);

std::vector<float> random_logits(std::size_t n, std::uint64_t seed, double spread) {
  Rng rng(seed);
  std::vector<float> logits(n);
  for (float& logit : logits) logit = static_cast<float>((rng.uniform() - 0.5) * spread);
  return logits;
}

TokenId sample(const SamplingParams& params, std::span<const float> logits, std::uint64_t position = 7,
               std::span<const TokenId> banned = {}, std::span<const TokenId> prompt = {}) {
  SamplerScratch scratch;
  return Sampler(params, prompt).sample(kOps, logits, {position, banned}, scratch);
}

/// How often each token comes up over many positions.
std::map<std::int32_t, double> shares(const SamplingParams& params, std::span<const float> logits, int draws = 20000) {
  std::map<std::int32_t, double> counts;
  for (int i = 0; i < draws; ++i) counts[sample(params, logits, static_cast<std::uint64_t>(i)).value] += 1.0 / draws;
  return counts;
}

TEST(BestFirst, YieldsTheWholeRowInOrder) {
  for (double spread : {0.0, 1e-3, 1.0, 50.0, 1e6}) {
    std::vector<float> logits = random_logits(1000, 3, spread);
    logits[17] = logits[901] = logits[400];
    std::vector<std::int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
    std::vector<Candidate> buffer;
    BestFirst walk(logits, *std::max_element(logits.begin(), logits.end()), buffer);
    for (std::int32_t id : order) {
      const Candidate* next = walk.next();
      ASSERT_NE(next, nullptr);
      ASSERT_EQ(next->id, id);
    }
    EXPECT_EQ(walk.next(), nullptr);
  }
}

TEST(BestFirst, LeavesOutMinusInfinity) {
  const float never = -std::numeric_limits<float>::infinity();
  std::vector<float> logits = {never, 1, never, 1e30f, -3e38f};
  std::vector<Candidate> buffer;
  BestFirst walk(logits, 1e30f, buffer);
  EXPECT_EQ(walk.next()->id, 3);
  EXPECT_EQ(walk.next()->id, 1);
  EXPECT_EQ(walk.next()->id, 4);
  EXPECT_EQ(walk.next(), nullptr);
}

TEST(Sampler, GreedyTakesTheFirstOfEquals) {
  std::vector<float> logits = {1, 5, 2, 5};
  EXPECT_EQ(sample({.temperature = 0}, logits).value, 1);
  EXPECT_EQ(sample({.temperature = 2, .top_k = 1}, logits).value, 1);
}

TEST(Sampler, SharesFollowTheSoftmax) {
  std::vector<float> logits = {0, 1, 2, -1};
  auto counts = shares({.temperature = 1, .seed = 11}, logits);
  double z = 0;
  for (float logit : logits) z += std::exp(logit);
  for (int i = 0; i < 4; ++i) {
    const double p = std::exp(logits[i]) / z;
    EXPECT_NEAR(counts[i], p, 5 * std::sqrt(p * (1 - p) / 20000)) << i;
  }
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  std::vector<float> logits = {0, 1};
  EXPECT_GT(shares({.temperature = 0.2}, logits)[1], 0.98);
  EXPECT_NEAR(shares({.temperature = 100}, logits)[1], 0.5, 0.03);
  EXPECT_EQ(sample({.temperature = 1e-300}, logits).value, 1);
}

TEST(Sampler, TopKTopPAndMinPKeepOnlyTheBest) {
  std::vector<float> logits = {3, 2, 1, 0, -1};  // shares .64 .23 .086 .032 .012
  for (auto [token, share] : shares({.top_k = 2}, logits)) EXPECT_LT(token, 2) << share;
  auto top_p = shares({.top_p = 0.8}, logits);
  EXPECT_EQ(top_p.size(), 2u);
  EXPECT_EQ(shares({.top_p = 0.5}, logits).size(), 1u);
  EXPECT_EQ(shares({.min_p = 0.2}, logits).size(), 2u);
  EXPECT_EQ(shares({.top_k = 100}, logits).size(), 5u);
  // Top-p counts within what top-k left: of .73 and .27 the first alone reaches 0.7.
  EXPECT_EQ(shares({.top_k = 2, .top_p = 0.7}, logits).size(), 1u);
}

TEST(Sampler, TheSameSeedAndPositionGiveTheSameToken) {
  auto logits = random_logits(500, 5, 4);
  int differ = 0;
  for (std::uint64_t position = 0; position < 50; ++position) {
    SamplingParams params{.temperature = 1, .seed = 9};
    EXPECT_EQ(sample(params, logits, position), sample(params, logits, position));
    differ += sample({.temperature = 1, .seed = 10}, logits, position) != sample(params, logits, position);
  }
  EXPECT_GT(differ, 25);
}

TEST(Sampler, BannedTokensAreNeverDrawn) {
  std::vector<float> logits = {9, 1, 0};
  const TokenId banned[] = {TokenId{0}};
  EXPECT_EQ(sample({.temperature = 0}, logits, 0, banned).value, 1);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_NE(sample({.temperature = 5}, logits, i, banned).value, 0);
}

TEST(Sampler, BiasMovesTheChoice) {
  std::vector<float> logits = {1, 0};
  EXPECT_EQ(sample({.temperature = 0, .logit_bias = {{TokenId{1}, 2}}}, logits).value, 1);
}

TEST(Sampler, RepetitionSeesThePromptPresenceAndFrequencyDoNot) {
  std::vector<float> logits = {2.0f, 1.5f, -1};
  const TokenId prompt[] = {TokenId{0}};
  EXPECT_EQ(sample({.temperature = 0, .repetition_penalty = 2}, logits, 0, {}, prompt).value, 1);
  EXPECT_EQ(sample({.temperature = 0, .presence_penalty = 2}, logits, 0, {}, prompt).value, 0);
  EXPECT_EQ(sample({.temperature = 0, .frequency_penalty = 2}, logits, 0, {}, prompt).value, 0);

  SamplerScratch scratch;
  Sampler frequency({.temperature = 0, .frequency_penalty = 0.3}, prompt);
  frequency.observe(TokenId{0});
  EXPECT_EQ(frequency.sample(kOps, logits, {1}, scratch).value, 0);
  frequency.observe(TokenId{0});
  EXPECT_EQ(frequency.sample(kOps, logits, {2}, scratch).value, 1);
}

TEST(Sampler, AssumedTokensCountAsIfTheyHadBeenObserved) {
  const TokenId prompt[] = {TokenId{0}, TokenId{1}};
  const std::vector<TokenId> output = {TokenId{1}, TokenId{2}, TokenId{2}, TokenId{7}, TokenId{1}, TokenId{2}};
  const SamplingParams params{.repetition_penalty = 1.3, .presence_penalty = 0.4, .frequency_penalty = 0.7, .seed = 3};
  for (std::size_t num_observed = 0; num_observed <= output.size(); ++num_observed) {
    Sampler all(params, prompt), some(params, prompt);
    for (TokenId token : output) all.observe(token);
    for (std::size_t i = 0; i < num_observed; ++i) some.observe(output[i]);
    SamplerScratch one, other;
    for (std::uint64_t position = 0; position < 50; ++position) {
      const std::vector<float> logits = random_logits(9, position, 3);
      const TokenId wanted = all.sample(kOps, logits, {position}, one);
      EXPECT_EQ(some.sample(kOps, logits, {position, {}, std::span(output).subspan(num_observed)}, other), wanted);
      ASSERT_EQ(one.logits, other.logits) << "bits, not about";
    }
  }
}

TEST(RowLogprobs, AreTheLogOfTheSoftmax) {
  auto logits = random_logits(300, 8, 10);
  RowLogprobs logprobs(kOps, logits);
  double sum = 0;
  for (int i = 0; i < 300; ++i) sum += std::exp(static_cast<double>(logprobs.of(TokenId{i})));
  EXPECT_NEAR(sum, 1, 1e-5);
  std::vector<Candidate> buffer;
  auto best = logprobs.best(300, buffer);
  ASSERT_EQ(best.size(), 300u);
  for (std::size_t i = 1; i < best.size(); ++i) EXPECT_GE(best[i - 1].logprob, best[i].logprob);
}

}  // namespace
}  // namespace quire::sampling
