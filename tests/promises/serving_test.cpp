// What the engine promises to everyone it serves, on tiny models: nobody fails because of someone else, every request
// ends once, every block comes back, and a recorded run replays to the same plans.

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <utility>

#include "quire/core/command_log.h"
#include "quire/text/tokenizer.h"
#include "tests/support/run.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_model.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::FinishReason;
using engine::GenerateRequest;

GenerateRequest request_of(std::int32_t length, std::int32_t max_tokens, std::int32_t salt = 0) {
  GenerateRequest request{.max_tokens = max_tokens, .ignore_eos = true, .sampling = {.temperature = 0}};
  for (std::int32_t i = 0; i < length; ++i) request.prompt.push_back(TokenId{(i * 7 + salt * 13 + 1) % 256});
  return request;
}

void expect_idle(const Engine& engine) {
  const auto stats = engine.stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.blocks_used, 0);
}

TEST(Serving, SixtyFourRequestsShareAPoolForTwentyAndNoneFails) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = pool_bytes(model.path(), 20 * 64)});
  std::vector<GenerateRequest> requests;
  for (std::int32_t i = 0; i < 64; ++i) requests.push_back(request_of(24, 40, i));
  const auto together = run_all(*engine, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(together[i].finish.reason, FinishReason::length);
    EXPECT_EQ(together[i].num_finishes, 1);
    EXPECT_EQ(together[i].tokens.size(), 40u);
    EXPECT_EQ(together[i].usage.completion_tokens, 40);
    EXPECT_EQ(together[i].ids(), run_one(*engine, requests[i]).ids());
  }
  EXPECT_GT(engine->stats().preemptions, 0u);
  expect_idle(*engine);
}

TEST(Serving, ARequestThatCanNeverFitIsRefusedWithTheNumbersAndOthersGoOn) {
  const TinyModelFile model("llama");
  auto engine =
      open({.model_path = model.path(), .threads = 1, .context = 256, .kv_memory_bytes = pool_bytes(model.path(), 64)});
  const auto refused = engine->submit(request_of(100, 10), [](engine::Delta) { FAIL(); });
  EXPECT_FALSE(refused.id.has_value());
  EXPECT_NE(refused.refusal.message.find("64"), std::string::npos) << refused.refusal.message;
  EXPECT_NE(refused.refusal.message.find("110"), std::string::npos) << refused.refusal.message;
  EXPECT_FALSE(engine->submit(request_of(256, 1), [](engine::Delta) { FAIL(); }).id.has_value());
  EXPECT_FALSE(engine->submit(request_of(0, 1), [](engine::Delta) { FAIL(); }).id.has_value());
  GenerateRequest outside = request_of(3, 1);
  outside.prompt[1] = TokenId{100000};
  EXPECT_EQ(engine->submit(outside, [](engine::Delta) { FAIL(); }).refusal.field, "prompt");
  EXPECT_EQ(run_one(*engine, request_of(10, 5)).tokens.size(), 5u);
  expect_idle(*engine);
}

TEST(Serving, WithoutMaxTokensTheAnswerEndsWithTheContextOrThePool) {
  const TinyModelFile model("llama");
  GenerateRequest request = request_of(10, 1);
  request.max_tokens.reset();
  auto small_context = open({.model_path = model.path(), .threads = 1, .context = 48, .kv_memory_bytes = 1 << 22});
  const auto by_context = run_one(*small_context, request);
  EXPECT_EQ(by_context.finish.reason, FinishReason::length);
  EXPECT_EQ(by_context.tokens.size(), 38u);
  auto small_pool =
      open({.model_path = model.path(), .threads = 1, .context = 256, .kv_memory_bytes = pool_bytes(model.path(), 64)});
  const auto by_pool = run_one(*small_pool, request);
  EXPECT_EQ(by_pool.finish.reason, FinishReason::length);
  EXPECT_GE(by_pool.tokens.size(), 50u);
  expect_idle(*small_pool);
}

TEST(Serving, CancelsAtAnyMomentEndOnceAndGiveTheBlocksBack) {
  const TinyModelFile model("qwen2");
  auto engine = open({.model_path = model.path(),
                      .threads = 2,
                      .kv_memory_bytes = pool_bytes(model.path(), 200),
                      .max_batch_tokens = 32});
  std::atomic<int> finishes{0}, cancelled{0};
  std::vector<RequestId> ids;
  for (std::int32_t i = 0; i < 40; ++i) {
    auto submitted = engine->submit(request_of(20 + i, 60, i), [&](engine::Delta delta) {
      if (!delta.finish) return;
      ++finishes;
      cancelled += delta.finish->reason == FinishReason::cancelled;
    });
    ids.push_back(*submitted.id);
    if (i % 3 == 0) engine->cancel(ids[static_cast<std::size_t>(i / 2)]);
    if (i % 5 == 0) engine->cancel(ids.back()), engine->cancel(ids.back());
  }
  engine->cancel(RequestId{999});
  engine->submit(request_of(20, 60, 40), [&](engine::Delta delta) {  // while it runs, for certain
    engine->cancel(delta.request);
    finishes += delta.finish.has_value();
    cancelled += delta.finish && delta.finish->reason == FinishReason::cancelled;
  });
  EXPECT_TRUE(engine->wait_idle(60'000));
  EXPECT_EQ(finishes, 41);
  EXPECT_GT(cancelled, 0);
  expect_idle(*engine);
}

TEST(Serving, DestroyingTheEngineEndsWhatIsLeft) {
  const TinyModelFile model("llama");
  std::atomic<int> finishes{0};
  {
    auto engine = open({.model_path = model.path(), .threads = 2, .kv_memory_bytes = 1 << 22});
    for (std::int32_t i = 0; i < 8; ++i) {
      engine->submit(request_of(30, 200, i), [&](engine::Delta delta) { finishes += delta.finish.has_value(); });
    }
  }
  EXPECT_EQ(finishes, 8);
}

TEST(Serving, AFullQueueRefusesAndAStoppingEngineToo) {
  const TinyModelFile model("llama");
  std::promise<void> started, go_on;
  auto engine = open(
      {.model_path = model.path(), .threads = 1, .kv_memory_bytes = 1 << 22, .max_batch_rows = 1, .max_waiting = 2});
  bool is_first = true;
  engine->submit(request_of(20, 20), [&](engine::Delta) {
    if (!std::exchange(is_first, false)) return;
    started.set_value();
    go_on.get_future().wait();  // the engine stands still with one request running
  });
  started.get_future().wait();
  const auto submit = [&](std::int32_t i) { return engine->submit(request_of(20, 20, i), [](engine::Delta) {}); };
  EXPECT_TRUE(submit(1).id);
  EXPECT_TRUE(submit(2).id);
  const auto refused = submit(3);
  EXPECT_FALSE(refused.id);
  EXPECT_EQ(refused.refusal.kind, engine::Refusal::Kind::overloaded);
  engine->stop_accepting();
  EXPECT_EQ(submit(4).refusal.kind, engine::Refusal::Kind::stopping);
  go_on.set_value();
  EXPECT_TRUE(engine->wait_idle(60'000));
  EXPECT_EQ(engine->stats().finished_length, 3u);
  EXPECT_EQ(engine->stats().refused, 2u);
}

TEST(Serving, RequestsSubmittedTogetherArriveInTheSameStepOrNotAtAll) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .threads = 1, .max_waiting = 8});
  std::vector<GenerateRequest> requests;
  for (std::int32_t i = 0; i < 8; ++i) requests.push_back(request_of(20, 1, i));
  run_all(*engine, requests);
  EXPECT_EQ(engine->stats().steps, 1u);

  const auto submit = [&] {
    std::vector<engine::Submission> submissions;
    for (const GenerateRequest& request : requests) submissions.push_back({request, [](engine::Delta) { FAIL(); }});
    return engine->submit_all(std::move(submissions));
  };
  requests[5].prompt.clear();
  const auto unsound = submit();
  EXPECT_TRUE(unsound.ids.empty());
  EXPECT_EQ(unsound.refusal.field, "prompt");
  requests[5] = requests[0];
  requests.push_back(requests[0]);
  const auto too_many = submit();
  EXPECT_TRUE(too_many.ids.empty());
  EXPECT_EQ(too_many.refusal.kind, engine::Refusal::Kind::invalid);
  EXPECT_EQ(too_many.refusal.message, "found 9 prompts at once, wanted at most 8 (--max-waiting)");
  EXPECT_TRUE(engine->wait_idle(0)) << "a refused request is in flight";
}

TEST(Serving, StopStringsNeverLeakAndEndTheAnswer) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .threads = 1, .kv_memory_bytes = 1 << 22});
  GenerateRequest request = request_of(12, 60);
  request.sampling = {.temperature = 1.5, .seed = 4};
  const auto free = run_one(*engine, request);
  int tried = 0;
  for (std::size_t at = 0; at + 3 < free.text.size(); at += 3) {
    const std::string stop = free.text.substr(at, 2);
    if (!is_valid_utf8(stop)) continue;
    ++tried;
    request.stop = {stop};
    const auto stopped = run_one(*engine, request);
    EXPECT_EQ(stopped.text, free.text.substr(0, free.text.find(stop)));
    EXPECT_EQ(stopped.finish.reason, FinishReason::stop);
    EXPECT_EQ(stopped.finish.stop_string, stop);
  }
  EXPECT_GT(tried, 3);
  expect_idle(*engine);
}

TEST(Serving, EndTokensAreNotPartOfTheAnswerAndMinTokensHoldsThemBack) {
  const TinyModelFile model("llama");
  auto engine = open({.model_path = model.path(), .threads = 1, .kv_memory_bytes = 1 << 22});
  GenerateRequest request = request_of(12, 30);
  const auto free = run_one(*engine, request);
  const TokenId third = free.tokens[2].token;
  const auto ids = free.ids();
  const auto first = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), third) - ids.begin());
  request.stop_tokens = {third};
  const auto stopped = run_one(*engine, request);
  EXPECT_EQ(stopped.tokens.size(), first);
  EXPECT_EQ(stopped.finish.stop_token, third);
  EXPECT_EQ(stopped.usage.completion_tokens, static_cast<std::int32_t>(first));
  request.min_tokens = 10;
  const auto held = run_one(*engine, request);
  ASSERT_GE(held.tokens.size(), 10u);
  for (int i = 0; i < 10; ++i) EXPECT_NE(held.tokens[static_cast<std::size_t>(i)].token, third);
}

TEST(Serving, ScoringGivesEachPromptPositionOnce) {
  const TinyModelFile model("gemma3");
  auto engine = open({.model_path = model.path(),
                      .threads = 2,
                      .kv_memory_bytes = pool_bytes(model.path(), 160),
                      .max_batch_tokens = 17});
  std::vector<GenerateRequest> requests;
  for (std::int32_t i = 0; i < 6; ++i) {
    requests.push_back(request_of(70, i % 2 == 0 ? 0 : 30, i));
    requests.back().scoring = engine::PromptScoring{i * 10, 2};
  }
  const auto answers = run_all(*engine, requests);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    ASSERT_EQ(answers[i].scores.size(), 70 - i * 10);
    for (std::size_t k = 0; k < answers[i].scores.size(); ++k) {
      const auto& row = answers[i].scores[k];
      EXPECT_EQ(row.position, static_cast<std::int32_t>(i * 10 + k));
      EXPECT_EQ(row.next_logprob.has_value(), row.position != 69);
      EXPECT_EQ(row.top.size(), 2u);
    }
    EXPECT_EQ(answers[i].tokens.size(), i % 2 == 0 ? 0u : 30u);
  }
}

TEST(Serving, ARecordedRunReplaysToTheSamePlans) {
  const TinyModelFile model("llama");
  const std::string path = model.path() + ".log";
  std::uint64_t steps = 0;
  {
    auto engine = open({.model_path = model.path(),
                        .threads = 2,
                        .kv_memory_bytes = pool_bytes(model.path(), 200),
                        .max_batch_tokens = 40,
                        .command_log = path});
    std::vector<GenerateRequest> requests;
    for (std::int32_t i = 0; i < 20; ++i) requests.push_back(request_of(10 + i, 50, i));
    run_all(*engine, requests);
    EXPECT_GT(engine->stats().preemptions, 0u);
    EXPECT_TRUE(engine->wait_idle(60'000));
    steps = engine->stats().steps;
  }
  std::ifstream file(path, std::ios::binary);
  const std::string log((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::filesystem::remove(path);
  MemoryLog again;
  const auto result = replay(std::as_bytes(std::span(log)), &again);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->first_difference, std::nullopt);
  EXPECT_GE(result->plan_digests.size(), steps);
  const auto bytes = std::as_bytes(std::span(log));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), again.bytes().begin(), again.bytes().end()));
}

}  // namespace
}  // namespace quire::test
