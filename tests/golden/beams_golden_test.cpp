// Beam search against Hugging Face transformers on the real models, in the reference arithmetic: the same hypotheses in
// the same order, scores within 1e-3. And four sampled answers against four requests, served.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/goldens.h"
#include "tests/support/run.h"

namespace quire::test {
namespace {

using engine::Engine;
using engine::GenerateRequest;

struct GoldenSearch {
  GenerateRequest request;
  std::vector<std::vector<TokenId>> sequences;  ///< without the end token
  std::vector<double> scores;
};

GoldenSearch read_search(const json::Value& entry) {
  GoldenSearch golden;
  const TokenId end{static_cast<std::int32_t>(entry.find("eos_token_id")->as_int())};
  const auto width = static_cast<std::int32_t>(entry.find("num_beams")->as_int());
  golden.request.prompt = golden_ids(*entry.find("prompt_ids"));
  golden.request.max_tokens = static_cast<std::int32_t>(entry.find("max_new_tokens")->as_int());
  golden.request.ignore_eos = true;
  golden.request.stop_tokens = {end};
  golden.request.beams = BeamParams{.width = width, .num_returned = width};
  golden.request.beams->length_penalty = entry.find("length_penalty")->as_number();
  if (entry.find("early_stopping")->if_bool() == true) golden.request.beams->early_stopping = EarlyStopping::when_full;
  for (const json::Value& sequence : entry.find("sequences")->as_array()) {
    golden.sequences.push_back(golden_ids(sequence));
    auto& ids = golden.sequences.back();
    ids.erase(std::find(ids.begin(), ids.end(), end), ids.end());
  }
  for (const json::Value& score : entry.find("sequences_scores")->as_array())
    golden.scores.push_back(score.as_number());
  return golden;
}

void expect_searches(const RealModel& real) {
  auto opened = Engine::open({.model_path = model_path(real),
                              .context = 512,
                              .kv_memory_bytes = std::uint64_t{256} << 20,
                              .reference_arithmetic = true});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  std::vector<GoldenSearch> goldens;
  std::vector<GenerateRequest> requests;
  const json::Value file = read_json(golden_path(real, "beams.json"));
  for (const json::Value& entry : file.as_array()) {
    goldens.push_back(read_search(entry));
    requests.push_back(goldens.back().request);
  }
  ASSERT_EQ(goldens.size(), 18u);
  const auto answers = run_branches(**opened, requests);
  for (std::size_t i = 0; i < goldens.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(answers[i].size(), goldens[i].sequences.size());
    for (std::size_t k = 0; k < answers[i].size(); ++k) {
      EXPECT_EQ(answers[i][k].ids(), goldens[i].sequences[k]) << "hypothesis " << k;
      // Without a length penalty a score is a sum of 24 logprobs, and so is its error.
      const double tolerance = goldens[i].request.beams->length_penalty == 0 ? 2e-3 : 1e-3;
      EXPECT_NEAR(*answers[i][k].finish.score, goldens[i].scores[k], tolerance);
    }
  }
}

TEST(BeamsGolden, SmolLm2) { expect_searches(kSmolLm2); }
TEST(BeamsGolden, Qwen05b) { expect_searches(kQwen05b); }
TEST(BeamsGolden, Gemma270m) { expect_searches(kGemma270m); }

/// Also while requests are preempted: 20 blocks hold one of these three gangs.
TEST(BranchesServed, SmolLm2) {
  auto opened =
      Engine::open({.model_path = model_path(kSmolLm2), .context = 512, .kv_memory_bytes = std::uint64_t{256} << 20});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const auto bytes_per_block = static_cast<std::uint64_t>((*opened)->info().kv_bytes_per_token * 16);
  auto small =
      Engine::open({.model_path = model_path(kSmolLm2), .context = 256, .kv_memory_bytes = 20 * bytes_per_block});
  ASSERT_TRUE(small.ok()) << small.error().message;
  std::vector<GenerateRequest> requests;
  for (const GoldenAnswer& golden : read_golden_answers(kSmolLm2)) {
    if (requests.size() == 3 || golden.prompt.size() > 60) continue;
    requests.push_back(
        {.prompt = golden.prompt, .max_tokens = 40, .ignore_eos = true, .top_logprobs = 3, .num_branches = 4});
    requests.back().sampling.seed = 7 + requests.size();
  }
  ASSERT_EQ(requests.size(), 3u);
  const auto tight = run_branches(**small, requests);
  EXPECT_GT((*small)->stats().preemptions, 0u);
  const auto gangs = run_branches(**opened, requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    for (std::size_t k = 0; k < 4; ++k) {
      GenerateRequest single = requests[i];
      single.num_branches = 1;
      single.sampling.seed = sampling::branch_seed(requests[i].sampling.seed, k);
      const Collected alone = run_one(**opened, single);
      for (const Collected* branch : {&gangs[i][k], &tight[i][k]}) {
        ASSERT_EQ(branch->ids(), alone.ids());
        EXPECT_EQ(branch->text, alone.text);
        for (std::size_t t = 0; t < alone.tokens.size(); ++t)
          EXPECT_EQ(branch->tokens[t].logprob, alone.tokens[t].logprob);
      }
    }
}

}  // namespace
}  // namespace quire::test
