#include "quire/model/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "quire/base/rng.h"
#include "quire/model/sequence_runner.h"
#include "quire/model/tiny_model.h"

namespace quire::model {
namespace {

constexpr std::int64_t kMaxTokens = 64;

Result<std::unique_ptr<Model>> load(const std::string& image, ThreadPool& pool, const LoadOptions& options) {
  auto file = GgufFile::parse(std::as_bytes(std::span(image.data(), image.size())));
  if (!file.ok()) return file.error();
  return Model::load(*file, pool, options);
}

LoadOptions options_for(CpuTier tier) {
  LoadOptions options;
  options.tier = tier;
  options.max_context = 256;
  options.max_batch_tokens = kMaxTokens;
  options.max_logit_rows = 7;  // so that prompts take several slices
  return options;
}

std::vector<TokenId> random_tokens(std::int64_t count, std::uint64_t seed, std::int64_t vocab = 100) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(TokenId{static_cast<std::int32_t>(rng.between(0, vocab - 1))});
  }
  return tokens;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<CpuTier> supported_tiers() {
  std::vector<CpuTier> tiers;
  for (CpuTier tier : kAllCpuTiers) {
    if (cpu_supports(tier)) tiers.push_back(tier);
  }
  return tiers;
}

/// One way to compute a sequence.
struct Variation {
  CpuTier tier = CpuTier::scalar;
  int threads = 1;
  std::int64_t chunk = kMaxTokens;
  RunnerOptions runner;
};

std::vector<float> logits_of(const std::string& image, const Variation& variation, std::span<const TokenId> tokens) {
  ThreadPool pool(variation.threads);
  auto model = load(image, pool, options_for(variation.tier));
  EXPECT_TRUE(model.ok()) << model.error().message;
  SequenceRunner runner(**model, pool, variation.runner);
  return runner.all_logits(0, tokens, variation.chunk);
}

/// Families and formats that between them use every branch of the forward pass.
class EveryKindOfModel : public testing::TestWithParam<TinyModel> {
 protected:
  const std::string image_ = build_tiny_model(GetParam()).build();
  const std::vector<TokenId> tokens_ = random_tokens(45, 3);
};

TinyModel make(const char* architecture, DType matrices, DType embedding = DType::q8_0) {
  const auto& format = info(matrices);
  TinyModel model;
  if (format.block_elements == 256) {
    model = TinyModel::wide(architecture, matrices);
  } else {
    model.architecture = architecture;
    model.matrices = matrices;
  }
  model.embedding = embedding;
  return model;
}

TinyModel mixed(const char* architecture) {
  TinyModel model = TinyModel::wide(architecture, DType::q4_k);
  model.values = DType::q6_k;
  model.embedding = DType::q5_0;
  model.tied_output = false;
  return model;
}

INSTANTIATE_TEST_SUITE_P(Model, EveryKindOfModel,
                         testing::Values(make("llama", DType::q4_1), make("llama", DType::f16, DType::f16),
                                         mixed("llama"), make("qwen2", DType::q5_0), make("qwen2", DType::bf16),
                                         mixed("qwen2"), make("gemma3", DType::q8_0),
                                         make("gemma3", DType::q5_1, DType::f32), mixed("gemma3")),
                         [](const auto& test) {
                           return test.param.architecture + "_" + std::string(quire::info(test.param.matrices).name) +
                                  "_" + std::string(quire::info(test.param.embedding).name);
                         });

TEST_P(EveryKindOfModel, LogitsAreFiniteAndDependOnThePrompt) {
  auto logits = logits_of(image_, {}, tokens_);
  for (float value : logits) ASSERT_TRUE(std::isfinite(value));
  auto other_tokens = tokens_;
  other_tokens.front() = TokenId{(other_tokens.front().value + 1) % 100};
  auto other = logits_of(image_, {}, other_tokens);
  // The last row sees the first token through attention (in two sliding layers only if the window reaches it).
  EXPECT_FALSE(same_bits(logits, other));
  if (GetParam().architecture != "gemma3") {
    EXPECT_NE(logits.back(), other.back());
  }
}

TEST_P(EveryKindOfModel, ChunksOfAnySizeGiveTheSameBits) {
  const auto whole = logits_of(image_, {}, tokens_);
  for (std::int64_t chunk : {1, 2, 7, 16, 31}) {
    Variation variation;
    variation.chunk = chunk;
    EXPECT_TRUE(same_bits(whole, logits_of(image_, variation, tokens_))) << chunk;
  }
}

TEST_P(EveryKindOfModel, TiersAndThreadsGiveTheSameBits) {
  const auto scalar = logits_of(image_, {}, tokens_);
  for (CpuTier tier : supported_tiers()) {
    for (int threads : {1, 2, 5}) {
      Variation variation;
      variation.tier = tier;
      variation.threads = threads;
      variation.chunk = threads == 1 ? kMaxTokens : 11;
      EXPECT_TRUE(same_bits(scalar, logits_of(image_, variation, tokens_))) << to_string(tier) << " " << threads;
    }
  }
}

TEST_P(EveryKindOfModel, BlockSizesAndBlockIdsGiveTheSameBits) {
  const auto reference = logits_of(image_, {}, tokens_);
  for (std::int64_t block_size : {8, 16, 32, 64, 128}) {
    Variation variation;
    variation.chunk = 13;
    variation.runner.block_size = block_size;
    variation.runner.shuffle_seed = static_cast<std::uint64_t>(block_size);
    EXPECT_TRUE(same_bits(reference, logits_of(image_, variation, tokens_))) << block_size;
  }
}

TEST_P(EveryKindOfModel, EveryKvFormatGivesBitsOfItsOwnHoweverTheyAreComputed) {
  std::vector<std::vector<float>> seen;
  for (attention::KvType type : attention::kAllKvTypes) {
    Variation variation;
    variation.runner.kv_type = type;
    const auto reference = logits_of(image_, variation, tokens_);
    for (const auto& other : seen) EXPECT_FALSE(same_bits(reference, other)) << to_string(type);
    seen.push_back(reference);
    for (CpuTier tier : supported_tiers()) {
      for (std::int64_t block_size : {8, 32}) {
        variation.tier = tier;
        variation.threads = block_size == 8 ? 1 : 3;
        variation.chunk = block_size == 8 ? 11 : 1;
        variation.runner.block_size = block_size;
        variation.runner.shuffle_seed = 5;
        EXPECT_TRUE(same_bits(reference, logits_of(image_, variation, tokens_)))
            << to_string(type) << ", " << to_string(tier) << ", block " << block_size;
      }
    }
  }
}

TEST_P(EveryKindOfModel, ARowsLogitsDoNotDependOnWhichOthersAreWanted) {
  const auto all = logits_of(image_, {}, tokens_);
  ThreadPool pool(2);
  auto model = load(image_, pool, options_for(supported_tiers().back()));
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (std::size_t from : {std::size_t{0}, std::size_t{20}, tokens_.size() - 1, tokens_.size()}) {
    SequenceRunner runner(**model, pool, {});
    const auto middle = std::span(tokens_).first(30), rest = std::span(tokens_).subspan(30);
    std::vector<float> wanted(all.begin(), all.end());
    auto copy_from = [&](std::size_t at) {
      return [&wanted, at](std::size_t, std::size_t index, std::span<const float> row) {
        std::copy(row.begin(), row.end(), wanted.begin() + static_cast<std::ptrdiff_t>((at + index) * 100));
      };
    };
    const SequenceRunner::Piece pieces[] = {{0, middle, from}, {0, rest, from > 30 ? from - 30 : 0}};
    std::fill(wanted.begin() + static_cast<std::ptrdiff_t>(from * 100), wanted.end(), 0.0f);
    runner.step({&pieces[0], 1}, copy_from(0));
    runner.step({&pieces[1], 1}, copy_from(30));
    EXPECT_TRUE(same_bits(all, wanted)) << from;
  }
}

TEST_P(EveryKindOfModel, ASequenceInABatchGetsTheBitsItGetsAlone) {
  const CpuTier tier = supported_tiers().back();
  ThreadPool pool(2);
  auto model = load(image_, pool, options_for(tier));
  ASSERT_TRUE(model.ok()) << model.error().message;
  SequenceRunner runner(**model, pool, {});
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<float>> alone;
  for (std::uint64_t i = 0; i < 6; ++i) {
    prompts.push_back(random_tokens(5 + 7 * static_cast<std::int64_t>(i), 100 + i));
    alone.push_back(runner.all_logits(0, prompts.back(), kMaxTokens));
    runner.reset();
  }
  // All together, each in pieces of random lengths, in random company.
  std::vector<std::vector<float>> together(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) together[i].resize(alone[i].size());
  Rng rng(9);
  for (bool more = true; more;) {
    std::vector<SequenceRunner::Piece> pieces;
    std::vector<std::size_t> starts;
    more = false;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      auto at = static_cast<std::size_t>(runner.length(static_cast<std::int64_t>(i)));
      auto count = std::min(prompts[i].size() - at, static_cast<std::size_t>(rng.between(0, 10)));
      more = more || at + count < prompts[i].size();
      if (count == 0) continue;
      pieces.push_back({static_cast<std::int64_t>(i), std::span(prompts[i]).subspan(at, count)});
      starts.push_back(at);
    }
    if (pieces.empty()) continue;
    runner.step(pieces, [&](std::size_t piece, std::size_t index, std::span<const float> row) {
      auto& target = together[static_cast<std::size_t>(pieces[piece].sequence)];
      std::copy(row.begin(), row.end(), target.begin() + static_cast<std::ptrdiff_t>((starts[piece] + index) * 100));
    });
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) EXPECT_TRUE(same_bits(alone[i], together[i])) << i;
}

TEST_P(EveryKindOfModel, TheReferenceArithmeticIsNearTheServedOne) {
  ThreadPool pool(1);
  LoadOptions options = options_for(CpuTier::scalar);
  const auto served = logits_of(image_, {}, tokens_);
  options.f32_weights = true;
  auto model = load(image_, pool, options);
  ASSERT_TRUE(model.ok()) << model.error().message;
  RunnerOptions runner_options;
  runner_options.kv_type = attention::KvType::f32;
  SequenceRunner runner(**model, pool, runner_options);
  const auto reference = runner.all_logits(0, tokens_, kMaxTokens);
  double difference = 0, magnitude = 0;
  for (std::size_t i = 0; i < served.size(); ++i) {
    difference += std::pow(served[i] - reference[i], 2);
    magnitude += std::pow(reference[i], 2);
  }
  // int8 activations carry a relative error near 1/(127 sqrt 12) = 0.0023 of the group's largest value per product; a
  // dozen products in a row of random matrices stay within 6 %.
  EXPECT_LT(std::sqrt(difference / magnitude), 0.06);
}

TEST(Model, ARowThatIsNotFiniteFailsAloneAndLeavesTheOthersBits) {
  TinyModel description;
  description.embedding = DType::f32;
  description.tied_output = false;
  GgufBuilder builder = build_tiny_model(description);
  std::string image = builder.build();
  // The embedding of token 5 becomes infinite. The data of token_embd.weight comes first.
  std::string bytes = random_tensor(DType::f32, 64 * 100, random_at(description.seed, 0));
  std::size_t data_at = image.find(bytes.substr(0, 64));
  ASSERT_NE(data_at, std::string::npos);
  float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(image.data() + data_at + 5 * 64 * sizeof(float), &infinity, sizeof infinity);

  ThreadPool pool(2);
  auto model = load(image, pool, options_for(CpuTier::scalar));
  ASSERT_TRUE(model.ok()) << model.error().message;
  SequenceRunner runner(**model, pool, {});
  std::vector<TokenId> good = {TokenId{1}, TokenId{2}, TokenId{3}}, bad = {TokenId{4}, TokenId{5}};
  const auto alone = runner.all_logits(0, good, kMaxTokens);
  runner.reset();
  std::vector<float> together(alone.size());
  const SequenceRunner::Piece pieces[] = {{0, bad}, {1, good}};
  auto failed = runner.step(pieces, [&](std::size_t piece, std::size_t index, std::span<const float> row) {
    if (piece == 1) std::copy(row.begin(), row.end(), together.begin() + static_cast<std::ptrdiff_t>(index * 100));
  });
  EXPECT_EQ(failed, (std::vector<std::uint8_t>{0, 1, 0, 0, 0}));
  EXPECT_TRUE(same_bits(alone, together));

  // The same when only the last row of each is wanted.
  runner.reset();
  const SequenceRunner::Piece last[] = {{0, good, 2}, {1, bad, 1}};
  EXPECT_EQ(runner.step(last), (std::vector<std::uint8_t>{0, 0, 0, 0, 1}));
}

TEST(Model, AValueThatDoesNotFitTheKvFormatFailsItsRow) {
  TinyModel description;
  description.architecture = "qwen2";
  GgufBuilder builder = build_tiny_model(description);
  builder.drop_tensor("blk.0.attn_v.bias");
  std::vector<float> bias(32, 1e6f);  // above the largest f16
  builder.tensor_f32("blk.0.attn_v.bias", {32}, bias);
  ThreadPool pool(1);
  auto model = load(builder.build(), pool, options_for(CpuTier::scalar));
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::vector<TokenId> tokens = {TokenId{1}};
  const SequenceRunner::Piece piece{0, tokens};
  SequenceRunner half(**model, pool, {});
  EXPECT_EQ(half.step({&piece, 1}), std::vector<std::uint8_t>{1});
  RunnerOptions options;
  options.kv_type = attention::KvType::f32;
  SequenceRunner single(**model, pool, options);
  EXPECT_EQ(single.step({&piece, 1}), std::vector<std::uint8_t>{0});
}

TEST(Model, ProgressRisesToOne) {
  ThreadPool pool(2);
  LoadOptions options = options_for(CpuTier::scalar);
  std::vector<double> seen;
  options.progress = [&](double fraction) { seen.push_back(fraction); };
  ASSERT_TRUE(load(build_tiny_model({}).build(), pool, options).ok());
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), 1.0);
}

TEST(Model, LoadOptionsOutOfRangeAreRefused) {
  ThreadPool pool(1);
  const std::string image = build_tiny_model({}).build();
  LoadOptions options = options_for(CpuTier::scalar);
  options.max_context = 513;
  auto model = load(image, pool, options);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("513"), std::string::npos);
  options = options_for(CpuTier::scalar);
  options.max_batch_tokens = 0;
  EXPECT_FALSE(load(image, pool, options).ok());
  options = options_for(CpuTier::scalar);
  options.max_logit_rows = 0;
  EXPECT_FALSE(load(image, pool, options).ok());
}

/// Expects that the model is refused with a message that holds all the words.
void expect_refused(const GgufBuilder& builder, std::initializer_list<std::string_view> words) {
  ThreadPool pool(1);
  auto model = load(builder.build(), pool, options_for(CpuTier::scalar));
  ASSERT_FALSE(model.ok()) << *words.begin();
  for (auto word : words) EXPECT_NE(model.error().message.find(word), std::string::npos) << model.error().message;
}

TEST(Model, EveryMissingTensorIsNamed) {
  for (const char* architecture : {"llama", "qwen2", "gemma3"}) {
    TinyModel description;
    description.architecture = architecture;
    GgufBuilder whole = build_tiny_model(description);
    for (const auto& entry : whole.entries()) {
      expect_refused(build_tiny_model(description).drop_tensor(entry.name), {entry.name, "missing"});
    }
  }
}

TEST(Model, EveryTensorOfAnotherShapeIsNamed) {
  for (const char* architecture : {"llama", "qwen2", "gemma3"}) {
    TinyModel description;
    description.architecture = architecture;
    description.matrices = description.embedding = DType::f32;
    const std::size_t num_tensors = build_tiny_model(description).entries().size();
    for (std::size_t i = 0; i < num_tensors; ++i) {
      GgufBuilder builder = build_tiny_model(description);
      auto& entry = builder.entries()[i];
      entry.dims[0] -= 1;
      expect_refused(builder, {entry.name});
      entry.dims[0] += 1;
      entry.dims.push_back(1);
      expect_refused(builder, {entry.name});
    }
  }
}

TEST(Model, ATensorThatTheFamilyDoesNotHaveIsRefused) {
  std::vector<float> values(64, 0.5f);
  expect_refused(build_tiny_model({}).tensor_f32("blk.0.attn_output.bias", {64}, values),
                 {"blk.0.attn_output.bias", "llama"});
  expect_refused(build_tiny_model({}).tensor_f32("blk.2.attn_norm.weight", {64}, values), {"blk.2.attn_norm.weight"});
}

}  // namespace
}  // namespace quire::model
