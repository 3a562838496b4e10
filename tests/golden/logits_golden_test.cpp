// Logits of the real models against those of an independent implementation (tests/data/goldens): teacher-forced, on the
// reference arithmetic with a tight bound, and on the served path with a bound that a peer reaches.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <mutex>

#include "quire/json/json.h"
#include "tests/support/goldens.h"
#include "tests/support/loaded_model.h"

namespace quire {
namespace {

using model::SequenceRunner;
using test::kChunk;
using test::kReference;
using test::kServed;
using test::kWindow;
using test::load;
using test::Loaded;
using test::parse_json;
using test::perplexity_of;
using test::read_gzip;
using test::read_json;
using test::RealModel;

struct Candidate {
  TokenId token;
  double logprob;
};

struct GoldenPrompt {
  std::vector<TokenId> tokens;              ///< the prompt and the greedy tokens but the last
  std::size_t first_row;                    ///< of the row that chose the first greedy token
  std::vector<double> margin;               ///< [rows]
  std::vector<std::vector<Candidate>> top;  ///< [rows][32]
};

std::vector<GoldenPrompt> read_goldens(const RealModel& real) {
  std::vector<GoldenPrompt> prompts;
  json::Value file = parse_json(read_gzip(test::golden_path(real, "logits.json.gz")));
  for (const json::Value& entry : file.as_array()) {
    GoldenPrompt prompt;
    auto append = [&](const json::Value& ids) {
      for (const auto& id : ids.as_array()) prompt.tokens.push_back(TokenId{static_cast<std::int32_t>(id.as_int())});
    };
    append(*entry.find("prompt_ids"));
    prompt.first_row = prompt.tokens.size() - 1;
    append(*entry.find("greedy_ids"));
    prompt.tokens.pop_back();
    for (const auto& margin : entry.find("margin")->as_array()) prompt.margin.push_back(margin.as_number());
    for (const auto& row : entry.find("top32")->as_array()) {
      auto& candidates = prompt.top.emplace_back();
      for (const auto& pair : row.as_array()) {
        const auto& items = pair.as_array();
        candidates.push_back({TokenId{static_cast<std::int32_t>(items[0].as_int())}, items[1].as_number()});
      }
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

struct Distance {
  double max_delta = 0;  ///< of logprobs of ids with p_ref > 1e-4
  double sum_kl = 0;     ///< over the 32 candidates of each row
  std::int64_t num_rows = 0;
  std::vector<double> lost_margins;  ///< margins of rows whose best token differs
};

/// Feeds every prompt with its greedy tokens and compares the rows.
Distance compare(Loaded& loaded, const std::vector<GoldenPrompt>& prompts) {
  Distance distance;
  std::mutex mutex;
  for (const auto& prompt : prompts) {
    loaded.runner->reset();
    const SequenceRunner::Piece piece{0, prompt.tokens, prompt.first_row};
    EXPECT_TRUE(loaded.runner->feed(piece, kChunk, [&](std::size_t, std::size_t index, std::span<const float> logits) {
      const auto& candidates = prompt.top[index - prompt.first_row];
      const auto n = static_cast<std::int64_t>(logits.size());
      const double normaliser = loaded.ops->log_sum_exp(logits.data(), n);
      double kl = 0, max_delta = 0;
      for (const auto& candidate : candidates) {
        double p = std::exp(candidate.logprob);
        double delta = candidate.logprob -
                       (static_cast<double>(logits[static_cast<std::size_t>(candidate.token.value)]) - normaliser);
        kl += p * delta;
        if (p > 1e-4) max_delta = std::max(max_delta, std::fabs(delta));
      }
      bool same_best = loaded.ops->argmax(logits.data(), n) == candidates.front().token.value;
      std::lock_guard lock(mutex);
      distance.max_delta = std::max(distance.max_delta, max_delta);
      distance.sum_kl += kl;
      ++distance.num_rows;
      if (!same_best) distance.lost_margins.push_back(prompt.margin[index - prompt.first_row]);
    }));
  }
  return distance;
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

class LogitsGolden : public testing::TestWithParam<RealModel> {};

INSTANTIATE_TEST_SUITE_P(Golden, LogitsGolden, testing::Values(test::kSmolLm2, test::kGemma270m, test::kQwen05b),
                         [](const auto& test) { return std::string(test.param.test_name); });

TEST_P(LogitsGolden, TheReferenceArithmeticGivesTheReferencesLogprobs) {
  Loaded loaded = load(test::model_path(GetParam()), kReference);
  ASSERT_NE(loaded.model, nullptr);
  Distance distance = compare(loaded, read_goldens(GetParam()));
  std::cout << "rows " << distance.num_rows << ", max |delta logprob| " << distance.max_delta << ", mean kl32 "
            << distance.sum_kl / static_cast<double>(distance.num_rows) << ", other best tokens "
            << distance.lost_margins.size() << "\n";
  ASSERT_EQ(distance.num_rows, 12 * 48);
  EXPECT_LT(distance.max_delta, 2e-3);
}

TEST_P(LogitsGolden, TheServedPathIsNoFurtherFromTheReferenceThanItsPeer) {
  Loaded loaded = load(test::model_path(GetParam()), kServed);
  ASSERT_NE(loaded.model, nullptr);
  Distance distance = compare(loaded, read_goldens(GetParam()));
  json::Value summary = read_json(test::golden_path(GetParam(), "summary.json"));
  const double mean_kl = distance.sum_kl / static_cast<double>(distance.num_rows);
  const double peer_kl = summary.find("llama_cpp_mean_kl")->as_number();
  std::cout << "rows " << distance.num_rows << ", mean kl32 " << mean_kl << " (peer " << peer_kl
            << "), max |delta logprob| " << distance.max_delta << ", other best tokens " << distance.lost_margins.size()
            << ", largest margin lost " << largest(distance.lost_margins) << "\n";
  ASSERT_EQ(distance.num_rows, 12 * 48);
  EXPECT_LE(mean_kl, peer_kl);
  EXPECT_LE(largest(distance.lost_margins), GetParam().golden == "gemma3" ? 1.5 : 0.5);
}

TEST_P(LogitsGolden, PerplexityInTheSmallerKvFormatsIsThatOfF16WithinHalfAPercent) {
  Loaded loaded = load(test::model_path(GetParam()), kServed);
  ASSERT_NE(loaded.model, nullptr);
  json::Value summary = read_json(test::golden_path(GetParam(), "summary.json"));
  const auto num_windows = static_cast<std::size_t>(summary.find("perplexity_windows")->as_int());
  const double reference = perplexity_of(loaded, *loaded.runner, num_windows).value;
  for (attention::KvType type : {attention::KvType::bf16, attention::KvType::int8}) {
    model::RunnerOptions options;
    options.kv_type = type;
    options.num_blocks = kWindow / options.block_size;
    SequenceRunner runner(*loaded.model, *loaded.pool, options);
    const double perplexity = perplexity_of(loaded, runner, num_windows).value;
    std::cout << to_string(type) << ": perplexity " << perplexity << ", with f16 " << reference << ", "
              << 100 * (perplexity / reference - 1) << " % above it\n";
    EXPECT_LT(std::fabs(perplexity / reference - 1), 0.005) << to_string(type);
  }
}

TEST_P(LogitsGolden, PerplexityIsThatOfTheReferenceWithinHalfAPercent) {
  Loaded loaded = load(test::model_path(GetParam()), kServed);
  ASSERT_NE(loaded.model, nullptr);
  json::Value summary = read_json(test::golden_path(GetParam(), "summary.json"));
  const auto num_windows = static_cast<std::size_t>(summary.find("perplexity_windows")->as_int());
  const auto [perplexity, count] = perplexity_of(loaded, *loaded.runner, num_windows);
  ASSERT_EQ(count, summary.find("perplexity_tokens")->as_int());
  const double reference = summary.find("perplexity_reference_f32")->as_number();
  std::cout << "perplexity " << perplexity << ", reference " << reference << ", " << 100 * (perplexity / reference - 1)
            << " % above it\n";
  EXPECT_LT(perplexity, reference * 1.005);
  EXPECT_GT(perplexity, reference * 0.99);
}

}  // namespace
}  // namespace quire
