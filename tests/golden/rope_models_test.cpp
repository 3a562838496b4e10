// Every kind of RoPE scaling against logits of transformers on tiny random models (tests/data/rope, with the script
// that made them).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "quire/json/json.h"
#include "quire/model/gguf.h"
#include "quire/model/model.h"
#include "quire/model/sequence_runner.h"

namespace quire {
namespace {

struct Fixture {
  std::vector<TokenId> tokens;
  std::vector<std::size_t> rows;
  std::vector<std::vector<double>> logits;  ///< [rows][vocab]
};

std::string fixture_path(const std::string& name) { return std::string(QUIRE_SOURCE_DIR) + "/tests/data/rope/" + name; }

Fixture read_fixture(const std::string& name) {
  std::ifstream in(fixture_path(name + ".json"));
  EXPECT_TRUE(in.good()) << name;
  std::ostringstream text;
  text << in.rdbuf();
  auto value = json::parse(text.str());
  Fixture fixture;
  EXPECT_TRUE(value.ok()) << value.error().message;
  for (const auto& id : value->find("tokens")->as_array()) {
    fixture.tokens.push_back(TokenId{static_cast<std::int32_t>(id.as_int())});
  }
  for (const auto& row : value->find("rows")->as_array()) {
    fixture.rows.push_back(static_cast<std::size_t>(row.as_int()));
  }
  for (const auto& row : value->find("logits")->as_array()) {
    auto& values = fixture.logits.emplace_back();
    for (const auto& logit : row.as_array()) values.push_back(logit.as_number());
  }
  return fixture;
}

/// The logits [tokens, vocab] of the fixture's model.
std::vector<float> logits_of(const std::string& name, std::span<const TokenId> tokens) {
  auto file = model::GgufFile::open(fixture_path(name + ".gguf"));
  EXPECT_TRUE(file.ok()) << file.error().message;
  ThreadPool pool(1);
  model::LoadOptions options;
  options.max_context = options.max_batch_tokens = static_cast<std::int64_t>(tokens.size());
  options.max_logit_rows = 16;
  auto model = model::Model::load(*file, pool, options);
  EXPECT_TRUE(model.ok()) << model.error().message;
  model::RunnerOptions runner_options;
  runner_options.kv_type = attention::KvType::f32;
  model::SequenceRunner runner(**model, pool, runner_options);
  return runner.all_logits(0, tokens, options.max_batch_tokens);
}

double largest_difference(const std::vector<double>& a, std::span<const float> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - static_cast<double>(b[i])));
  return largest;
}

class RopeModels : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Golden, RopeModels,
                         testing::Values("llama_plain", "llama_linear", "llama_yarn", "llama_yarn_betas",
                                         "llama_llama3", "qwen2_yarn"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(RopeModels, LogitsAreThoseOfTransformersWithinAndBeyondTheOriginalContext) {
  const Fixture fixture = read_fixture(GetParam());
  const auto logits = logits_of(GetParam(), fixture.tokens);
  ASSERT_EQ(fixture.rows.size(), fixture.logits.size());
  ASSERT_FALSE(fixture.rows.empty());
  for (std::size_t i = 0; i < fixture.rows.size(); ++i) {
    const std::size_t vocab = fixture.logits[i].size();
    ASSERT_EQ(logits.size(), fixture.tokens.size() * vocab);
    // Logits up to 6 from sums of at most 48 products in f32, in another order: errors near 6 * 48 * 2^-24 = 2e-5 a
    // matrix, of which a path has four.
    EXPECT_LT(largest_difference(fixture.logits[i], std::span(logits).subspan(fixture.rows[i] * vocab, vocab)), 1e-4)
        << "row " << fixture.rows[i];
  }
}

TEST(RopeModels, TheKindsOfScalingDifferByMoreThanTheTolerance) {
  const Fixture plain = read_fixture("llama_plain");
  for (const char* name : {"llama_linear", "llama_yarn", "llama_yarn_betas", "llama_llama3"}) {
    const Fixture other = read_fixture(name);
    std::vector<float> last(other.logits.back().begin(), other.logits.back().end());
    EXPECT_GT(largest_difference(plain.logits.back(), last), 0.1) << name;
  }
}

}  // namespace
}  // namespace quire
