#pragma once
// Decode and prefill steps of paged attention over a pool that is filled with values: what attn_decode, attn_prefill,
// attn_shared_prefix and kv measure. A case is built once; several cases may share a pool, so that they differ in their
// tables alone.

#include <cstdint>
#include <memory>
#include <vector>

#include "quire/attention/attention_plan.h"
#include "quire/attention/paged_attention.h"
#include "quire/base/cpu.h"
#include "quire/base/thread_pool.h"

namespace quire::bench {

/// SmolLM2's heads.
struct AttentionShape {
  std::int64_t heads = 9, kv_heads = 3, head_dim = 64;
  std::int64_t block_size = 16;
  attention::KvType type = attention::KvType::f16;
};

enum class BlockOrder { rising, random };

class KvPool {
 public:
  /// Room for `sequences` of `context` tokens in so many layers that a pass over all reads at least `bytes`.
  KvPool(const AttentionShape& shape, std::int64_t sequences, std::int64_t context, std::int64_t bytes);

  const AttentionShape& shape() const { return shape_; }
  const attention::KvStore& store() const { return *store_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t context() const { return context_; }
  std::int64_t bytes_read() const;  ///< K and V of all sequences and layers

  /// The tables of the sequences, covering all blocks.
  std::vector<std::vector<BlockId>> tables(BlockOrder order) const;

 private:
  AttentionShape shape_;
  std::int64_t sequences_, context_;
  std::unique_ptr<attention::KvStore> store_;
};

class AttentionCase {
 public:
  struct Work {
    std::int64_t queries = 1;  ///< tokens of each sequence, its last ones: 1 is decode, the whole context prefill
    std::int64_t shared = 0;   ///< leading tokens that all sequences have in the blocks of the first one
    attention::Cascade cascade = attention::Cascade::on;
  };
  /// The pool outlives it.
  AttentionCase(const KvPool& pool, BlockOrder order, const Work& work);

  /// Attention in every layer, in one dispatch, as a step does it: cut into items once.
  void run(ThreadPool& threads, CpuTier tier);

  /// Of one run: two for each multiplication and addition.
  double operations() const;

 private:
  const KvPool& pool_;
  Work work_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<attention::SequenceChunk> chunks_;
  std::vector<float> q_, out_;
  attention::AttentionPlan plan_;
  attention::AttentionScratch scratch_;
};

}  // namespace quire::bench
