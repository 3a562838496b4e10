// The promise that sets Quire apart: a request's tokens and logprobs do not depend on what else runs, on block and
// chunk sizes, on threads, on preemption or on the CPU tier. Bits are compared, not tolerances.

#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>
#include <map>

#include "quire/attention/kv_store.h"
#include "quire/base/checked.h"
#include "quire/base/rng.h"
#include "tests/support/run.h"
#include "tests/support/tiny_model.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::GenerateRequest;

constexpr std::int64_t kContext = 384;

GenerateRequest random_request(Rng& rng, std::int32_t vocab) {
  GenerateRequest request;
  const auto length = rng.chance(0.2) ? rng.between(60, 140) : rng.between(1, 40);
  for (std::int64_t i = 0; i < length; ++i) {
    request.prompt.push_back(TokenId{static_cast<std::int32_t>(rng.between(0, vocab - 1))});
  }
  request.max_tokens = static_cast<std::int32_t>(rng.between(1, 40));
  request.ignore_eos = rng.chance(0.7);
  request.top_logprobs = static_cast<std::int32_t>(rng.between(0, 5));
  request.sampling.seed = rng();
  request.sampling.temperature = rng.chance(0.4) ? 0.0 : rng.uniform() * 2;
  if (rng.chance(0.3)) request.sampling.top_k = static_cast<std::int32_t>(rng.between(1, 50));
  if (rng.chance(0.3)) request.sampling.top_p = 0.5 + rng.uniform() / 2;
  if (rng.chance(0.2)) request.sampling.min_p = rng.uniform() / 10;
  if (rng.chance(0.2)) request.sampling.repetition_penalty = 1 + rng.uniform();
  if (rng.chance(0.2)) request.sampling.frequency_penalty = rng.uniform();
  if (rng.chance(0.2)) {
    request.scoring = engine::PromptScoring{static_cast<std::int32_t>(rng.between(0, length - 1)), 3};
  }
  return request;
}

/// The last request begins as the first one does, for a stretch.
void share_beginning(Rng& rng, std::vector<GenerateRequest>& requests) {
  const auto& from = requests.front().prompt;
  auto& to = requests.back().prompt;
  const auto limit = std::min(from.size(), to.size());
  std::copy_n(from.begin(), rng.between(0, static_cast<std::int64_t>(limit)), to.begin());
}

/// All begin with the same tokens, enough for attention to walk them once for several requests.
void share_prefix(Rng& rng, std::vector<GenerateRequest>& requests, std::int32_t vocab) {
  std::vector<TokenId> prefix;
  for (auto left = rng.between(64, 150); left > 0; --left)
    prefix.push_back(TokenId{static_cast<std::int32_t>(rng.between(0, vocab - 1))});
  for (GenerateRequest& request : requests) request.prompt.insert(request.prompt.begin(), prefix.begin(), prefix.end());
}

std::unique_ptr<Engine> open(EngineOptions options) {
  options.context = kContext;
  auto engine = Engine::open(std::move(options));
  QUIRE_CHECK(engine.ok(), engine.error().message);
  return std::move(*engine);
}

void expect_same(const Collected& alone, const Collected& mixed) {
  EXPECT_EQ(mixed.num_finishes, 1);
  EXPECT_EQ(alone.finish.reason, mixed.finish.reason);
  EXPECT_EQ(alone.text, mixed.text);
  ASSERT_EQ(alone.ids(), mixed.ids());
  for (std::size_t i = 0; i < alone.tokens.size(); ++i) {
    ASSERT_EQ(alone.tokens[i].logprob, mixed.tokens[i].logprob) << "token " << i;
    ASSERT_EQ(alone.tokens[i].top.size(), mixed.tokens[i].top.size());
    for (std::size_t k = 0; k < alone.tokens[i].top.size(); ++k) {
      ASSERT_EQ(alone.tokens[i].top[k].token, mixed.tokens[i].top[k].token);
      ASSERT_EQ(alone.tokens[i].top[k].logprob, mixed.tokens[i].top[k].logprob);
    }
  }
  ASSERT_EQ(alone.scores.size(), mixed.scores.size());
  for (std::size_t i = 0; i < alone.scores.size(); ++i) {
    ASSERT_EQ(alone.scores[i].position, mixed.scores[i].position);
    ASSERT_EQ(alone.scores[i].next_logprob, mixed.scores[i].next_logprob);
  }
}

/// A pool that a few of the requests fill, so that most mixes preempt.
std::uint64_t tight_pool(const std::vector<GenerateRequest>& requests, std::int64_t block_size, Rng& rng,
                         std::int64_t bytes_per_token) {
  std::int64_t largest = 0;
  for (const auto& request : requests) {
    const auto need = static_cast<std::int64_t>(request.prompt.size()) + *request.max_tokens;
    largest = std::max(largest, need);
  }
  const auto blocks = ceil_div(largest, block_size) + rng.between(0, 2);
  return static_cast<std::uint64_t>(blocks * block_size * bytes_per_token);
}

std::vector<std::string> supported_tiers() {
  std::vector<std::string> names;
  for (CpuTier tier : kAllCpuTiers)
    if (cpu_supports(tier)) names.emplace_back(to_string(tier));
  return names;
}

/// What happened in the mixes.
struct Happened {
  std::uint64_t preemptions = 0, swaps = 0, prefix_hits = 0, accepted_tokens = 0;
  std::int64_t shared_positions = 0;
};

/// Everything that the paged manager can do is switched on in some of the mixes, and combined.
void run_mixes(const std::string& model, std::uint64_t first_seed, int num_mixes, Happened& happened) {
  const std::vector<std::string> tiers = supported_tiers();
  std::map<std::string, std::unique_ptr<Engine>> references;  // by KV type, which is part of what fixes the bits
  for (attention::KvType type : attention::kAllKvTypes) {
    const std::string name(attention::to_string(type));
    references[name] =
        open({.model_path = model, .threads = 1, .kv_memory_bytes = 16 << 20, .kv_type = name, .prefix_cache = false});
  }
  const auto vocab = static_cast<std::int32_t>(references.begin()->second->info().vocab_size);
  for (int mix = 0; mix < num_mixes; ++mix) {
    SCOPED_TRACE(cat("seed ", first_seed + mix));
    Rng rng(first_seed + static_cast<std::uint64_t>(mix));
    std::vector<GenerateRequest> requests;
    for (auto left = rng.between(3, 9); left > 0; --left) {
      requests.push_back(random_request(rng, vocab));
      if (rng.chance(0.5)) share_beginning(rng, requests);
    }
    if (rng.chance(0.3)) share_prefix(rng, requests, vocab);

    constexpr std::int64_t kBlockSizes[] = {8, 16, 32, 64, 128};
    const auto block_size = kBlockSizes[rng.between(0, 4)];
    const auto& [kv_type, reference] =
        *std::next(references.begin(), rng.between(0, static_cast<std::int64_t>(references.size()) - 1));
    SCOPED_TRACE(cat("KV type ", kv_type));
    const bool prefix_cache = rng.chance(0.7), ram_tier = prefix_cache && rng.chance(0.5);
    auto mixed = open({
        .model_path = model,
        .threads = static_cast<int>(rng.between(1, 3)),
        .kv_memory_bytes = tight_pool(requests, block_size, rng, reference->info().kv_bytes_per_token),
        .kv_type = kv_type,
        .block_size = block_size,
        .max_batch_tokens = rng.chance(0.3) ? rng.between(1, 20) : rng.between(20, 200),
        .max_batch_rows = rng.between(3, 12),
        .cpu_tier = tiers[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(tiers.size()) - 1))],
        .prefix_cache = prefix_cache,
        .num_speculative_tokens = static_cast<std::int32_t>(rng.chance(0.6) ? rng.between(1, 8) : 0),
        .ngram = {1, 3},
        .kv_ram_bytes = ram_tier ? std::uint64_t{1} << 20 : 0,
        .preemption = ram_tier ? "swap" : "auto",
    });
    const Arrivals arrivals{static_cast<std::size_t>(rng.between(1, std::ssize(requests))),
                            static_cast<int>(rng.between(1, 12))};
    const auto together = run_all(*mixed, requests, arrivals);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(cat("request ", i));
      expect_same(run_one(*reference, requests[i]), together[i]);
    }
    const auto stats = mixed->stats();
    EXPECT_EQ(stats.running + stats.waiting, 0);
    EXPECT_EQ(stats.blocks_used, 0);
    happened.preemptions += stats.preemptions;
    happened.swaps += stats.kv.preemptions_by[static_cast<std::size_t>(PreemptionKind::swap)];
    happened.prefix_hits += stats.prefix_hits;
    happened.accepted_tokens += stats.accepted_tokens;
    happened.shared_positions += stats.shared_positions;
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(SameBits, InTwoHundredRandomMixes) {
  Happened happened;
  int family = 0;
  for (const char* architecture : {"llama", "qwen2", "gemma3"}) {
    const TinyModelFile model(architecture);
    run_mixes(model.path(), 1000 + 100 * static_cast<std::uint64_t>(family++), 67, happened);
  }
  EXPECT_GT(happened.preemptions, 50u) << "the pools are meant to be too small for the mixes";
  EXPECT_GT(happened.swaps, 15u);
  EXPECT_GT(happened.prefix_hits, 1000u) << "the mixes are meant to share beginnings";
  EXPECT_GT(happened.accepted_tokens, 100u);
  EXPECT_GT(happened.shared_positions, 10'000);
}

TEST(SameBits, OnEveryCpuTier) {
  const TinyModelFile model("llama");
  Rng rng(77);
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(random_request(rng, 100));
  auto scalar = open({.model_path = model.path(), .threads = 1, .kv_memory_bytes = 16 << 20, .cpu_tier = "scalar"});
  const auto expected = run_all(*scalar, requests);
  for (const std::string& tier : supported_tiers()) {
    SCOPED_TRACE(tier);
    auto engine = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = 16 << 20, .cpu_tier = tier});
    const auto answers = run_all(*engine, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) expect_same(expected[i], answers[i]);
  }
}

}  // namespace
}  // namespace quire::test
