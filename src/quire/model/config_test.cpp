#include "quire/model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "quire/model/tiny_model.h"

namespace quire::model {
namespace {

Result<ModelConfig> config_of(const GgufBuilder& builder) {
  std::string image = builder.build();
  auto file = GgufFile::parse(std::as_bytes(std::span(image.data(), image.size())));
  if (!file.ok()) return file.error();
  return read_config(*file);
}

GgufBuilder tiny(std::string architecture) {
  TinyModel model;
  model.architecture = std::move(architecture);
  return build_tiny_model(model);
}

/// Expects a refusal whose message holds all the words.
void expect_refused(const GgufBuilder& builder, std::initializer_list<std::string_view> words) {
  auto config = config_of(builder);
  ASSERT_FALSE(config.ok()) << *words.begin();
  for (auto word : words) EXPECT_NE(config.error().message.find(word), std::string::npos) << config.error().message;
}

/// tiny(architecture) with one integer key replaced.
GgufBuilder with(std::string architecture, std::string suffix, std::uint32_t value) {
  std::string name = architecture + "." + suffix;
  GgufBuilder builder = tiny(architecture);
  builder.drop_key(name).key_u32(name, value);
  return builder;
}

GgufBuilder with_float(std::string architecture, std::string suffix, float value) {
  std::string name = architecture + "." + suffix;
  GgufBuilder builder = tiny(architecture);
  builder.drop_key(name).key_f32(name, value);
  return builder;
}

TEST(Config, LlamaRotatesInterleavedPairsInEveryLayer) {
  auto config = config_of(tiny("llama"));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->name, "Tiny");
  EXPECT_EQ(config->rope_style, RopeStyle::interleaved);
  EXPECT_EQ(config->activation, Activation::silu);
  EXPECT_EQ(config->attention_scale, 0.25f);
  EXPECT_EQ(config->embedding_scale, 1.0f);
  EXPECT_EQ(config->vocab_size, 100);
  EXPECT_TRUE(config->tied_output);
  EXPECT_FALSE(config->has_qkv_bias);
  ASSERT_EQ(config->rope.size(), 1u);
  EXPECT_EQ(config->rope[0].rotary_dim, 16);
  EXPECT_EQ(config->rope[0].base, 10'000.0);
  ASSERT_EQ(config->layers.size(), 2u);
  EXPECT_EQ(config->layers[1].window, 0);
}

TEST(Config, Qwen2HasBiasesAndRotatesHalves) {
  auto config = config_of(tiny("qwen2"));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(config->has_qkv_bias);
  EXPECT_EQ(config->rope_style, RopeStyle::neox);
}

TEST(Config, Gemma3SlidesInAllButEverySixthLayer) {
  TinyModel model;
  model.architecture = "gemma3";
  model.num_layers = 12;
  GgufBuilder builder = build_tiny_model(model);
  builder.drop_key("gemma3.attention.sliding_window_pattern");
  auto config = config_of(builder);
  ASSERT_TRUE(config.ok()) << config.error().message;
  for (std::size_t i = 0; i < 12; ++i) {
    bool full = i == 5 || i == 11;
    EXPECT_EQ(config->layers[i].window, full ? 0 : 8) << i;
    EXPECT_EQ(config->rope[static_cast<std::size_t>(config->layers[i].rope)].base, full ? 1e6 : 1e4) << i;
  }
  EXPECT_TRUE(config->has_qk_norm);
  EXPECT_TRUE(config->has_post_norms);
  EXPECT_EQ(config->embedding_scale, 8.0f);
  EXPECT_EQ(config->activation, Activation::gelu_tanh);
}

TEST(Config, Gemma3TakesThePatternAndTheLocalBaseFromTheFile) {
  GgufBuilder builder = tiny("gemma3");
  builder.drop_key("gemma3.attention.sliding_window_pattern");
  builder.key_raw("gemma3.attention.sliding_window_pattern", 9,
                  ByteWriter().number<std::uint32_t>(7).number<std::uint64_t>(2).raw(std::string("\0\1", 2)).take());
  builder.key_f32("gemma3.rope.freq_base_swa", 5e3f);
  auto config = config_of(builder);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->layers[0].window, 0);
  EXPECT_EQ(config->layers[1].window, 8);
  EXPECT_EQ(config->rope[1].base, 5e3);
}

TEST(Config, Gemma3ScalesTheFullLayersOnly) {
  GgufBuilder builder = tiny("gemma3");
  builder.key_string("gemma3.rope.scaling.type", "linear").key_f32("gemma3.rope.scaling.factor", 8);
  auto config = config_of(builder);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->rope[0].scaling.type, ops::RopeScaling::Type::linear);
  EXPECT_EQ(config->rope[0].scaling.factor, 8.0);
  EXPECT_EQ(config->rope[1].scaling.type, ops::RopeScaling::Type::none);
}

TEST(Config, TheAttentionScaleOfTheLargestGemma3FollowsHiddenByHeads) {
  TinyModel model;
  model.architecture = "gemma3";
  model.num_layers = 62;
  model.hidden = 128;
  auto config = config_of(build_tiny_model(model));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->attention_scale, static_cast<float>(1 / std::sqrt(32.0)));
}

TEST(Config, ReadsYarnScaling) {
  GgufBuilder builder = tiny("llama");
  builder.key_string("llama.rope.scaling.type", "yarn").key_f32("llama.rope.scaling.factor", 4);
  builder.key_u32("llama.rope.scaling.original_context_length", 128);
  builder.key_f32("llama.rope.scaling.yarn_beta_fast", 16);
  auto config = config_of(builder);
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto& scaling = config->rope[0].scaling;
  EXPECT_EQ(scaling.type, ops::RopeScaling::Type::yarn);
  EXPECT_EQ(scaling.factor, 4.0);
  EXPECT_EQ(scaling.original_context, 128);
  EXPECT_EQ(scaling.beta_fast, 16.0);
  EXPECT_EQ(scaling.beta_slow, 1.0);
}

TEST(Config, ReadsTheFrequencyFactorsOfLlama3) {
  GgufBuilder builder = tiny("llama");
  std::vector<float> factors = {1, 1, 1, 2, 4, 8, 8, 8};
  builder.tensor_f32("rope_freqs.weight", {8}, factors);
  auto config = config_of(builder);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->rope[0].frequency_factors, factors);
}

TEST(Config, UnknownRopeScalingIsRefused) {
  for (auto type : {"longrope", "dynamic", ""}) {
    expect_refused(tiny("llama").key_string("llama.rope.scaling.type", type),
                   {"llama.rope.scaling.type", type, "'yarn'"});
  }
  std::vector<float> factors(8, 1.0f);
  expect_refused(tiny("llama").tensor_f32("rope_factors_long.weight", {8}, factors), {"rope_factors_long", "longrope"});
  expect_refused(with_float("llama", "rope.scaling.factor", 0), {"llama.rope.scaling.factor"});
  expect_refused(with_float("llama", "rope.scaling.factor", std::numeric_limits<float>::quiet_NaN()),
                 {"llama.rope.scaling.factor", "nan"});
}

TEST(Config, BadFrequencyFactorsAreRefused) {
  std::vector<float> nine(9, 1.0f), zero(8, 0.0f), nan(8, std::numeric_limits<float>::quiet_NaN());
  expect_refused(tiny("llama").tensor_f32("rope_freqs.weight", {9}, nine), {"rope_freqs.weight", "9"});
  expect_refused(tiny("llama").tensor_f32("rope_freqs.weight", {8}, zero), {"rope_freqs.weight", "0"});
  expect_refused(tiny("llama").tensor_f32("rope_freqs.weight", {8}, nan), {"rope_freqs.weight", "nan"});
}

TEST(Config, UnknownArchitecturesAreRefusedWithTheListOfSupportedOnes) {
  GgufBuilder builder = tiny("llama");
  builder.drop_key("general.architecture");
  expect_refused(builder, {"general.architecture", "missing"});
  builder.key_string("general.architecture", "mamba");
  expect_refused(builder, {"'mamba'", "'llama'", "'qwen2'", "'gemma3'"});
}

TEST(Config, NumbersOutOfRangeAreRefused) {
  for (const char* key : {"block_count", "embedding_length", "feed_forward_length", "context_length",
                          "attention.head_count", "attention.head_count_kv", "attention.key_length"}) {
    std::string name = std::string("llama.") + key;
    expect_refused(with("llama", key, 0), {name, "found 0"});
    expect_refused(with("llama", key, 0xFFFFFFFF), {name, "4294967295"});
    expect_refused(tiny("llama").drop_key(name).key_string(name, "8"), {name, "a string"});
    expect_refused(tiny("llama").drop_key(name).key_raw(name, 11, ByteWriter().number<std::int64_t>(-1).take()),
                   {name, "-1"});
  }
  expect_refused(with_float("llama", "attention.layer_norm_rms_epsilon", 0), {"layer_norm_rms_epsilon"});
  expect_refused(with_float("llama", "attention.layer_norm_rms_epsilon", std::numeric_limits<float>::infinity()),
                 {"layer_norm_rms_epsilon", "inf"});
  expect_refused(with_float("llama", "rope.freq_base", -1), {"rope.freq_base"});
  expect_refused(with("gemma3", "attention.sliding_window", 0), {"gemma3.attention.sliding_window"});
}

TEST(Config, MissingKeysAreNamed) {
  for (const char* key :
       {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length", "llama.context_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    expect_refused(tiny("llama").drop_key(key), {key, "missing"});
  }
  expect_refused(tiny("gemma3").drop_key("gemma3.attention.sliding_window"), {"sliding_window", "missing"});
}

TEST(Config, HeadsThatDoNotDivideAreRefused) {
  expect_refused(with("llama", "attention.head_count_kv", 3), {"head_count_kv", "found 3", "4"});
  expect_refused(with("llama", "attention.key_length", 15), {"key_length", "even"});
  expect_refused(with("llama", "attention.key_length", 1024), {"key_length", "1024"});
  expect_refused(with("llama", "attention.value_length", 32), {"value_length", "32", "16"});
  expect_refused(with("llama", "rope.dimension_count", 15), {"rope.dimension_count", "even"});
  expect_refused(with("llama", "rope.dimension_count", 18), {"rope.dimension_count", "18"});
  expect_refused(with("llama", "attention.head_count", 7)
                     .drop_key("llama.attention.head_count_kv")
                     .drop_key("llama.attention.key_length"),
                 {"head_count", "7", "64"});
}

TEST(Config, AVocabularyOfAnotherSizeThanTheEmbeddingIsRefused) {
  expect_refused(with("llama", "vocab_size", 101), {"llama.vocab_size", "101", "100"});
  std::vector<std::string> tokens(99, "t");
  expect_refused(tiny("llama").key_strings("tokenizer.ggml.tokens", tokens), {"tokenizer.ggml.tokens", "99", "100"});
  expect_refused(tiny("llama").drop_tensor("token_embd.weight"), {"token_embd.weight", "missing"});
}

TEST(Config, ArithmeticOfOtherFamiliesIsRefused) {
  expect_refused(with("llama", "expert_count", 8), {"llama.expert_count"});
  expect_refused(with_float("llama", "logit_scale", 0.5f), {"llama.logit_scale"});
  expect_refused(with_float("gemma3", "final_logit_softcapping", 30), {"gemma3.final_logit_softcapping"});
  expect_refused(with("llama", "attention.sliding_window", 128), {"llama.attention.sliding_window", "gemma3 only"});
  EXPECT_TRUE(config_of(with("llama", "expert_count", 0)).ok());
  EXPECT_TRUE(config_of(with("llama", "attention.sliding_window", 512)).ok());  // as long as the context
}

}  // namespace
}  // namespace quire::model
