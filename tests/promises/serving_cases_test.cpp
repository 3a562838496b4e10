// Public bug reports of other engines about KV memory, served by a tiny model: each test names its case.
//
// Two do not apply. P06, saving and restoring named snapshots of a cache: there are none; what block files do for that
// is in tiers_test.cpp. M01, one model pushing another out of memory: a process serves one model.

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "quire/base/rng.h"
#include "tests/support/run.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_model.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::FinishReason;
using engine::GenerateRequest;

GenerateRequest request_of(std::uint64_t seed, std::int64_t length, std::int32_t max_tokens) {
  GenerateRequest request{.max_tokens = max_tokens, .ignore_eos = true, .sampling = {.temperature = 0}};
  for (std::int64_t i = 0; i < length; ++i)
    request.prompt.push_back(TokenId{static_cast<std::int32_t>(random_at(seed, static_cast<std::uint64_t>(i)) % 256)});
  return request;
}

/// What a sanitizer keeps back of freed memory and adds to used memory; 0 without one.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kKeptBack = 512 << 20;
#elif defined(__has_feature)
constexpr std::int64_t kKeptBack = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ? 512 << 20 : 0;
#else
constexpr std::int64_t kKeptBack = 0;
#endif

/// Of this process, in bytes.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// A pool smaller than the sum of what requests were promised failed every one of them at the first overflow.
TEST(ServingCases, K01FourRequestsOnAPoolForTwoAllFinishAndEqualTheirSoloRuns) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .kv_memory_bytes = pool_bytes(model.path(), 1024)});
  std::vector<GenerateRequest> requests;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) requests.push_back(request_of(seed, 100, 400));
  const auto together = run_all(*engine, requests);
  auto solo = open({.model_path = model.path(), .kv_memory_bytes = 16 << 20, .prefix_cache = false});
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(together[i].finish.reason, FinishReason::length);
    EXPECT_EQ(together[i].ids(), run_one(*solo, requests[i]).ids());
  }
}

// The context was divided by the number of slots, so that one long request was refused though memory was free.
TEST(ServingCases, K04OneRequestMayUseMostOfThePoolAndShortOnesRunBesideIt) {
  const TinyModelFile model("llama");
  auto engine =
      open({.model_path = model.path(), .kv_memory_bytes = pool_bytes(model.path(), 512), .max_batch_rows = 8});
  std::vector<GenerateRequest> requests = {request_of(1, 400, 20)};
  for (std::uint64_t seed = 2; seed <= 51; ++seed) requests.push_back(request_of(seed, 8, 4));
  for (const Collected& answer : run_all(*engine, requests)) EXPECT_EQ(answer.finish.reason, FinishReason::length);
}

// N + 1 conversations on N slots: the displaced one was computed again in every round.
TEST(ServingCases, P05FiveConversationsOnFourRowsComputeOnlyTheirNewTurns) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .kv_memory_bytes = 16 << 20, .max_batch_rows = 4});
  std::vector<std::vector<TokenId>> histories;
  for (std::uint64_t c = 0; c < 5; ++c) histories.push_back(request_of(c, 60, 1).prompt);
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::size_t c = 0; c < histories.size(); ++c) {
      GenerateRequest request = request_of(0, 0, 10);
      request.prompt = histories[c];
      const Collected answer = run_one(*engine, request);
      if (round > 0) {
        const auto known = static_cast<std::int32_t>(histories[c].size()) - 8;  // a turn adds seven, one has no KV
        EXPECT_GE(answer.usage.cached_tokens, known / 16 * 16) << "conversation " << c << ", round " << round;
      }
      for (TokenId token : answer.ids()) histories[c].push_back(token);
      for (TokenId token : request_of(100 * round + c, 7, 1).prompt) histories[c].push_back(token);
    }
  }
}

// Prefix caching did nothing on the CPU backend.
TEST(ServingCases, B29TheSecondTimeAPromptHitsAllBlocksButTheLastTokens) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .kv_memory_bytes = 16 << 20});
  run_one(*engine, request_of(1, 64, 1));
  EXPECT_EQ(run_one(*engine, request_of(1, 64, 1)).usage.cached_tokens, 63);
  EXPECT_EQ(engine->stats().prefix_hits, 63u);
}

// B03: host memory grew with every request, because a list of block ids was never drained in one mode.
// M03: a cache outside of the memory that had been given grew without bound.
TEST(ServingCases, B03M03AHundredThousandSmallRequestsLeaveTheMemoryFlat) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .kv_memory_bytes = pool_bytes(model.path(), 2048)});
  constexpr int kWave = 500;
  std::uint64_t seed = 0;
  const auto serve = [&](int num_requests) {
    for (int wave = 0; wave < num_requests / kWave; ++wave) {
      std::vector<GenerateRequest> requests;
      for (int i = 0; i < kWave; ++i) requests.push_back(request_of(++seed, 3, 1));
      run_all(*engine, requests);
    }
  };
  serve(20'000);
  const std::int64_t after_warm_up = resident_bytes();
  serve(80'000);
  EXPECT_LT(resident_bytes(), after_warm_up + after_warm_up / 100 + kKeptBack);
  EXPECT_EQ(engine->stats().finished_length, 100'000u);
  EXPECT_EQ(engine->stats().blocks_used, 0);
}

// There was no way to limit how long a request may wait in the queue.
TEST(ServingCases, B17WhoWaitsTooLongIsToldSoAndTheRunningOneIsUnharmed) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .kv_memory_bytes = 16 << 20, .max_batch_rows = 1, .max_queue_ms = 1});
  auto unhurried = open({.model_path = model.path(), .kv_memory_bytes = 16 << 20});
  std::vector<GenerateRequest> requests = {request_of(1, 20, 400)};
  for (std::uint64_t seed = 2; seed <= 21; ++seed) requests.push_back(request_of(seed, 10, 400));
  const auto answers = run_all(*engine, requests);
  std::uint64_t num_timed_out = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].num_finishes, 1);
    if (answers[i].finish.reason == FinishReason::timed_out) {
      ++num_timed_out;
      EXPECT_TRUE(answers[i].tokens.empty()) << "ended after it had started";
    } else {
      EXPECT_EQ(answers[i].finish.reason, FinishReason::length);
      EXPECT_EQ(answers[i].ids(), run_one(*unhurried, requests[i]).ids());
    }
  }
  EXPECT_GT(num_timed_out, 0u);
  EXPECT_EQ(engine->stats().finished_timed_out, num_timed_out);
  EXPECT_EQ(engine->stats().blocks_used, 0);
}

// Empty cache, nothing running, and requests waited for minutes.
TEST(ServingCases, B09NobodyWaitsWhileNothingRuns) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .kv_memory_bytes = pool_bytes(model.path(), 256)});
  Rng rng(9);
  for (int round = 0; round < 30; ++round) {
    std::vector<GenerateRequest> requests;
    for (std::int64_t i = rng.between(1, 12); i > 0; --i)
      requests.push_back(request_of(static_cast<std::uint64_t>(rng.between(1, 1000)), rng.between(1, 200),
                                    static_cast<std::int32_t>(rng.between(1, 40))));
    std::vector<RequestId> cancelled;
    for (std::int64_t i = rng.between(0, 3); i > 0; --i) {
      auto submitted = engine->submit(request_of(static_cast<std::uint64_t>(i), 50, 100), [](engine::Delta) {});
      if (submitted.id) cancelled.push_back(*submitted.id);
    }
    for (RequestId id : cancelled) engine->cancel(id);
    for (const Collected& answer : run_all(*engine, requests)) EXPECT_EQ(answer.num_finishes, 1);  // all of them end
    ASSERT_TRUE(engine->wait_idle(60'000)) << "work is left and nothing runs";
  }
  EXPECT_EQ(engine->stats().blocks_used, 0);
}

}  // namespace
}  // namespace quire::test
