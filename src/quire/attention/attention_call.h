#pragma once
// What write_kv and attention are asked to do: the same for paged and for contiguous KV memory.

#include <cstdint>
#include <span>

#include "quire/base/ids.h"

namespace quire::attention {

class AttentionPlan;

/// The tokens of one sequence that are computed in this step: positions [first_position, first_position + num_tokens).
struct SequenceChunk {
  std::span<const BlockId> blocks;  ///< paged: the sequence's table; covers first_position + num_tokens positions
  std::int64_t first_position = 0;
  std::int64_t num_tokens = 0;
  std::int64_t first_row = 0;  ///< row of the first token in q, k, v and out
  std::int64_t place = 0;      ///< contiguous: the sequence's place; mapped for first_position + num_tokens positions
};

/// What is still to be done to a row's k and v (and q) before they are stored: called once for each row, by the worker
/// that stores it, while the memory that it will go to is being fetched.
struct RowCompletion {
  void (*complete)(const void* context, std::int64_t row, std::int64_t position) = nullptr;  ///< null: nothing
  const void* context = nullptr;
};

struct KvWrite {
  std::span<const SequenceChunk> chunks;
  const float* k = nullptr;  ///< [num_rows, num_kv_heads, head_dim], rows k_stride floats apart
  const float* v = nullptr;
  std::int64_t k_stride = 0, v_stride = 0;
  std::uint8_t* row_failed = nullptr;  ///< [num_rows]; set to 1 where a value does not fit the format (overflow, NaN)
  RowCompletion before;
};

struct AttentionCall {
  std::span<const SequenceChunk> chunks;
  const float* q = nullptr;  ///< [num_rows, num_heads, head_dim], rows q_stride floats apart
  float* out = nullptr;      ///< [num_rows, num_heads, head_dim], rows out_stride floats apart
  std::int64_t q_stride = 0, out_stride = 0;
  std::int64_t num_heads = 0;  ///< a multiple of the store's num_kv_heads; any group size
  float scale = 0;
  std::int64_t window = 0;              ///< a query at position p sees (p - window, p]; 0: all of [0, p]
  const AttentionPlan* plan = nullptr;  ///< of the same chunks, heads and window; null: the call makes one
};

/// Working memory of attention, reused between calls; grows to what a call needs (KiB a thread, and for short
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

}  // namespace quire::attention
