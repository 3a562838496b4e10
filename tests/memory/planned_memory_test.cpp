// What the planner says an engine will take is what the engine, once opened, has taken: part by part, to the byte.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "quire/base/cat.h"
#include "quire/model/gguf_builder.h"
#include "quire/planning/fit.h"
#include "tests/support/models.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_model.h"

namespace quire::test {
namespace {

using planning::Fit;

std::uint64_t part_of(const Fit& fit, std::string_view name) {
  for (const planning::MemoryPart& part : fit.parts)
    if (part.name == name) return part.bytes;
  ADD_FAILURE() << "no part " << name;
  return 0;
}

Fit fit_of(const engine::EngineOptions& options, std::uint64_t memory) {
  const auto file = model::GgufFile::open(options.model_path);
  QUIRE_CHECK(file.ok(), file.error().message);
  auto fit = planning::plan_fit(options, *file, {memory, "given"});
  QUIRE_CHECK(fit.ok(), fit.error().message);
  return *std::move(fit);
}

/// Opens the engine as the plan says to, and compares.
void expect_equal(const engine::EngineOptions& options, std::uint64_t memory) {
  const Fit fit = fit_of(options, memory);
  auto opened = engine::Engine::open(fit.options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const engine::EngineInfo& measured = (*opened)->info();
  EXPECT_EQ(part_of(fit, "weights"), measured.weight_bytes);
  EXPECT_EQ(part_of(fit, "working memory"), measured.scratch_bytes);
  EXPECT_EQ(part_of(fit, "KV pool"), measured.kv_store_bytes);
  if (options.kv_ram_bytes > 0) {
    EXPECT_EQ(part_of(fit, "RAM tier"), measured.kv_ram_bytes);
  }
  EXPECT_EQ(fit.info.num_blocks, measured.num_blocks);
  EXPECT_EQ(fit.info.kv_tokens, measured.kv_tokens);
  EXPECT_EQ(fit.info.context, measured.context);
  EXPECT_EQ(fit.info.blocks_per_request, measured.blocks_per_request);
  EXPECT_EQ(fit.info.kv_layout, measured.kv_layout);
  EXPECT_EQ(fit.core.num_blocks, measured.num_blocks);
}

/// A model of 120 layers whose tensors are not there: a file that ends far behind its header, with nothing in between.
void write_hollow_model(const std::string& path) {
  constexpr std::uint64_t kHidden = 8192, kFfn = 28'672, kHeads = 64, kKvHeads = 8, kHeadDim = 128, kLayers = 120;
  constexpr std::uint64_t kVocab = 128'256;
  model::GgufBuilder gguf;
  gguf.key_string("general.architecture", "llama");
  const auto key = [&](const char* name, std::uint64_t value) {
    gguf.key_u32(std::string("llama.") + name, static_cast<std::uint32_t>(value));
  };
  key("block_count", kLayers);
  key("embedding_length", kHidden);
  key("feed_forward_length", kFfn);
  key("context_length", 8192);
  key("attention.head_count", kHeads);
  key("attention.head_count_kv", kKvHeads);
  key("attention.key_length", kHeadDim);
  key("attention.value_length", kHeadDim);
  gguf.key_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  gguf.key_f32("llama.rope.freq_base", 5e5f);
  std::uint64_t end = 0;
  const auto tensor = [&](const std::string& name, std::vector<std::uint64_t> dims) {
    std::uint64_t elements = 1;
    for (std::uint64_t dim : dims) elements *= dim;
    const bool is_matrix = dims.size() > 1;
    gguf.tensor(name, std::move(dims), is_matrix ? DType::f16 : DType::f32, "");
    gguf.entries().back().offset = end;
    end += elements * (is_matrix ? 2 : 4);
  };
  tensor("token_embd.weight", {kHidden, kVocab});
  tensor("output_norm.weight", {kHidden});
  for (std::uint64_t i = 0; i < kLayers; ++i) {
    const std::string prefix = cat("blk.", i, ".");
    tensor(prefix + "attn_norm.weight", {kHidden});
    tensor(prefix + "attn_q.weight", {kHidden, kHeads * kHeadDim});
    tensor(prefix + "attn_k.weight", {kHidden, kKvHeads * kHeadDim});
    tensor(prefix + "attn_v.weight", {kHidden, kKvHeads * kHeadDim});
    tensor(prefix + "attn_output.weight", {kHeads * kHeadDim, kHidden});
    tensor(prefix + "ffn_norm.weight", {kHidden});
    tensor(prefix + "ffn_gate.weight", {kHidden, kFfn});
    tensor(prefix + "ffn_up.weight", {kHidden, kFfn});
    tensor(prefix + "ffn_down.weight", {kFfn, kHidden});
  }
  const std::string header = gguf.build();
  std::ofstream(path, std::ios::binary) << header;
  std::filesystem::resize_file(path, header.size() + end);
}

class PlannedMemory : public testing::TestWithParam<engine::EngineOptions> {};

TEST_P(PlannedMemory, IsWhatTheEngineOfATinyModelHasTaken) {
  for (const char* family : {"llama", "gemma3"}) {
    engine::EngineOptions options = GetParam();
    const TinyModelFile file(family);
    options.model_path = file.path();
    options.threads = 2;
    SCOPED_TRACE(family);
    expect_equal(options, 128 * kMiB);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, PlannedMemory,
                         testing::Values(engine::EngineOptions{}, engine::EngineOptions{.kv_type = "f32"},
                                         engine::EngineOptions{.kv_type = "int8", .block_size = 64},
                                         engine::EngineOptions{.context = 64, .max_batch_tokens = 100},
                                         engine::EngineOptions{.max_batch_rows = 3},
                                         engine::EngineOptions{.max_batch_rows = 3, .num_speculative_tokens = 8},
                                         engine::EngineOptions{.kv_memory_bytes = 3 * kMiB},
                                         engine::EngineOptions{.kv_layout = "uniform"},
                                         engine::EngineOptions{.kv_manager = "vattention"},
                                         engine::EngineOptions{.kv_manager = "reserved"},
                                         engine::EngineOptions{.reference_arithmetic = true},
                                         engine::EngineOptions{.kv_ram_bytes = 2 * kMiB}));

TEST(PlannedMemoryOf, SmolLm2IsWhatTheEngineHasTaken) {
  expect_equal({.model_path = model_path(kSmolLm2), .threads = 2, .context = 2048}, 400 * kMiB);
}

TEST(PlannedMemoryOf, AFileLargerThanTheMachineIsReadFromItsMetadata) {
  const TemporaryDirectory directory;
  const engine::EngineOptions options{.model_path = directory.path() + "/hollow.gguf"};
  write_hollow_model(options.model_path);
  const Fit fit = fit_of(options, std::uint64_t{1} << 40);
  // 8192 * (2 * 8192 + 2 * 1024 + 3 * 28672) halves a layer, and the embedding.
  EXPECT_GT(part_of(fit, "weights"), 120 * std::uint64_t{8192} * (2 * 8192 + 2 * 1024 + 3 * 28'672) * 2);
  EXPECT_EQ(fit.info.kv_bytes_per_token, 120 * 8 * 128 * 2 * 2);
  EXPECT_GT(fit.info.num_blocks, 0);
}

}  // namespace
}  // namespace quire::test
