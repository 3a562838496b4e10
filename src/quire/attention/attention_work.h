#pragma once
// What paged_attention and contiguous_attention share: cutting a call into items of work, the order in which partial
// results are folded, scratch memory. `Memory` says where K and V lie, as PagedMemory in paged_attention.cpp does.
// Internal to the attention module.

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>
#include <utility>

#include "quire/attention/attention_scratch.h"
#include "quire/attention/call_support.h"
#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire::attention {

/// A chunk of at most this many tokens is cut into spans that different threads compute. A longer one is cut into runs
/// of tokens, enough to go round, each of which takes its spans in order. The order of the arithmetic is the same.
inline constexpr std::int64_t kMostSplitTokens = 16;
/// Tokens of a longer chunk that share each load of K and V.
inline constexpr std::int64_t kTokensPerItem = 32;
inline constexpr float kLog2E = 1.4426950408889634f;

/// How one chunk is cut into items of work for each KV head.
struct ChunkPlan {
  std::int64_t end_item = 0;  ///< items of this chunk and of those planned before it
  std::int64_t num_items = 0;
  std::int64_t chunk = 0;
  std::int64_t first_span = 0, num_spans = 0;  ///< the spans that any of its rows sees
  bool split = false;                          ///< one item a span; partial results are kept
  std::int64_t floats_per_partial = 0;         ///< split: partial results of one item
  std::int64_t first_partial = 0;              ///< floats into the shared partial results
  std::int64_t first_counter = 0;              ///< one counter a KV head
};

struct Shape {
  std::int64_t num_kv_heads, group, head_dim, padded;
  std::int64_t rows_per_item;  ///< most rows of an item
  std::int64_t num_chunks;
};

inline std::int64_t align16(std::int64_t floats) { return round_up(floats, 16); }

inline Shape shape_of(const KvLayout& layout, const AttentionCall& call) {
  Shape shape;
  shape.num_kv_heads = layout.num_kv_heads;
  shape.group = call.num_heads / layout.num_kv_heads;
  shape.head_dim = layout.head_dim;
  shape.padded = padded_dim(layout.head_dim);
  std::int64_t most_tokens = 1;
  for (const SequenceChunk& chunk : call.chunks) most_tokens = std::max(most_tokens, chunk.num_tokens);
  shape.rows_per_item = std::min(most_tokens, kTokensPerItem) * shape.group;
  shape.num_chunks = static_cast<std::int64_t>(call.chunks.size());
  return shape;
}

/// Floats of the PartialRows of num_rows rows.
inline std::int64_t partial_floats(const Shape& shape, std::int64_t num_rows) {
  return 2 * align16(num_rows) + num_rows * shape.padded;
}

inline PartialRows partial_at(float* memory, std::int64_t num_rows) {
  PartialRows rows;
  rows.m = memory;
  rows.l = rows.m + align16(num_rows);
  rows.o = rows.l + align16(num_rows);
  return rows;
}

inline std::int64_t visible_begin(const AttentionCall& call, std::int64_t position) {
  return call.window > 0 ? std::max<std::int64_t>(0, position + 1 - call.window) : 0;
}

inline ChunkPlan plan_chunk(const Shape& shape, const AttentionCall& call, std::int64_t index) {
  const SequenceChunk& chunk = call.chunks[static_cast<std::size_t>(index)];
  ChunkPlan plan;
  plan.chunk = index;
  if (chunk.num_tokens == 0) return plan;
  std::int64_t last = chunk.first_position + chunk.num_tokens - 1;
  plan.first_span = visible_begin(call, chunk.first_position) / kSpanTokens;
  plan.num_spans = last / kSpanTokens + 1 - plan.first_span;
  plan.split = chunk.num_tokens <= kMostSplitTokens;
  plan.floats_per_partial = plan.split ? partial_floats(shape, chunk.num_tokens * shape.group) : 0;
  plan.num_items = shape.num_kv_heads * (plan.split ? plan.num_spans : ceil_div(chunk.num_tokens, kTokensPerItem));
  return plan;
}

inline ScratchNeed need_of(const Shape& shape, const AttentionCall& call) {
  ScratchNeed need;
  std::int64_t floats = align16(shape.rows_per_item * shape.head_dim) +  // packed queries
                        2 * kTileTokens * shape.padded +                 // decoded K and V
                        kMaxBlockRows * kTileTokens +                    // scores
                        2 * partial_floats(shape, shape.rows_per_item);  // running and next state
  need.worker_bytes = round_up(floats * 4 + shape.num_chunks * static_cast<std::int64_t>(sizeof(ChunkPlan)), 64);
  for (std::int64_t i = 0; i < shape.num_chunks; ++i) {
    ChunkPlan plan = plan_chunk(shape, call, i);
    if (!plan.split) continue;
    need.partial_floats += plan.num_items * plan.floats_per_partial;
    need.counters += shape.num_kv_heads;
  }
  return need;
}

/// One worker's part of a call.
template <class Memory>
class AttentionWork {
 public:
  AttentionWork(const AttentionKernels& kernels, const Memory& memory, const AttentionCall& call,
                AttentionScratch::State& scratch, const Shape& shape, int worker)
      : kernels_(kernels), memory_(memory), call_(call), scratch_(scratch), shape_(shape) {
    auto* at = scratch.worker_area.data() + worker * scratch.worker_bytes;
    auto take = [&](std::int64_t floats) {
      auto* result = reinterpret_cast<float*>(at);
      at += floats * 4;
      return result;
    };
    area_.q = take(align16(shape.rows_per_item * shape.head_dim));
    area_.k = take(kTileTokens * shape.padded);
    area_.v = take(kTileTokens * shape.padded);
    area_.scores = take(kMaxBlockRows * kTileTokens);
    sum_ = partial_at(take(partial_floats(shape, shape.rows_per_item)), shape.rows_per_item);
    next_ = partial_at(take(partial_floats(shape, shape.rows_per_item)), shape.rows_per_item);
    plans_ = reinterpret_cast<ChunkPlan*>(at);
    make_plans();
  }

  std::int64_t num_items() const { return num_items_; }

  void compute(std::int64_t item) const {
    const ChunkPlan& plan =
        *std::upper_bound(plans_, plans_ + shape_.num_chunks, item,
                          [](std::int64_t value, const ChunkPlan& candidate) { return value < candidate.end_item; });
    std::int64_t at = item - (plan.end_item - plan.num_items);
    plan.split ? compute_span(plan, at) : compute_row_tile(plan, at);
  }

 private:
  /// Long items first, so that the last ones to finish are short.
  void make_plans() {
    std::int64_t placed = 0, partial = 0, counter = 0;
    for (bool split : {false, true}) {
      for (std::int64_t i = 0; i < shape_.num_chunks; ++i) {
        ChunkPlan plan = plan_chunk(shape_, call_, i);
        if (plan.split != split) continue;
        plan.end_item = num_items_ += plan.num_items;
        plan.first_partial = partial;
        plan.first_counter = counter;
        if (split) {
          partial += plan.num_items * plan.floats_per_partial;
          counter += shape_.num_kv_heads;
        }
        plans_[placed++] = plan;
      }
    }
  }

  const SequenceChunk& chunk_of(const ChunkPlan& plan) const {
    return call_.chunks[static_cast<std::size_t>(plan.chunk)];
  }

  QueryRows rows_of(const SequenceChunk& chunk, std::int64_t head, std::int64_t first_token,
                    std::int64_t num_tokens) const {
    QueryRows rows;
    rows.q = call_.q + (chunk.first_row + first_token) * call_.q_stride + head * shape_.group * shape_.head_dim;
    rows.q_stride = call_.q_stride;
    rows.q_factor = call_.scale * kLog2E;
    rows.num_tokens = num_tokens;
    rows.group = shape_.group;
    rows.head_dim = shape_.head_dim;
    rows.first_position = chunk.first_position + first_token;
    rows.window = call_.window;
    return rows;
  }

  static bool sees(const QueryRows& rows, std::int64_t row, std::int64_t span) {
    std::int64_t token = row / rows.group;
    return rows.visible_begin(token) < (span + 1) * kSpanTokens && span * kSpanTokens < rows.visible_end(token);
  }

  /// Folds the state of one span into the running state, for the rows that see a key in it.
  void fold_span(const QueryRows& rows, std::int64_t span, const PartialRows& sum, const PartialRows& next) const {
    for (std::int64_t row = 0; row < rows.num_rows(); ++row) {
      if (!sees(rows, row, span)) continue;
      if (rows.visible_begin(row / rows.group) / kSpanTokens == span) {
        sum.m[row] = next.m[row];
        sum.l[row] = next.l[row];
        std::copy_n(next.o + row * shape_.padded, shape_.padded, sum.o + row * shape_.padded);
      } else {
        kernels_.fold_row(sum, next, row, shape_.head_dim);
      }
    }
  }

  void finish(const SequenceChunk& chunk, std::int64_t head, std::int64_t first_token, const QueryRows& rows,
              const PartialRows& sum) const {
    for (std::int64_t row = 0; row < rows.num_rows(); ++row) {
      float* out = call_.out + (chunk.first_row + first_token + row / shape_.group) * call_.out_stride +
                   (head * shape_.group + row % shape_.group) * shape_.head_dim;
      kernels_.finish_row(sum, row, shape_.head_dim, out);
    }
  }

  /// A few tokens over one span; whoever finishes the last span of a head folds them all.
  void compute_span(const ChunkPlan& plan, std::int64_t item) const {
    const SequenceChunk& chunk = chunk_of(plan);
    std::int64_t head = item / plan.num_spans, span = item % plan.num_spans;
    QueryRows rows = rows_of(chunk, head, 0, chunk.num_tokens);
    float* partials =
        scratch_.partials.as<float>() + plan.first_partial + head * plan.num_spans * plan.floats_per_partial;
    auto partial = [&](std::int64_t index) {
      return partial_at(partials + index * plan.floats_per_partial, rows.num_rows());
    };
    kernels_.pack_queries(rows, area_.q);
    memory_.attend_span(kernels_, rows, memory_.head(chunk, head), plan.first_span + span, area_, partial(span));
    auto& finished = scratch_.finished[static_cast<std::size_t>(plan.first_counter + head)];
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < plan.num_spans) return;
    finished.store(0, std::memory_order_relaxed);
    if (plan.num_spans == 1) return finish(chunk, head, 0, rows, partial(0));
    for (std::int64_t i = 0; i < plan.num_spans; ++i) fold_span(rows, plan.first_span + i, sum_, partial(i));
    finish(chunk, head, 0, rows, sum_);
  }

  /// A run of tokens of a long chunk over all that they see.
  void compute_row_tile(const ChunkPlan& plan, std::int64_t item) const {
    const SequenceChunk& chunk = chunk_of(plan);
    // The last tokens see most: first.
    std::int64_t row_tile = ceil_div(chunk.num_tokens, kTokensPerItem) - 1 - item / shape_.num_kv_heads;
    std::int64_t head = item % shape_.num_kv_heads, first_token = row_tile * kTokensPerItem;
    QueryRows rows = rows_of(chunk, head, first_token, std::min(kTokensPerItem, chunk.num_tokens - first_token));
    const auto cache = memory_.head(chunk, head);
    kernels_.pack_queries(rows, area_.q);
    std::int64_t first_span = rows.visible_begin(0) / kSpanTokens;
    std::int64_t last_span = (rows.visible_end(rows.num_tokens - 1) - 1) / kSpanTokens;
    for (std::int64_t span = first_span; span <= last_span; ++span) {
      memory_.attend_span(kernels_, rows, cache, span, area_, next_);
      fold_span(rows, span, sum_, next_);
    }
    finish(chunk, head, first_token, rows, sum_);
  }

  const AttentionKernels& kernels_;
  const Memory& memory_;
  const AttentionCall& call_;
  AttentionScratch::State& scratch_;
  const Shape& shape_;
  WorkArea area_;
  PartialRows sum_, next_;
  ChunkPlan* plans_ = nullptr;
  std::int64_t num_items_ = 0;
};

/// Called by every worker; ends with a barrier.
template <class Memory>
void attend(Worker& worker, CpuTier tier, const Memory& memory, const AttentionCall& call, AttentionScratch& scratch) {
  QUIRE_CHECK(call.num_heads > 0 && call.num_heads % memory.layout().num_kv_heads == 0, call.num_heads, " heads");
  for (const SequenceChunk& chunk : call.chunks) memory.check(chunk);
  AttentionScratch::State& state = scratch.state();
  Shape shape = shape_of(memory.layout(), call);
  ScratchNeed need = need_of(shape, call);
  if (!state.suffices(worker.count(), need)) {
    worker.barrier();  // all have seen that it must grow
    if (worker.index() == 0) state.grow(worker.count(), need);
    worker.barrier();
  }
  AttentionWork<Memory> work(attention_kernels(tier), memory, call, state, shape, worker.index());
  worker.for_each(work.num_items(), 1, [&](std::int64_t item) { work.compute(item); });
}

}  // namespace quire::attention
