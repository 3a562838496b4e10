// The prefix cache in the served engine: what is found changes what is computed, and never a bit of what is answered.

#include <gtest/gtest.h>

#include <string>

#include "quire/base/rng.h"
#include "tests/support/run.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_model.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::GenerateRequest;

const char* const kFamilies[] = {"llama", "qwen2", "gemma3"};

// B24, P02: at temperature 0 the first, cold answer differed from later, cached ones, computed in other batch shapes.
TEST(PrefixCache, B24P02ColdWarmPartlyCachedAndUncachedAnswersHaveTheSameBits) {
  for (const char* family : kFamilies) {
    const TinyModelFile model(family);
    for (std::int64_t block_size : {8, 16, 64}) {
      SCOPED_TRACE(cat(family, ", blocks of ", block_size));
      auto cached = open({.model_path = model.path(), .block_size = block_size});
      auto uncached = open({.model_path = model.path(), .block_size = block_size, .prefix_cache = false});
      const auto prompt = random_prompt(1, 100);
      auto partial = prompt;
      for (std::size_t i = 77; i < partial.size(); ++i) partial[i].value = (partial[i].value + 1) % 256;
      const Collected without = run_one(*uncached, greedy_request(prompt));
      const Collected partial_without = run_one(*uncached, greedy_request(partial));
      const Collected cold = run_one(*cached, greedy_request(prompt));
      EXPECT_EQ(cold.usage.cached_tokens, 0);
      const std::int64_t filled = 107 / block_size * block_size;  // the last of 108 tokens has no KV
      expect_same(without, cold);
      for (int i = 0; i < 4; ++i) {
        const Collected warm = run_one(*cached, greedy_request(prompt));
        EXPECT_EQ(warm.usage.cached_tokens, std::min<std::int64_t>(99, filled));
        expect_same(without, warm);
      }
      const Collected partly = run_one(*cached, greedy_request(partial));
      EXPECT_EQ(partly.usage.cached_tokens, std::min<std::int64_t>(77, filled));
      expect_same(partial_without, partly);
      EXPECT_EQ(uncached->stats().prefix_hits, 0u);
      EXPECT_EQ(cached->stats().blocks_used, 0);
      EXPECT_GT(cached->stats().blocks_cached, 0);
    }
  }
}

TEST(PrefixCache, AConversationFindsItsOwnAnswer) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path()});
  auto uncached = open({.model_path = model.path(), .prefix_cache = false});
  auto history = random_prompt(2, 30);
  for (int turn = 0; turn < 4; ++turn) {
    const Collected answer = run_one(*engine, greedy_request(history, 20));
    expect_same(run_one(*uncached, greedy_request(history, 20)), answer);
    const auto known =
        static_cast<std::int32_t>(history.size()) - 8;  // a turn adds seven, and the last token had no KV
    if (turn > 0) {
      EXPECT_GE(answer.usage.cached_tokens, known / 16 * 16);
    }
    for (TokenId token : answer.ids()) history.push_back(token);
    for (TokenId token : random_prompt(static_cast<std::uint64_t>(10 + turn), 7)) history.push_back(token);
  }
}

TEST(PrefixCache, RequestsThatArriveTogetherComputeTheirCommonPrefixOnce) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .max_batch_tokens = 64});
  std::vector<GenerateRequest> requests;
  const auto prefix = random_prompt(3, 320);
  for (std::uint64_t i = 0; i < 8; ++i) {
    auto prompt = prefix;
    for (TokenId token : random_prompt(100 + i, 10)) prompt.push_back(token);
    requests.push_back(greedy_request(prompt, 4));
  }
  const auto answers = run_all(*engine, requests);
  // The prefix once, each tail, and each decode but the last token's.
  EXPECT_EQ(engine->stats().computed_tokens, 320u + 8 * 10 + 8 * 3);
  auto uncached = open({.model_path = model.path(), .prefix_cache = false});
  int cached = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    expect_same(run_one(*uncached, requests[i]), answers[i]);
    cached += answers[i].usage.cached_tokens;
  }
  EXPECT_EQ(cached, 7 * 320);
}

// B30: samples of one prompt repeated its prefill.
TEST(PrefixCache, B30EightSamplesComputeTheirPromptOnceAndEqualEightSingles) {
  const TinyModelFile model("qwen2");
  auto engine = open({.model_path = model.path()});
  auto uncached = open({.model_path = model.path(), .prefix_cache = false});
  std::vector<GenerateRequest> samples;
  for (std::uint64_t k = 0; k < 8; ++k) {
    samples.push_back(greedy_request(random_prompt(8, 400), 6));
    samples.back().sampling.temperature = 1;
    samples.back().sampling.seed = 5 + k;
  }
  const auto answers = run_all(*engine, samples);
  // 400 tokens are 25 blocks: all but the last token is found by the others.
  EXPECT_EQ(engine->stats().computed_tokens, 400u + 7 * 1 + 8 * 5);
  for (std::size_t k = 0; k < 8; ++k) expect_same(run_one(*uncached, samples[k]), answers[k]);
}

// P03: a prefix computed by a busy request could not be used by another.
TEST(PrefixCache, P03APrefixOfARunningRequestIsFound) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path()});
  const auto prefix = random_prompt(4, 200);
  std::mutex mutex;
  std::condition_variable changed;
  bool has_token = false, has_ended = false;
  auto busy = engine->submit(greedy_request(prefix, 300), [&](engine::Delta delta) {
    std::lock_guard lock(mutex);
    has_token = has_token || !delta.tokens.empty();
    has_ended = delta.finish.has_value();
    changed.notify_all();
  });
  ASSERT_TRUE(busy.id.has_value());
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return has_token; });
  }
  auto prompt = prefix;
  prompt.push_back(TokenId{65});
  EXPECT_GE(run_one(*engine, greedy_request(prompt, 1)).usage.cached_tokens, 192);
  engine->cancel(*busy.id);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return has_ended; });
}

// B19: a salt met blocks of another namespace.
TEST(PrefixCache, B19ASaltNeverMeetsAnothersBlocks) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path()});
  const auto cached = [&](const std::string& salt) {
    GenerateRequest request = greedy_request(random_prompt(5, 64), 1);
    request.cache_salt = salt;
    return run_one(*engine, request).usage.cached_tokens;
  };
  EXPECT_EQ(cached("X"), 0);
  EXPECT_EQ(cached(""), 0);
  EXPECT_EQ(cached("Y"), 0);
  EXPECT_EQ(cached(std::string("X\0", 2)), 0);
  EXPECT_EQ(cached("X"), 63);
  EXPECT_EQ(cached(""), 63);
}

// B22: scoring a prompt of more than one block failed the second time, when the prefix was cached.
TEST(PrefixCache, B22ScoringAPromptTwiceGivesTheSameRowsTwice) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path()});
  GenerateRequest request = greedy_request(random_prompt(6, 33), 1);
  request.scoring = engine::PromptScoring{0, 1};
  const Collected first = run_one(*engine, request);
  const Collected second = run_one(*engine, request);
  EXPECT_EQ(first.scores.size(), 33u);
  EXPECT_EQ(second.usage.cached_tokens, 0);
  expect_same(first, second);
  request.scoring->from = 20;
  const Collected tail = run_one(*engine, request);
  EXPECT_EQ(tail.usage.cached_tokens, 20);
  ASSERT_EQ(tail.scores.size(), 13u);
  for (std::size_t i = 0; i < 13; ++i) EXPECT_EQ(tail.scores[i].next_logprob, first.scores[20 + i].next_logprob);
}

// B27: token ids were cut to eight bits before they were hashed. The tiny models have 259 tokens.
TEST(PrefixCache, B27TokensThatDifferBy256AreOtherTokens) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path()});
  std::vector<TokenId> low(32, TokenId{1}), high(32, TokenId{257});
  run_one(*engine, greedy_request(low, 1));
  EXPECT_EQ(run_one(*engine, greedy_request(high, 1)).usage.cached_tokens, 0);
}

// P12: a long prompt of repeated filler, whose blocks have equal tokens at different depths.
TEST(PrefixCache, P12RepeatedFillerIsAnsweredAsWithoutACache) {
  const TinyModelFile model("llama");
  auto cached = open({.model_path = model.path()});
  auto uncached = open({.model_path = model.path(), .prefix_cache = false});
  for (const std::size_t length : {400u, 400u, 300u, 399u, 416u}) {
    const GenerateRequest request = greedy_request(std::vector<TokenId>(length, TokenId{32}));
    expect_same(run_one(*uncached, request), run_one(*cached, request));
  }
}

// P13: the cache matched the whole prompt and nothing was left to compute.
TEST(PrefixCache, P13APromptOfWholeBlocksSentTwiceComputesItsLastTokenOnly) {
  const TinyModelFile model("llama");
  for (std::int64_t block_size : {8, 16, 32}) {
    auto engine = open({.model_path = model.path(), .block_size = block_size});
    for (std::int64_t blocks : {1, 2, 5}) {
      const auto prompt = random_prompt(static_cast<std::uint64_t>(blocks), blocks * block_size);
      const Collected first = run_one(*engine, greedy_request(prompt, 1));
      const auto computed = engine->stats().computed_tokens;
      const Collected second = run_one(*engine, greedy_request(prompt, 1));
      EXPECT_EQ(engine->stats().computed_tokens - computed, 1u);
      EXPECT_EQ(second.usage.cached_tokens, blocks * block_size - 1);
      expect_same(first, second);
    }
  }
}

// P01: under eviction a request was answered with another conversation's text.
TEST(PrefixCache, P01UnderConcurrentEvictionNobodyGetsForeignContent) {
  const TinyModelFile model("llama");
  auto uncached = open({.model_path = model.path(), .prefix_cache = false});
  const auto per_token = static_cast<std::uint64_t>(uncached->info().kv_bytes_per_token);
  auto engine = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = 20 * 16 * per_token});
  const auto conversation = [](std::uint64_t i) { return greedy_request(random_prompt(1000 + i, 70), 12); };
  for (std::uint64_t i = 0; i < 20; ++i) run_one(*engine, conversation(i));
  for (std::uint64_t round = 0; round < 20; ++round) {
    const std::vector<GenerateRequest> pair = {conversation(round), conversation((round * 7 + 3) % 20)};
    const auto answers = run_all(*engine, pair);
    for (std::size_t i = 0; i < 2; ++i) expect_same(run_one(*uncached, pair[i]), answers[i]);
  }
  EXPECT_GT(engine->stats().prefix_evictions, 50u);
}

// P10: edge cases of the prefix cache slowly corrupted answers.
TEST(PrefixCache, P10ASoakOverATreeOfPrefixesEqualsColdAnswersAndEndsEmpty) {
  std::uint64_t hits = 0, preemptions = 0;
  for (const char* family : kFamilies) {
    const TinyModelFile model(family);
    auto uncached = open({.model_path = model.path(), .prefix_cache = false});
    const auto per_token = static_cast<std::uint64_t>(uncached->info().kv_bytes_per_token);
    auto engine = open({.model_path = model.path(),
                        .kv_memory_bytes = 40 * 8 * per_token,
                        .block_size = 8,
                        .max_batch_tokens = 60,
                        .max_waiting = 2000});
    Rng rng(7);
    for (int round = 0; round < 30; ++round) {
      std::vector<GenerateRequest> requests;
      for (int i = 0; i < 10; ++i) {
        // A path down a tree: at each level one of three stretches, cut near a block's border.
        std::vector<TokenId> prompt;
        std::uint64_t node = 1;
        for (auto level = rng.between(1, 4); level > 0; --level) {
          node = node * 3 + static_cast<std::uint64_t>(rng.between(0, 2));
          for (TokenId token : random_prompt(node, 24)) prompt.push_back(token);
        }
        const auto cut = prompt.size() - static_cast<std::size_t>(rng.between(0, 1) * 8) + 1 -
                         static_cast<std::size_t>(rng.between(0, 2));
        prompt.resize(std::min(cut, prompt.size()));
        requests.push_back(greedy_request(prompt, static_cast<std::int32_t>(rng.between(1, 20))));
        requests.back().sampling.temperature = rng.chance(0.5) ? 0 : 1;
        requests.back().sampling.seed = rng();
      }
      const auto answers = run_all(*engine, requests);
      const auto sample = static_cast<std::size_t>(rng.between(0, 9));
      expect_same(run_one(*uncached, requests[sample]), answers[sample]);
      const auto other = engine->submit(requests[0], [](engine::Delta) {});
      engine->cancel(*other.id);
      if (HasFatalFailure()) return;
    }
    ASSERT_TRUE(engine->wait_idle(60'000));
    EXPECT_EQ(engine->stats().blocks_used, 0);
    hits += engine->stats().prefix_hits;
    preemptions += engine->stats().preemptions;
  }
  EXPECT_GT(hits, 10'000u);
  EXPECT_GT(preemptions, 10u);
}

}  // namespace
}  // namespace quire::test
