#pragma once
// A model loaded for one kind of arithmetic, and its perplexity on tests/data/goldens/perplexity.txt.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "quire/base/cpu.h"
#include "quire/base/thread_pool.h"
#include "quire/engine/tokenizer_data.h"
#include "quire/model/gguf.h"
#include "quire/model/model.h"
#include "quire/model/sequence_runner.h"
#include "quire/ops/vector_ops.h"
#include "quire/text/tokenizer.h"
#include "tests/support/goldens.h"

namespace quire::test {

using model::SequenceRunner;

inline constexpr std::int64_t kWindow = 512;  ///< tokens of a window of the perplexity
inline constexpr std::int64_t kChunk = 512;
inline constexpr std::int64_t kMaxContext = 2560;  ///< the longest prompt with its answer has 2,470 tokens

struct Arithmetic {
  bool f32_weights;
  attention::KvType kv_type;
};
inline constexpr Arithmetic kReference{true, attention::KvType::f32};
inline constexpr Arithmetic kServed{false, attention::KvType::f16};

/// The model, loaded for one kind of arithmetic, on the best tier of the CPU (or QUIRE_CPU): all tiers give one result.
struct Loaded {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<model::GgufFile> file;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<SequenceRunner> runner;
  const ops::VectorOps* ops = nullptr;
};

inline Loaded load(const std::string& path, const Arithmetic& arithmetic) {
  Loaded loaded;
  const char* forced = std::getenv("QUIRE_CPU");
  auto tier = choose_cpu_tier(forced == nullptr ? "" : forced);
  EXPECT_TRUE(tier.ok());
  loaded.ops = &ops::vector_ops(tier->tier);
  loaded.pool = std::make_unique<ThreadPool>(std::max(1u, std::thread::hardware_concurrency()));
  auto file = model::GgufFile::open(path);
  EXPECT_TRUE(file.ok()) << file.error().message;
  if (!file.ok()) return loaded;
  loaded.file = std::make_unique<model::GgufFile>(*std::move(file));
  model::LoadOptions options;
  options.tier = tier->tier;
  options.max_context = kMaxContext;
  options.max_batch_tokens = kChunk;
  options.max_logit_rows = 32;
  options.f32_weights = arithmetic.f32_weights;
  auto model = model::Model::load(*loaded.file, *loaded.pool, options);
  EXPECT_TRUE(model.ok()) << model.error().message;
  if (!model.ok()) return loaded;
  loaded.model = *std::move(model);
  model::RunnerOptions runner;
  runner.kv_type = arithmetic.kv_type;
  runner.num_blocks = kMaxContext / runner.block_size;
  loaded.runner = std::make_unique<SequenceRunner>(*loaded.model, *loaded.pool, runner);
  return loaded;
}

/// The ids of the text in windows of 512, with BOS in front of each where the model wants it.
inline std::vector<std::vector<TokenId>> windows_of(const Loaded& loaded, std::size_t num_windows) {
  auto data = engine::tokenizer_data(*loaded.file);
  EXPECT_TRUE(data.ok());
  const bool add_bos = data->add_bos;
  const std::optional<TokenId> bos = data->bos;
  auto tokenizer = Tokenizer::create(*std::move(data));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  std::string text = read_text(std::string(QUIRE_SOURCE_DIR) + "/tests/data/goldens/perplexity.txt");
  auto ids = (*tokenizer)->encode(text, SpecialTokens::as_text);
  EXPECT_TRUE(ids.ok());
  EXPECT_GE(ids->size(), num_windows * kWindow);
  std::vector<std::vector<TokenId>> windows;
  for (std::size_t w = 0; w < num_windows; ++w) {
    auto begin = ids->begin() + static_cast<std::ptrdiff_t>(w * kWindow);
    auto& window = windows.emplace_back(begin, begin + kWindow);
    if (!add_bos) continue;
    window.insert(window.begin(), *bos);
    window.pop_back();
  }
  return windows;
}

struct Perplexity {
  double value = 0;
  std::int64_t num_tokens = 0;
};

/// Of the second half of each window.
inline Perplexity perplexity_of(const Loaded& loaded, SequenceRunner& runner, std::size_t num_windows) {
  Perplexity result;
  double sum = 0;
  for (const auto& window : windows_of(loaded, num_windows)) {
    std::vector<double> losses(window.size());  // by position, so that the sum has one order
    runner.reset();
    const SequenceRunner::Piece piece{0, window, kWindow / 2};
    runner.step({&piece, 1}, [&](std::size_t, std::size_t index, std::span<const float> logits) {
      if (index + 1 == window.size()) return;
      double normaliser = loaded.ops->log_sum_exp(logits.data(), static_cast<std::int64_t>(logits.size()));
      losses[index] = normaliser - static_cast<double>(logits[static_cast<std::size_t>(window[index + 1].value)]);
    });
    for (double loss : losses) sum += loss;
    result.num_tokens += kWindow / 2 - 1;
  }
  result.value = std::exp(sum / static_cast<double>(result.num_tokens));
  return result;
}

}  // namespace quire::test
