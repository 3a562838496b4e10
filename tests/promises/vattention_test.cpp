// vAttention in the served engine: another memory, the same bits as paging.

#include <gtest/gtest.h>

#include <string>

#include "quire/base/rng.h"
#include "tests/support/models.h"
#include "tests/support/run.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_model.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::GenerateRequest;

constexpr std::uint64_t kKiB = 1 << 10;

EngineOptions vattention(std::string path, std::int64_t page_group = 64 << 10) {
  EngineOptions options;
  options.model_path = std::move(path);
  options.kv_manager = "vattention";
  options.kv_page_group = page_group;
  return options;
}

/// Of many lengths, around the ends of tiles.
std::vector<GenerateRequest> some_requests() {
  std::vector<GenerateRequest> requests;
  for (std::int64_t length : {1, 40, 63, 64, 65, 130, 300})
    requests.push_back(greedy_request(random_prompt(static_cast<std::uint64_t>(length), length), 30));
  return requests;
}

const char* const kFamilies[] = {"llama", "qwen2", "gemma3"};

TEST(VAttention, AnswersHaveTheBitsOfPagingAloneAndTogetherWhateverThePageGroup) {
  for (const char* family : kFamilies) {
    const TinyModelFile model(family);
    auto paged = open({.model_path = model.path()});
    std::vector<Collected> expected;
    for (const GenerateRequest& request : some_requests()) expected.push_back(run_one(*paged, request));
    for (std::int64_t page_group : {64 << 10, 2 << 20}) {
      auto engine = open(vattention(model.path(), page_group));
      const auto together = run_all(*engine, some_requests());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        SCOPED_TRACE(cat(family, ", page-groups of ", page_group, ", request ", i));
        expect_same(expected[i], run_one(*engine, some_requests()[i]));
        expect_same(expected[i], together[i]);
      }
      EXPECT_EQ(engine->stats().blocks_used, 0);
      EXPECT_EQ(engine->stats().kv.refused_maps, 0u);
      EXPECT_GT(engine->stats().kv.maps, 0u);
    }
  }
}

TEST(VAttention, SoItIsForTheOtherFormatsInSmallChunksAndOnSeveralThreads) {
  const TinyModelFile model("llama");
  for (const char* type : {"bf16", "f32"}) {
    auto paged = open({.model_path = model.path(), .kv_type = type});
    EngineOptions options = vattention(model.path());
    options.kv_type = type;
    options.max_batch_tokens = 17;
    options.threads = 3;
    auto engine = open(options);
    const auto answers = run_all(*engine, some_requests());
    for (std::size_t i = 0; i < answers.size(); ++i) expect_same(run_one(*paged, some_requests()[i]), answers[i]);
  }
}

TEST(VAttention, PreemptedRequestsGoOnWithTheSameBits) {
  const TinyModelFile model("qwen2");
  auto paged = open({.model_path = model.path()});
  EngineOptions options = vattention(model.path());
  options.kv_memory_bytes = 6 * 64 * kKiB;
  auto engine = open(options);
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 6; ++i) requests.push_back(greedy_request(random_prompt(50 + i, 200), 280));
  const auto answers = run_all(*engine, requests);
  EXPECT_GT(engine->stats().preemptions, 0u);
  for (std::size_t i = 0; i < requests.size(); ++i) expect_same(run_one(*paged, requests[i]), answers[i]);
  EXPECT_EQ(engine->stats().blocks_used, 0);
}

TEST(VAttention, AnAliasedPrefixChangesWhatIsComputedAndNoBit) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const TinyModelFile model(family);
    auto uncached = open({.model_path = model.path(), .prefix_cache = false});
    auto engine = open(vattention(model.path()));
    const auto prefix = random_prompt(3, 200);
    std::vector<GenerateRequest> requests;
    for (std::uint64_t i = 0; i < 5; ++i) {
      auto prompt = prefix;
      for (TokenId token : random_prompt(100 + i, 50)) prompt.push_back(token);
      requests.push_back(greedy_request(prompt, 20));
    }
    const Collected cold = run_one(*engine, requests[0]);
    EXPECT_EQ(cold.usage.cached_tokens, 0);
    const auto warm = run_all(*engine, requests);
    EXPECT_EQ(warm[0].usage.cached_tokens, 192) << "whole tiles of its own prompt, one token at least is computed";
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(warm[i].usage.cached_tokens, 192);
      expect_same(run_one(*uncached, requests[i]), warm[i]);
    }
    expect_same(cold, warm[0]);
  }
}

TEST(VAttention, ARealModelHasTheBitsOfPagingInABatchInChunksPreemptedAndWithAnAliasedPrefix) {
  const std::string path = model_path(kSmolLm2);
  auto paged = open({.model_path = path, .threads = 2, .kv_memory_bytes = 64 << 20, .prefix_cache = false});
  EngineOptions options = vattention(path);
  options.threads = 2;
  options.kv_memory_bytes = 9 << 20;  // six tiles
  options.max_batch_tokens = 40;
  auto engine = open(options);
  // Four grow from one tile to two.
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 4; ++i) requests.push_back(greedy_request(random_prompt(70 + i, 55), 15));
  const auto answers = run_all(*engine, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) expect_same(run_one(*paged, requests[i]), answers[i]);
  EXPECT_GT(engine->stats().preemptions, 0u);
  // Two have the first tile of a third, whose end they do not share.
  auto prompt = random_prompt(7, 90);
  run_one(*engine, greedy_request(prompt, 1));
  requests.clear();
  for (std::int32_t last : {1, 2}) {
    prompt.back().value = last;
    requests.push_back(greedy_request(prompt, 3));
  }
  const auto warm = run_all(*engine, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(warm[i].usage.cached_tokens, 64);
    expect_same(run_one(*paged, requests[i]), warm[i]);
  }
  EXPECT_GT(engine->stats().kv.ahead_maps, 0u);
}

TEST(VAttention, WhatItDoesNotCombineWithIsRefusedByName) {
  const TinyModelFile model("llama");
  const auto message = [](const EngineOptions& options) {
    auto engine = Engine::open(options);
    return engine.ok() ? std::string("opened") : engine.error().message;
  };
  EngineOptions options = vattention(model.path());
  options.kv_type = "int8";
  EXPECT_NE(message(options).find("int8 cannot be combined"), std::string::npos) << message(options);
  options = vattention(model.path(), 100'000);
  EXPECT_NE(message(options).find("power of two"), std::string::npos) << message(options);
  options = vattention(model.path());
  options.kv_manager = "pages";
  EXPECT_NE(message(options).find("paged, vattention or reserved"), std::string::npos) << message(options);
}

TEST(VAttention, ThePoolIsNoLargerThanTheMappingsAllow) {
  const TinyModelFile model("llama");
  EngineOptions options = vattention(model.path());
  options.kv_memory_bytes = 64 << 20;
  options.max_batch_rows = 4;
  options.kv_max_mappings = 4 + 4 + 1 + 3;
  auto engine = open(options);
  EXPECT_EQ(engine->info().num_blocks, 3);
  EXPECT_NE(engine->info().kv_memory_why.find("12 mappings"), std::string::npos) << engine->info().kv_memory_why;
}

}  // namespace
}  // namespace quire::test
