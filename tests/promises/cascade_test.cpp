// Sequences that hold the same blocks are walked once by attention, and get the bits that each gets alone.

#include <gtest/gtest.h>

#include "tests/support/models.h"
#include "tests/support/run.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_model.h"

namespace quire::test {
namespace {

using engine::GenerateRequest;

/// `count` requests with a common prefix and a few tokens of their own each.
std::vector<GenerateRequest> with_prefix(std::int64_t prefix, std::uint64_t count, std::int32_t max_tokens) {
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto prompt = random_prompt(77, prefix);
    for (TokenId token : random_prompt(500 + i, 3 + static_cast<std::int64_t>(i) * 2)) prompt.push_back(token);
    requests.push_back(greedy_request(prompt, max_tokens));
  }
  return requests;
}

TEST(Cascade, RequestsWithACommonPrefixGetTheBitsOfSinglesInEveryFamilyAndFormat) {
  const auto requests = with_prefix(300, 7, 30);
  for (const char* family : {"llama", "qwen2", "gemma3"}) {
    const TinyModelFile model(family);
    for (const char* type : {"f16", "int8"}) {
      SCOPED_TRACE(testing::Message() << family << ", " << type);
      auto together = open({.model_path = model.path(), .threads = 2, .kv_type = type});
      auto alone = open({.model_path = model.path(), .kv_type = type, .prefix_cache = false});
      const auto answers = run_all(*together, requests);
      for (std::size_t i = 0; i < requests.size(); ++i) expect_same(run_one(*alone, requests[i]), answers[i]);
      EXPECT_GT(together->stats().shared_positions, 0);
      EXPECT_GT(together->stats().unshared_positions, 3 * together->stats().shared_positions);
      EXPECT_EQ(alone->stats().shared_positions, 0);
    }
  }
}

TEST(Cascade, SmolLm2EightRequestsWithAPrefixOfOneThousandTokensGetTheBitsOfSingles) {
  const auto requests = with_prefix(1000, 8, 6);
  const std::string model = model_path(kSmolLm2);
  auto together = open({.model_path = model, .threads = 2, .context = 1100, .kv_memory_bytes = 128 * kMiB});
  auto alone =
      open({.model_path = model, .threads = 2, .context = 1100, .kv_memory_bytes = 64 * kMiB, .prefix_cache = false});
  const auto answers = run_all(*together, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) expect_same(run_one(*alone, requests[i]), answers[i]);
  // Fifteen whole tiles of each of thirty layers, in most of the steps by all eight.
  EXPECT_GT(together->stats().shared_positions, 3 * 30 * 960);
  EXPECT_GT(together->stats().unshared_positions, 5 * together->stats().shared_positions);
}

}  // namespace
}  // namespace quire::test
