// On a real model: whatever paging does, an answer has the bits of the same request served alone without a cache.
// (tiers_test.cpp has SmolLM2's cache after a restart, layer_groups_test.cpp Gemma's layouts, vattention_test.cpp
// single answers over vAttention.)

#include <gtest/gtest.h>

#include "tests/support/models.h"
#include "tests/support/run.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_engine.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::GenerateRequest;

EngineOptions options_of(std::uint64_t kv_memory_bytes = 64 * kMiB) {
  EngineOptions options;
  options.model_path = model_path(kSmolLm2);
  options.threads = 2;
  options.kv_memory_bytes = kv_memory_bytes;
  return options;
}

EngineOptions uncached() {
  EngineOptions options = options_of();
  options.prefix_cache = false;
  return options;
}

EngineOptions vattention(std::uint64_t kv_memory_bytes = 64 * kMiB) {
  EngineOptions options = options_of(kv_memory_bytes);
  options.kv_manager = "vattention";
  options.kv_page_group = 64 << 10;
  return options;
}

GenerateRequest request_of(std::vector<TokenId> prompt, std::int32_t max_tokens) {
  GenerateRequest request = greedy_request(std::move(prompt), max_tokens);
  request.sampling.temperature = 1;
  request.sampling.seed = 29;
  request.sampling.repetition_penalty = 1.1;
  return request;
}

/// Prompts of 77 common tokens and some of their own.
std::vector<GenerateRequest> requests_of_one_document(std::int32_t max_tokens) {
  std::vector<GenerateRequest> requests;
  for (std::int64_t own : {3, 20, 52}) {
    auto prompt = random_prompt(1, 77);
    for (TokenId token : random_prompt(static_cast<std::uint64_t>(own), own)) prompt.push_back(token);
    requests.push_back(request_of(prompt, max_tokens));
  }
  return requests;
}

std::vector<Collected> alone(const std::vector<GenerateRequest>& requests) {
  auto engine = open(uncached());
  std::vector<Collected> answers;
  for (const GenerateRequest& request : requests) answers.push_back(run_one(*engine, request));
  return answers;
}

void expect_all_same(const std::vector<Collected>& expected, const std::vector<Collected>& found) {
  ASSERT_EQ(expected.size(), found.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(cat("answer ", i));
    expect_same(expected[i], found[i]);
  }
}

TEST(RealModel, BlocksOf8To128TokensGiveTheSameBitsColdAndWarm) {
  const auto requests = requests_of_one_document(8);
  const auto expected = alone(requests);
  for (std::int64_t block_size : {8, 16, 32, 64, 128}) {
    SCOPED_TRACE(cat("blocks of ", block_size));
    EngineOptions options = options_of();
    options.block_size = block_size;
    options.max_batch_tokens = 50;
    auto engine = open(options);
    expect_all_same(expected, run_all(*engine, requests));
    expect_all_same(expected, run_all(*engine, requests));
    EXPECT_GT(engine->stats().prefix_hits, 0u);
  }
}

TEST(RealModel, APartlyCachedBlockGivesTheBitsOfAColdStart) {
  const auto requests = requests_of_one_document(8);
  const auto expected = alone(requests);
  EngineOptions options = options_of();
  options.block_size = 32;
  auto engine = open(options);
  std::vector<Collected> answers;
  for (const GenerateRequest& request : requests) answers.push_back(run_one(*engine, request));
  expect_all_same(expected, answers);
  // The first has 80 tokens in its prompt and 87 with KV: two blocks and 13 slots of the third are common.
  EXPECT_EQ(answers[1].usage.cached_tokens, 64) << "the third block of the first is not full";
  EXPECT_EQ(answers[2].usage.cached_tokens, 77) << "the third block of the second is";
}

TEST(RealModel, EveryTierOfTheCpuGivesTheSameBits) {
  const std::vector<GenerateRequest> requests = {request_of(random_prompt(5, 20), 4),
                                                 request_of(random_prompt(6, 9), 5)};
  const auto expected = alone(requests);
  for (CpuTier tier : kAllCpuTiers) {
    if (!cpu_supports(tier)) continue;
    SCOPED_TRACE(to_string(tier));
    EngineOptions options = options_of();
    options.cpu_tier = std::string(to_string(tier));
    auto engine = open(options);
    expect_all_same(expected, run_all(*engine, requests));
  }
}

TEST(RealModel, PreemptedByRecomputeAndBySwapToRamAndThroughFilesAnswersHaveTheSameBits) {
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 4; ++i) requests.push_back(request_of(random_prompt(30 + i, 60), 40));
  const auto expected = alone(requests);
  const std::uint64_t tight = pool_bytes(options_of().model_path, 18 * 16);  // of the 25 blocks that all four need
  const auto served = [&](const EngineOptions& options, PreemptionKind kind) {
    auto engine = open(options);
    expect_all_same(expected, run_all(*engine, requests));
    EXPECT_GT(engine->stats().kv.preemptions_by[static_cast<std::size_t>(kind)], 0u);
    EXPECT_EQ(engine->stats().blocks_used, 0);
    return engine->stats().kv.tiers;
  };
  EngineOptions options = options_of(tight);
  options.preemption = "recompute";
  options.prefix_cache = false;
  served(options, PreemptionKind::recompute_asked);
  options = options_of(tight);
  options.kv_ram_bytes = 64 * kMiB;
  options.preemption = "swap";
  EXPECT_GT(served(options, PreemptionKind::swap).blocks_loaded, 0u);
  const TemporaryDirectory directory;
  options.kv_ram_bytes = pool_bytes(options.model_path, 2 * 16);
  options.kv_swap_dir = directory.path();
  options.preemption = "recompute";
  EXPECT_GT(served(options, PreemptionKind::recompute_asked).reads[0], 0u) << "nothing came back from files";
}

/// Gemma 3 270M: six layer groups, all but one with a window of 512 tokens. Prompts and answers pass it.
class Gemma270mTiers : public testing::Test {
 protected:
  static EngineOptions gemma(std::int64_t pool_tokens) {
    EngineOptions options = options_of();
    options.model_path = model_path(kGemma270m);
    options.context = 1024;
    options.kv_memory_bytes = static_cast<std::uint64_t>(pool_tokens) * 18 * 2 * 256 * 2;  // K and V of a head in f16
    return options;
  }

  /// Of the uniform layout, without a cache, one after another.
  static std::vector<Collected> uniform(const std::vector<GenerateRequest>& requests) {
    EngineOptions options = gemma(1024);
    options.kv_layout = "uniform";
    options.prefix_cache = false;
    auto engine = open(options);
    EXPECT_EQ(engine->info().num_layer_groups, 1);
    std::vector<Collected> answers;
    for (const GenerateRequest& request : requests) answers.push_back(run_one(*engine, request));
    return answers;
  }
};

TEST_F(Gemma270mTiers, PreemptedByRecomputeAndBySwapToRamAndThroughFilesAnswersHaveTheBitsOfTheUniformLayout) {
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 4; ++i)
    requests.push_back(request_of(random_prompt(60 + i, i == 0 ? 520 : 140), i == 0 ? 30 : 60));
  const auto expected = uniform(requests);
  const auto served = [&](EngineOptions options, PreemptionKind kind) {
    options.max_batch_tokens = 64;
    auto engine = open(options);
    EXPECT_EQ(engine->info().num_layer_groups, 6);
    expect_all_same(expected, run_all(*engine, requests));
    EXPECT_GT(engine->stats().kv.preemptions_by[static_cast<std::size_t>(kind)], 0u);
    EXPECT_EQ(engine->stats().blocks_used, 0);
    return engine->stats().kv;
  };
  constexpr std::int64_t kTight = 1024;  // of 1,150 tokens
  EngineOptions options = gemma(kTight);
  options.preemption = "recompute";
  options.prefix_cache = false;
  const auto recomputed = served(options, PreemptionKind::recompute_asked).recomputed_tokens;
  EXPECT_GT(recomputed, 0u);
  options = gemma(kTight);
  options.kv_ram_bytes = 64 * kMiB;
  options.preemption = "swap";
  const auto swapped = served(options, PreemptionKind::swap);
  EXPECT_GT(swapped.tiers.blocks_loaded, 0u);
  EXPECT_EQ(swapped.recomputed_tokens, 0u);
  const TemporaryDirectory directory;
  options.kv_ram_bytes = gemma(16).kv_memory_bytes;  // less than what is preempted; the rest is in files
  options.kv_swap_dir = directory.path();
  options.preemption = "recompute";
  EXPECT_GT(served(options, PreemptionKind::recompute_asked).tiers.reads[0], 0u) << "nothing came back from files";
}

TEST_F(Gemma270mTiers, AfterARestartTheCacheIsWarmFromFilesAndTheBitsAreThoseOfTheUniformLayout) {
  const TemporaryDirectory directory;
  std::vector<GenerateRequest> requests = {request_of(random_prompt(70, 704), 8), request_of(random_prompt(71, 96), 8)};
  const auto expected = uniform(requests);
  const auto started = [&] {
    EngineOptions options = gemma(1024);
    options.kv_ram_bytes = 64 * kMiB;
    options.kv_swap_dir = directory.path();
    return open(options);
  };
  {
    auto engine = started();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Collected cold = run_one(*engine, requests[i]);
      expect_same(expected[i], cold);
      EXPECT_EQ(cold.usage.cached_tokens, 0);
      const Collected warm = run_one(*engine, requests[i]);
      expect_same(expected[i], warm);
      EXPECT_EQ(warm.usage.cached_tokens, std::ssize(requests[i].prompt) - 1);
    }
  }
  auto engine = started();
  EXPECT_EQ(engine->info().kv_swap_files_found, 6 * (711 / 16 + 103 / 16)) << "a file for each block of each group";
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Collected answer = run_one(*engine, requests[i]);
    expect_same(expected[i], answer);
    EXPECT_EQ(answer.usage.cached_tokens, std::ssize(requests[i].prompt) - 1);
  }
  // Of the long one's 44 blocks the full group needs all, a window those from the one on that position 688 sees.
  const auto& reads = engine->stats().kv.tiers.reads;
  EXPECT_EQ(reads[static_cast<std::size_t>(TransferOutcome::done)], (44 + 5 * (44 - 11)) + 6 * 6u);
}

GenerateRequest gang_of(std::uint64_t seed, std::int32_t max_tokens) {
  GenerateRequest request = request_of(random_prompt(seed, 90), max_tokens);
  request.num_branches = 4;
  return request;
}

/// What four requests with the branches' seeds get.
std::vector<Collected> singles_of(const GenerateRequest& gang) {
  std::vector<GenerateRequest> requests(4, gang);
  for (std::size_t k = 0; k < requests.size(); ++k) {
    requests[k].num_branches = 1;
    requests[k].sampling.seed = sampling::branch_seed(gang.sampling.seed, k);
  }
  return alone(requests);
}

// B14: requests with n >= 2 pushed out of memory into the RAM tier found no room to come back.
TEST(RealModel, B14FourAnswersHaveTheBitsOfFourRequestsAlsoPreemptedOverBothManagers) {
  const std::vector<GenerateRequest> gangs = {gang_of(40, 45), gang_of(41, 45)};
  std::vector<std::vector<Collected>> expected;
  for (const GenerateRequest& gang : gangs) expected.push_back(singles_of(gang));
  const std::uint64_t tight = pool_bytes(options_of().model_path, 30 * 16);  // 5 + 4 * 4 blocks each
  EngineOptions swapping = options_of(tight);
  swapping.kv_ram_bytes = 64 * kMiB;
  swapping.preemption = "swap";
  const struct {
    const char* name;
    EngineOptions options;
    bool preempts;
  } settings[] = {{"paged", options_of(), false},
                  {"paged, swapping", swapping, true},
                  {"vattention", vattention(), false},
                  {"vattention, short of memory", vattention(18 * kMiB), true}};
  for (const auto& setting : settings) {
    SCOPED_TRACE(setting.name);
    auto engine = open(setting.options);
    const auto answers = run_branches(*engine, gangs);
    for (std::size_t i = 0; i < gangs.size(); ++i) expect_all_same(expected[i], answers[i]);
    EXPECT_EQ(engine->stats().preemptions > 0, setting.preempts);
    EXPECT_EQ(engine->stats().blocks_used, 0);
  }
}

TEST(RealModel, ABeamSearchOverVAttentionReturnsTheBeamsOfPaging) {
  std::vector<GenerateRequest> searches;
  for (std::int64_t length : {30, 100}) {
    GenerateRequest request = greedy_request(random_prompt(50, length), 12);
    request.top_logprobs.reset();
    request.beams = BeamParams{.width = 4, .num_returned = 4};
    searches.push_back(request);
  }
  auto paged = open(options_of());
  const auto expected = run_branches(*paged, searches);
  auto engine = open(vattention());
  const auto found = run_branches(*engine, searches);
  for (std::size_t i = 0; i < searches.size(); ++i)
    for (std::size_t k = 0; k < 4; ++k) {
      expect_same(expected[i][k], found[i][k]);
      EXPECT_EQ(expected[i][k].finish.score, found[i][k].finish.score);
    }
  EXPECT_EQ(engine->stats().blocks_used, 0);
  EXPECT_EQ(engine->stats().kv.refused_maps, 0u);
}

}  // namespace
}  // namespace quire::test
