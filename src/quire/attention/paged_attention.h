#pragma once
// Paged attention: softmax(q k^T * scale) v, exact and causal, over KV blocks found through a block table. One
// definition for prefill and decode (rules 9 to 12 of the arithmetic): tiles of 64 absolute positions, spans of 256,
// merged in a fixed order. A row's bits depend on its own q, the cached K and V, its position and the window; never on
// its neighbours, the chunking, block ids, block size, threads or tier.
//
// Invariants
// 1. What a row does not see is never part of its result, whatever it holds (NaN in unused slots, other sequences'
//    tokens). Table entries whose positions no row of the call sees are not looked up: those behind a window may be
//    null.
// 2. A row whose q is not finite has no defined result; no other row is touched by it.
// 3. In steady state nothing is allocated.
//
// The definition in plain scalar code is reference_attention.h; the kernels are in tile_kernels.h.

#include <cstdint>
#include <span>

#include "quire/attention/kv_store.h"
#include "quire/base/cpu.h"
#include "quire/base/thread_pool.h"

namespace quire::attention {

/// The tokens of one sequence that are computed in this step: positions [first_position, first_position + num_tokens).
struct SequenceChunk {
  std::span<const BlockId> blocks;  ///< the sequence's table; covers first_position + num_tokens positions
  std::int64_t first_position = 0;
  std::int64_t num_tokens = 0;
  std::int64_t first_row = 0;  ///< row of the first token in q, k, v and out
};

struct KvWrite {
  std::span<const SequenceChunk> chunks;
  const float* k = nullptr;  ///< [num_rows, num_kv_heads, head_dim], rows k_stride floats apart
  const float* v = nullptr;
  std::int64_t k_stride = 0, v_stride = 0;
  std::uint8_t* row_failed = nullptr;  ///< [num_rows]; set to 1 where a value does not fit the format (overflow, NaN)
};

/// Stores K and V of the step's tokens in layer `layer`. Called by every worker; ends with a barrier.
void write_kv(Worker& worker, CpuTier tier, KvStore& store, std::int64_t layer, const KvWrite& write);

struct AttentionCall {
  std::span<const SequenceChunk> chunks;
  const float* q = nullptr;  ///< [num_rows, num_heads, head_dim], rows q_stride floats apart
  float* out = nullptr;      ///< [num_rows, num_heads, head_dim], rows out_stride floats apart
  std::int64_t q_stride = 0, out_stride = 0;
  std::int64_t num_heads = 0;  ///< a multiple of the store's num_kv_heads; any group size
  float scale = 0;
  std::int64_t window = 0;  ///< a query at position p sees (p - window, p]; 0: all of [0, p]
};

/// Working memory of paged_attention, reused between calls; grows to what a call needs (KiB a thread, and for short
/// chunks about a float a head, dimension and 256 tokens of context). Any pool and store may use it, one call at a
/// time.
class AttentionScratch {
 public:
  AttentionScratch();
  ~AttentionScratch();
  AttentionScratch(AttentionScratch&&) noexcept;
  AttentionScratch& operator=(AttentionScratch&&) noexcept;

  struct State;
  State& state() { return *state_; }

 private:
  State* state_;
};

/// Called by every worker; ends with a barrier. The step's K and V must have been written.
void paged_attention(Worker& worker, CpuTier tier, const KvStore& store, std::int64_t layer, const AttentionCall& call,
                     AttentionScratch& scratch);

}  // namespace quire::attention
