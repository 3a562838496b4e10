#pragma once
// SequenceRunner: runs sequences through a model with a KV store of its own and no engine: for tests and benchmarks of
// the model. It hands out blocks from a list, in rising order or shuffled, and never frees them until reset().

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "quire/attention/kv_store.h"
#include "quire/base/ids.h"
#include "quire/base/thread_pool.h"
#include "quire/model/model.h"

namespace quire::model {

struct RunnerOptions {
  attention::KvType kv_type = attention::KvType::f16;
  std::int64_t block_size = 16;
  std::int64_t num_blocks = 64;    ///< beside the null block
  std::uint64_t shuffle_seed = 0;  ///< 0: block ids in rising order
};

class SequenceRunner {
 public:
  /// Tokens that a step appends to a sequence (numbered from 0).
  struct Piece {
    std::int64_t sequence = 0;
    std::span<const TokenId> tokens;
    std::size_t logits_from = 0;  ///< logits are wanted of tokens [logits_from, tokens.size())
  };

  /// The logits of token `index` of piece `piece`. Called by the workers, for different rows at the same time.
  using OnRow = std::function<void(std::size_t piece, std::size_t index, std::span<const float> logits)>;

  SequenceRunner(Model& model, ThreadPool& pool, const RunnerOptions& options);

  /// One step. A sequence occurs in at most one piece. Returns row_failed of the step's rows.
  std::vector<std::uint8_t> step(std::span<const Piece> pieces, const OnRow& on_row = {});

  /// A whole piece in steps of at most `chunk` tokens. True if no row failed.
  bool feed(const Piece& piece, std::int64_t chunk, const OnRow& on_row);

  /// The logits [tokens, vocab] of a whole sequence, fed in chunks of at most `chunk` tokens.
  std::vector<float> all_logits(std::int64_t sequence, std::span<const TokenId> tokens, std::int64_t chunk);

  std::int64_t length(std::int64_t sequence) const;
  /// Steps from now on are profiled; null: no more.
  void set_profile(StepProfile* profile) { profile_ = profile; }
  /// Forgets all sequences.
  void reset();
  attention::KvStore& store() { return store_; }

 private:
  struct Sequence {
    std::vector<BlockId> blocks;
    std::int64_t length = 0;
  };
  Sequence& sequence(std::int64_t index);

  Model& model_;
  ThreadPool& pool_;
  attention::KvStore store_;
  std::vector<BlockId> free_;  ///< taken from the end
  std::size_t num_taken_ = 0;
  std::vector<Sequence> sequences_;
  StepProfile* profile_ = nullptr;
};

}  // namespace quire::model
