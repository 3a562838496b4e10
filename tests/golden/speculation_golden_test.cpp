// Speculative decoding on a real model: whatever the sampling, the KV format and the memory, answers have the bits that
// they have without it, logprobs included, in fewer steps where the text repeats itself.

#include <gtest/gtest.h>

#include "quire/text/tokenizer.h"
#include "tests/support/models.h"
#include "tests/support/tiny_engine.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::GenerateRequest;

EngineOptions options_of(std::int32_t num_speculative_tokens, std::string kv_type = "f16") {
  EngineOptions options;
  options.model_path = model_path(kSmolLm2);
  options.threads = 2;
  options.context = 1024;
  options.kv_memory_bytes = 64 * kMiB;
  options.kv_type = std::move(kv_type);
  options.num_speculative_tokens = num_speculative_tokens;
  return options;
}

constexpr std::string_view kCode = R"(def area(width, height):
    return width * height

def volume(width, height, depth):
    return width * height * depth
)";

std::vector<GenerateRequest> some_requests(const Tokenizer& tokenizer) {
  const std::string copy = std::string("<|im_start|>user\nRepeat this code without any change:\n") +
                           std::string(kCode) + "<|im_end|>\n<|im_start|>assistant\n";
  std::vector<GenerateRequest> requests(6);
  for (GenerateRequest& request : requests) {
    request.prompt = *tokenizer.encode(copy, SpecialTokens::parsed);
    request.max_tokens = 90;
    request.top_logprobs = 3;
    request.sampling.temperature = 0;
  }
  requests[1].prompt = *tokenizer.encode("The capital of France is", SpecialTokens::parsed);
  requests[2].sampling = {.temperature = 0.7, .top_p = 0.9, .seed = 11};
  requests[3].sampling = {.temperature = 0.4, .repetition_penalty = 1.05, .frequency_penalty = 0.02, .seed = 12};
  requests[4].stop = {"height * depth", "\n\n\n"};
  requests[5].num_branches = 2;
  requests[5].sampling = {.temperature = 0.5, .seed = 13};
  return requests;
}

void expect_equal(const std::vector<std::vector<Collected>>& expected,
                  const std::vector<std::vector<Collected>>& answers) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    for (std::size_t k = 0; k < expected[i].size(); ++k) {
      SCOPED_TRACE(cat("request ", i, ", branch ", k));
      expect_same(expected[i][k], answers[i][k]);
      EXPECT_EQ(expected[i][k].finish.stop_string, answers[i][k].finish.stop_string);
    }
}

TEST(SpeculationGolden, SmolLm2) {
  auto plain = open(options_of(0));
  auto engine = open(options_of(8));
  const auto requests = some_requests(plain->tokenizer());
  for (const GenerateRequest& request : requests)
    expect_equal(run_branches(*plain, {request}), run_branches(*engine, {request}));
  EXPECT_GT(engine->stats().accepted_tokens, 100u);
  EXPECT_GT(engine->stats().proposed_tokens, engine->stats().accepted_tokens);
  EXPECT_LT(engine->stats().steps, plain->stats().steps * 9 / 10);
  expect_equal(run_branches(*plain, requests), run_branches(*engine, requests));
}

TEST(SpeculationGolden, SmolLm2OnInt8KvInAPoolThatIsTooSmall) {
  auto plain = open(options_of(0, "int8"));
  EngineOptions options = options_of(5, "int8");
  options.kv_memory_bytes = static_cast<std::uint64_t>(plain->info().kv_bytes_per_token) * 16 * 24;
  options.kv_ram_bytes = 8 * kMiB;
  options.preemption = "swap";
  auto engine = open(options);
  const auto requests = some_requests(plain->tokenizer());
  expect_equal(run_branches(*plain, requests), run_branches(*engine, requests));
  EXPECT_GT(engine->stats().preemptions, 0u) << "the pool is meant to be too small";
  EXPECT_GT(engine->stats().accepted_tokens, 0u);
  EXPECT_GT(engine->stats().prefix_hits, 0u);
}

}  // namespace
}  // namespace quire::test
