#pragma once
// Model: the weights, packed for the kernels, and the forward pass of one step.
// Ownership: owns its weights and scratch; the GGUF may be closed after load. Thread-safety: one forward() at a time;
// it runs on the caller's thread pool.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "quire/attention/kv_memory.h"
#include "quire/base/cpu.h"
#include "quire/base/ids.h"
#include "quire/base/result.h"
#include "quire/base/thread_pool.h"
#include "quire/model/config.h"
#include "quire/model/gguf.h"
#include "quire/model/layer_grouping.h"
#include "quire/model/repack_cache.h"
#include "quire/model/step_profile.h"

namespace quire::model {

struct LoadOptions {
  CpuTier tier = CpuTier::scalar;
  std::int64_t max_context = 0;       ///< positions in the RoPE tables; at most config.context
  std::int64_t max_batch_tokens = 0;  ///< most tokens of one forward()
  std::int64_t max_logit_rows = 0;    ///< rows of logits computed at a time; more are done slice by slice
  bool f32_weights = false;           ///< decode all weights to f32 and use f32 activations: the reference arithmetic
  RepackCache repack_cache;           ///< where packed weights are kept; not with f32_weights
  std::function<void(double)> progress;  ///< called with the fraction loaded, from the loading thread; may be empty
};

/// Logits of some of the wanted rows: the slice [first, first + count) of ForwardInput::logit_rows.
struct LogitsSlice {
  std::int64_t first = 0, count = 0;
  const float* logits = nullptr;  ///< [count, vocab_size]; valid during the call
};

/// What one step computes. Rows of all chunks lie one after another: chunk c has rows [first_row, first_row +
/// num_tokens).
/// With a grouping, `chunks` holds the same chunks once for each layer group, with that group's tables; without one all
/// layers share them, and the store has the model's layers.
struct ForwardInput {
  std::span<const TokenId> tokens;                   ///< [num_rows], each in [0, vocab_size)
  std::span<const attention::SequenceChunk> chunks;  ///< [num_groups, num_chunks]
  std::span<const std::int64_t> logit_rows;          ///< rising row indices whose logits are wanted; any number
  /// Called by every worker of the step, once for each slice of at most max_logit_rows rows, when the slice's logits
  /// are complete: consumers share the rows out with worker.for_each and so sample inside the step. All calls must have
  /// ended (barrier) before the buffer is reused for the next slice.
  std::function<void(Worker&, const LogitsSlice&)> on_logits;
  const LayerGrouping* grouping = nullptr;  ///< null: one group of all layers
  StepProfile* profile = nullptr;           ///< null: nobody wants to know

  std::span<const attention::SequenceChunk> chunks_of(std::int64_t group) const {
    const std::size_t count = grouping ? chunks.size() / grouping->windows.size() : chunks.size();
    return chunks.subspan(static_cast<std::size_t>(group) * count, count);
  }
};

/// Positions, over all layers, that attention walked once for several chunks, since the same blocks hold them; and what
/// it would have walked without that.
struct CascadeCount {
  std::int64_t shared = 0, unshared = 0;
};

struct ForwardOutput {
  std::span<const std::uint8_t>
      row_failed;  ///< [num_rows]: 1 where a value was not finite or did not fit; valid until the next forward()
  CascadeCount cascade;
};

/// What a model takes of memory beside the KV cache.
struct ModelBytes {
  std::size_t weights = 0;  ///< packed
  std::size_t scratch = 0;  ///< activations, logits, tables
};

class Model {
 public:
  /// What load() will take, from the file's metadata alone, by the code that load() reserves with; its errors are those
  /// of load(). Reads no tensor and touches none of the memory.
  static Result<ModelBytes> plan_bytes(const GgufFile& file, const LoadOptions& options);
  static Result<std::unique_ptr<Model>> load(const GgufFile& file, ThreadPool& pool, const LoadOptions& options);
  ~Model();

  const ModelConfig& config() const;
  std::size_t weight_bytes() const;    ///< packed weights
  const RepackReport& repack() const;  ///< where they came from
  std::size_t scratch_bytes() const;   ///< activations, logits, tables

  /// Runs the step and writes its K and V into the memory.
  ForwardOutput forward(ThreadPool& pool, attention::KvMemory memory, const ForwardInput& input);

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire::model
