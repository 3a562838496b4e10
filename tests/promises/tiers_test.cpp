// KV tiers in the served engine: content that left the pool comes back from RAM, from files, and after a restart, and
// never changes a bit of an answer.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "quire/base/rng.h"
#include "tests/support/models.h"
#include "tests/support/run.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_model.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::GenerateRequest;

const char* const kFamilies[] = {"llama", "qwen2", "gemma3"};

GenerateRequest request_for(std::vector<TokenId> prompt, std::int32_t max_tokens = 8) {
  GenerateRequest request = greedy_request(std::move(prompt), max_tokens);
  request.sampling.temperature = 1;
  request.sampling.seed = 17;
  return request;
}

std::string refusal(EngineOptions options) {
  options.context = 128;
  options.kv_memory_bytes = kMiB;
  const auto engine = Engine::open(std::move(options));
  return engine.ok() ? "" : engine.error().message;
}

/// As much memory as so many blocks of the model need.
std::uint64_t bytes_of(const std::string& model, std::int64_t blocks, std::int64_t block_size) {
  const auto probe = open({.model_path = model, .kv_memory_bytes = kMiB});
  return static_cast<std::uint64_t>(probe->info().kv_bytes_per_token * blocks * block_size);
}

std::uint64_t by(const Engine& engine, PreemptionKind kind) {
  return engine.stats().kv.preemptions_by[static_cast<std::size_t>(kind)];
}

/// Ten answers that together need several times the pool of 24 blocks of 8 tokens.
std::vector<GenerateRequest> heavy_load() {
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 10; ++i)
    requests.push_back(request_for(random_prompt(50 + i, 20 + static_cast<std::int64_t>(i)), 60));
  return requests;
}

TEST(Tiers, PreemptedByRecomputeBySwapToRamAndBySwapToFilesAnAnswerHasTheSameBits) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const TinyModelFile model(family);
    const TemporaryDirectory directory;
    const auto requests = heavy_load();
    auto roomy = open({.model_path = model.path(), .block_size = 8});
    std::vector<Collected> expected;
    for (const GenerateRequest& request : requests) expected.push_back(run_one(*roomy, request));
    const auto served = [&](std::string preemption, std::int64_t ram_blocks, std::string swap_dir) {
      auto engine = open({.model_path = model.path(),
                          .kv_memory_bytes = bytes_of(model.path(), 24, 8),
                          .block_size = 8,
                          .kv_ram_bytes = bytes_of(model.path(), ram_blocks, 8),
                          .kv_swap_dir = std::move(swap_dir),
                          .preemption = std::move(preemption)});
      const auto answers = run_all(*engine, requests);
      for (std::size_t i = 0; i < requests.size(); ++i) expect_same(expected[i], answers[i]);
      EXPECT_EQ(engine->stats().blocks_used, 0);
      EXPECT_EQ(engine->stats().kv.tiers.frames_private, engine->stats().kv.tiers.reads_in_flight);
      return engine;
    };
    const auto recomputed = served("recompute", 0, "");
    EXPECT_GT(by(*recomputed, PreemptionKind::recompute_asked), 2u);
    const auto swapped = served("swap", 200, "");
    EXPECT_GT(by(*swapped, PreemptionKind::swap), 2u);
    EXPECT_GT(swapped->stats().kv.tiers.blocks_loaded, 10u);
    EXPECT_LT(swapped->stats().kv.recomputed_tokens, recomputed->stats().kv.recomputed_tokens);
    served("recompute", 3, directory.path());
    // Whether a block is in its file before it is wanted again is the disk's affair; after a restart all are.
    const auto restarted = served("swap", 2, directory.path());
    EXPECT_GT(restarted->stats().kv.tiers.reads[0], 0u) << "nothing came back from files";
  }
}

// B24, B25: after a restart the keys must be those of content that is there: the same bits, with or without files.
// P08: what was restored was said to be there, and the next request reused nothing.
TEST(Tiers, B24B25P08AfterARestartTheCacheIsWarmFromFilesAndTheBitsAreThoseOfAColdStart) {
  for (const char* family : kFamilies) {
    for (const bool compresses : {false, true}) {
      SCOPED_TRACE(family);
      const TinyModelFile model(family);
      const TemporaryDirectory directory;
      const auto started = [&] {
        return open({.model_path = model.path(),
                     .kv_ram_bytes = kMiB,
                     .kv_swap_dir = directory.path(),
                     .kv_swap_compression = compresses});
      };
      const GenerateRequest request = request_for(random_prompt(1, 208), 20);
      const Collected cold = run_one(*started(), request);
      EXPECT_EQ(cold.usage.cached_tokens, 0);
      {
        const auto engine = started();
        EXPECT_EQ(engine->info().kv_swap_files_found, 227 / 16 * engine->info().num_layer_groups);
        const Collected warm = run_one(*engine, request);
        EXPECT_EQ(warm.usage.cached_tokens, 207);
        expect_same(cold, warm);
        EXPECT_EQ(engine->stats().computed_tokens, 1u + 19);
      }
      auto longer = request;
      longer.prompt = random_prompt(1, 208);
      for (TokenId token : cold.ids()) longer.prompt.push_back(token);
      EXPECT_EQ(run_one(*started(), longer).usage.cached_tokens, 227 / 16 * 16);
      const auto without = open({.model_path = model.path()});
      const Collected plain = run_one(*without, request);
      EXPECT_EQ(plain.usage.cached_tokens, 0);
      expect_same(cold, plain);
    }
  }
}

TEST(Tiers, FilesOfAnotherModelOrAnotherKvTypeAreNotTaken) {
  const TinyModelFile llama("llama"), qwen("qwen2");
  const TemporaryDirectory directory;
  const auto cached = [&](const std::string& path, const char* kv_type) {
    auto engine = open({.model_path = path, .kv_type = kv_type, .kv_ram_bytes = kMiB, .kv_swap_dir = directory.path()});
    return run_one(*engine, request_for(random_prompt(2, 100), 1)).usage.cached_tokens;
  };
  EXPECT_EQ(cached(llama.path(), "f16"), 0);
  EXPECT_EQ(cached(qwen.path(), "f16"), 0);
  EXPECT_EQ(cached(llama.path(), "bf16"), 0);
  EXPECT_EQ(cached(llama.path(), "f16"), 96);
  EXPECT_EQ(cached(qwen.path(), "f16"), 96);
}

TEST(Tiers, DamagedCutEmptyAndMissingFilesCostHitsAndChangeNothing) {
  const TinyModelFile model("llama");
  const GenerateRequest request = request_for(random_prompt(3, 160), 10);
  const Collected expected = run_one(*open({.model_path = model.path()}), request);
  for (int damage = 0; damage < 4; ++damage) {
    SCOPED_TRACE(damage);
    const TemporaryDirectory directory;
    const auto started = [&] {
      return open({.model_path = model.path(), .kv_ram_bytes = kMiB, .kv_swap_dir = directory.path()});
    };
    expect_same(expected, run_one(*started(), request));
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
      if (entry.path().extension() != ".kv") continue;
      const auto size = std::filesystem::file_size(entry);
      if (damage == 0) {
        std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(size / 2));
        const char byte = static_cast<char>(file.peek() ^ 4);
        file.seekp(static_cast<std::streamoff>(size / 2));
        file.put(byte);
      } else if (damage == 3) {
        std::filesystem::remove(entry);
      } else {
        std::filesystem::resize_file(entry, damage == 1 ? size / 2 : 0);
      }
    }
    {
      const auto engine = started();
      if (damage == 3) {  // while it runs, since what is missing at the start is not even looked for
        expect_same(expected, run_one(*engine, request));
        continue;
      }
      const Collected answer = run_one(*engine, request);
      EXPECT_EQ(answer.usage.cached_tokens, 0);
      expect_same(expected, answer);
      EXPECT_GT(engine->stats().kv.tiers.reads[static_cast<std::size_t>(TransferOutcome::damaged)], 0u);
    }
    const Collected again = run_one(*started(), request);  // written anew
    EXPECT_GT(again.usage.cached_tokens, 0);
    expect_same(expected, again);
  }
}

TEST(Tiers, FilesThatVanishWhileServingAreMisses) {
  const TinyModelFile model("qwen2");
  const TemporaryDirectory directory;
  const GenerateRequest request = request_for(random_prompt(4, 160), 10);
  const auto started = [&] {
    return open({.model_path = model.path(), .kv_ram_bytes = kMiB, .kv_swap_dir = directory.path()});
  };
  const Collected expected = run_one(*started(), request);
  const auto engine = started();
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    if (entry.path().extension() == ".kv") std::filesystem::remove(entry);
  const Collected answer = run_one(*engine, request);
  expect_same(expected, answer);
  EXPECT_EQ(answer.usage.cached_tokens, 0);
  EXPECT_GT(engine->stats().kv.tiers.reads[static_cast<std::size_t>(TransferOutcome::missing)], 0u);
}

TEST(Tiers, ReadsAndWritesThatTheSystemFailsAreCountedMisses) {
  const TinyModelFile model("llama");
  const TemporaryDirectory directory;
  const GenerateRequest request = request_for(random_prompt(5, 160), 10);
  const auto started = [&] {
    return open({.model_path = model.path(), .kv_ram_bytes = kMiB, .kv_swap_dir = directory.path()});
  };
  const Collected expected = run_one(*started(), request);
  const auto engine = started();
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    if (entry.path().extension() == ".kv") files.push_back(entry.path());
  ASSERT_FALSE(files.empty());
  for (const auto& file : files) {  // a directory can be opened, but neither read nor replaced
    std::filesystem::remove(file);
    std::filesystem::create_directory(file);
  }
  const Collected answer = run_one(*engine, request);
  expect_same(expected, answer);
  EXPECT_EQ(answer.usage.cached_tokens, 0);
  const auto failed = static_cast<std::size_t>(TransferOutcome::io_error);
  EXPECT_GT(engine->stats().kv.tiers.reads[failed], 0u);
  // What was computed again is written again, in the background.
  for (std::uint64_t i = 0; i < 1000 && engine->stats().kv.tiers.writes[failed] == 0; ++i)
    run_one(*engine, request_for(random_prompt(1000 + i, 4), 1));
  EXPECT_GT(engine->stats().kv.tiers.writes[failed], 0u);
  expect_same(expected, run_one(*engine, request));
}

TEST(Tiers, ABudgetOfFilesIsKept) {
  const TinyModelFile model("llama");
  const TemporaryDirectory directory;
  constexpr std::uint64_t kBudget = 100'000;
  {
    const auto engine = open(
        {.model_path = model.path(), .kv_ram_bytes = kMiB, .kv_swap_dir = directory.path(), .kv_swap_bytes = kBudget});
    for (std::uint64_t i = 0; i < 20; ++i) run_one(*engine, request_for(random_prompt(100 + i, 200), 1));
  }
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) bytes += entry.file_size();
  EXPECT_LE(bytes, kBudget);
  EXPECT_GT(bytes, kBudget / 2);
}

TEST(Tiers, CancelledAtAnyMomentNothingIsLost) {
  const TinyModelFile model("llama");
  const TemporaryDirectory directory;
  auto engine = open({.model_path = model.path(),
                      .kv_memory_bytes = bytes_of(model.path(), 24, 8),
                      .block_size = 8,
                      .kv_ram_bytes = bytes_of(model.path(), 30, 8),
                      .kv_swap_dir = directory.path()});
  auto uncached = open({.model_path = model.path(), .prefix_cache = false});
  for (std::uint64_t round = 0; round < 30; ++round) {
    std::vector<RequestId> ids;
    for (std::uint64_t i = 0; i < 5; ++i) {
      auto submitted = engine->submit(request_for(random_prompt((round + i) % 7, 60), 40), [](engine::Delta) {});
      ids.push_back(*submitted.id);
    }
    for (RequestId id : ids) engine->cancel(id);
    const GenerateRequest request = request_for(random_prompt(round % 7, 60 + static_cast<std::int64_t>(round)), 4);
    expect_same(run_one(*uncached, request), run_one(*engine, request));
  }
  ASSERT_TRUE(engine->wait_idle(60'000));
  EXPECT_EQ(engine->stats().blocks_used, 0);
  EXPECT_EQ(engine->stats().kv.tiers.frames_private, engine->stats().kv.tiers.reads_in_flight);
}

TEST(Tiers, WhatDoesNotGoTogetherIsRefusedByName) {
  const TinyModelFile model("llama");
  const TemporaryDirectory directory;
  const EngineOptions base{.model_path = model.path()};
  EngineOptions options = base;
  options.kv_swap_dir = directory.path();
  EXPECT_EQ(refusal(options), "--kv-swap-dir needs --kv-ram-bytes, which is not given");
  options = base;
  options.preemption = "swap";
  EXPECT_EQ(refusal(options), "--preemption swap needs --kv-ram-bytes, which is not given");
  options.preemption = "never";
  EXPECT_EQ(refusal(options), "preemption 'never' is not known; there are: auto, swap, recompute");
  options = base;
  options.kv_ram_bytes = kMiB;
  options.prefix_cache = false;
  EXPECT_EQ(refusal(options), "--kv-ram-bytes needs the prefix cache; found --prefix-cache off");
  options.prefix_cache = true;
  options.kv_ram_bytes = 10;
  EXPECT_NE(refusal(options).find("less than one block"), std::string::npos);
  options.kv_ram_bytes = kMiB;
  options.kv_swap_dir = directory.path() + "/no/such";
  EXPECT_NE(refusal(options).find("cannot be made"), std::string::npos);
  options.kv_swap_dir = directory.path();
  const auto owner = open(options);
  EXPECT_NE(refusal(options).find("in use by another process"), std::string::npos);
}

TEST(Tiers, ARealModelAnswersTheSameColdWarmSwappedAndAfterARestart) {
  const TemporaryDirectory directory;
  const auto requests = [] {
    std::vector<GenerateRequest> list;
    for (std::uint64_t i = 0; i < 6; ++i) list.push_back(request_for(random_prompt(200 + i, 96), 40));
    return list;
  }();
  const std::string model = model_path(kSmolLm2);
  std::vector<Collected> cold;
  {
    auto roomy = open({.model_path = model, .threads = 2, .kv_memory_bytes = 64 * kMiB});
    for (const GenerateRequest& request : requests) cold.push_back(run_one(*roomy, request));
  }
  const auto tight = [&] {
    return open({.model_path = model,
                 .threads = 2,
                 .kv_memory_bytes = bytes_of(model, 24, 16),
                 .kv_ram_bytes = 64 * kMiB,
                 .kv_swap_dir = directory.path(),
                 .preemption = "swap"});
  };
  {
    auto engine = tight();
    const auto answers = run_all(*engine, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) expect_same(cold[i], answers[i]);
    EXPECT_GT(by(*engine, PreemptionKind::swap), 0u);
  }
  auto engine = tight();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Collected warm = run_one(*engine, requests[i]);
    expect_same(cold[i], warm);
    EXPECT_EQ(warm.usage.cached_tokens, 95);
  }
}

}  // namespace
}  // namespace quire::test
