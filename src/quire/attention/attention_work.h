#pragma once
// What paged_attention and contiguous_attention share: carrying out a plan's items of work, and the order in which
// partial results are folded. `Memory` says where K and V lie, as PagedMemory in paged_attention.cpp does. Internal to
// the attention module.

#include <algorithm>
#include <atomic>
#include <optional>

#include "quire/attention/attention_plan.h"
#include "quire/attention/attention_scratch.h"
#include "quire/attention/call_support.h"
#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire::attention {

inline constexpr float kLog2E = 1.4426950408889634f;

inline PartialRows partial_at(float* memory, std::int64_t num_rows) {
  PartialRows rows;
  rows.m = memory;
  rows.l = rows.m + round_up(num_rows, 16);
  rows.o = rows.l + round_up(num_rows, 16);
  return rows;
}

/// One worker's part of a call.
template <class Memory>
class AttentionWork {
 public:
  using Upcoming = UpcomingTile<typename Memory::Head>;

  AttentionWork(const AttentionKernels& kernels, const Memory& memory, const AttentionCall& call,
                AttentionScratch::State& scratch, const AttentionPlan& plan, int worker)
      : kernels_(kernels), memory_(memory), call_(call), scratch_(scratch), plan_(plan) {
    const std::int64_t dim = head_dim(), rows = plan.rows_per_item();
    auto* at = scratch.worker_area.data() + worker * scratch.worker_bytes;
    auto take = [&](std::int64_t floats) {
      auto* result = reinterpret_cast<float*>(at);
      at += floats * 4;
      return result;
    };
    area_.q = take(round_up(rows * dim, 16));
    area_.k = take(kTileTokens * padded_dim(dim));
    area_.v = take(kTileTokens * padded_dim(dim));
    area_.scores = take(kMaxBlockRows * kTileTokens);
    area_.scales = take(2 * scale_groups(dim) * kTileTokens + 16);
    sum_ = partial_at(take(partial_floats(rows, dim)), rows);
    next_ = partial_at(take(partial_floats(rows, dim)), rows);
    fetches_.pieces = reinterpret_cast<const std::byte**>(at);
    area_.fetches = &fetches_;
  }
  AttentionWork(const AttentionWork&) = delete;
  AttentionWork& operator=(const AttentionWork&) = delete;

  std::int64_t num_items() const { return static_cast<std::int64_t>(plan_.items().size()) * num_kv_heads(); }

  /// `next` is the item that the worker computes after it, or num_items() if that is not known.
  void compute(std::int64_t index, std::int64_t next) const {
    const AttentionItem& item = item_at(index);
    const std::int64_t head = index % num_kv_heads();
    switch (item.kind) {
      case AttentionItem::Kind::row_tile:
        return compute_row_tile(item, head);
      case AttentionItem::Kind::shared:
        return compute_shared(item, head, beginning_of(next));
      case AttentionItem::Kind::spans:
        return compute_spans(item, head, beginning_of(next));
    }
  }

 private:
  std::int64_t head_dim() const { return memory_.layout().head_dim; }
  std::int64_t num_kv_heads() const { return memory_.layout().num_kv_heads; }

  const AttentionItem& item_at(std::int64_t index) const {
    return plan_.items()[static_cast<std::size_t>(index / num_kv_heads())];
  }
  const SequenceChunk& chunk_at(std::int64_t index) const { return call_.chunks[static_cast<std::size_t>(index)]; }

  QueryRows rows_of(const SequenceChunk& chunk, std::int64_t head, std::int64_t first_token,
                    std::int64_t num_tokens) const {
    QueryRows rows;
    rows.q = call_.q + (chunk.first_row + first_token) * call_.q_stride + head * plan_.group() * head_dim();
    rows.q_stride = call_.q_stride;
    rows.q_factor = call_.scale * kLog2E;
    rows.num_tokens = num_tokens;
    rows.group = plan_.group();
    rows.head_dim = head_dim();
    rows.first_position = chunk.first_position + first_token;
    rows.window = call_.window;
    return rows;
  }

  static bool sees(const QueryRows& rows, std::int64_t row, std::int64_t span) {
    std::int64_t token = row / rows.group;
    return rows.visible_begin(token) < (span + 1) * kSpanTokens && span * kSpanTokens < rows.visible_end(token);
  }

  void copy_row(const PartialRows& from, std::int64_t from_row, const PartialRows& to, std::int64_t to_row) const {
    const std::int64_t padded = padded_dim(head_dim());
    to.m[to_row] = from.m[from_row];
    to.l[to_row] = from.l[from_row];
    std::copy_n(from.o + from_row * padded, padded, to.o + to_row * padded);
  }

  /// Folds the state of one span into the running state, for the rows that see a key in it.
  void fold_span(const QueryRows& rows, std::int64_t span, const PartialRows& sum, const PartialRows& next) const {
    for (std::int64_t row = 0; row < rows.num_rows(); ++row) {
      if (!sees(rows, row, span)) continue;
      if (rows.visible_begin(row / rows.group) / kSpanTokens == span) {
        copy_row(next, row, sum, row);
      } else {
        kernels_.fold_row(sum, next, row, head_dim());
      }
    }
  }

  void finish(const SequenceChunk& chunk, std::int64_t head, std::int64_t first_token, const QueryRows& rows,
              const PartialRows& sum) const {
    for (std::int64_t row = 0; row < rows.num_rows(); ++row) {
      float* out = call_.out + (chunk.first_row + first_token + row / rows.group) * call_.out_stride +
                   (head * rows.group + row % rows.group) * head_dim();
      kernels_.finish_row(sum, row, head_dim(), out);
    }
  }

  /// The partial result of a short chunk and one of its spans.
  PartialRows partial_of(const SplitChunk& split, std::int64_t head, std::int64_t span, std::int64_t num_rows) const {
    const std::int64_t index = head * split.num_spans + span - split.first_span;
    return partial_at(scratch_.partials.as<float>() + split.first_partial + index * split.floats_per_partial, num_rows);
  }

  /// `count` more spans of a short chunk are done; whoever finishes the last one folds them all.
  void finish_spans(std::int64_t index, std::int64_t head, const QueryRows& rows, std::int64_t count) const {
    const SplitChunk& split = plan_.split(index);
    auto& finished = scratch_.finished[static_cast<std::size_t>(split.first_counter + head)];
    if (finished.fetch_add(static_cast<std::int32_t>(count), std::memory_order_acq_rel) + count < split.num_spans)
      return;
    finished.store(0, std::memory_order_relaxed);
    const std::int64_t end_span = split.first_span + split.num_spans, num_rows = rows.num_rows();
    if (split.num_spans == 1)
      return finish(chunk_at(index), head, 0, rows, partial_of(split, head, split.first_span, num_rows));
    for (std::int64_t span = split.first_span; span < end_span; ++span)
      fold_span(rows, span, sum_, partial_of(split, head, span, num_rows));
    finish(chunk_at(index), head, 0, rows, sum_);
  }

  /// The first tile at or behind `position` that the chunk's rows see; none if they see nothing there.
  std::optional<Upcoming> tile_from(const SequenceChunk& chunk, std::int64_t head, std::int64_t position) const {
    const QueryRows rows = rows_of(chunk, head, 0, chunk.num_tokens);
    const std::int64_t begin = std::max(position, rows.visible_begin(0)), end = rows.visible_end(rows.num_tokens - 1);
    if (begin >= end) return std::nullopt;
    const std::int64_t tile_start = begin / kTileTokens * kTileTokens;
    return Upcoming{memory_.head(chunk, head), tile_start, begin - tile_start, std::min(end - tile_start, kTileTokens)};
  }

  /// The first tile of an item that walks spans.
  std::optional<Upcoming> beginning_of(std::int64_t index) const {
    if (index >= num_items()) return std::nullopt;
    const AttentionItem& item = item_at(index);
    const std::int64_t head = index % num_kv_heads();
    switch (item.kind) {
      case AttentionItem::Kind::row_tile:
        break;
      case AttentionItem::Kind::shared:
        return tile_from(chunk_at(plan_.members(item).front()), head, item.span * kSpanTokens);
      case AttentionItem::Kind::spans:
        return tile_from(chunk_at(item.chunk), head, item.first * kSpanTokens);
    }
    return std::nullopt;
  }

  static const Upcoming* or_null(const std::optional<Upcoming>& tile) { return tile ? &*tile : nullptr; }

  /// A few tokens over consecutive spans.
  void compute_spans(const AttentionItem& item, std::int64_t head, const std::optional<Upcoming>& next) const {
    const SequenceChunk& chunk = chunk_at(item.chunk);
    const QueryRows rows = rows_of(chunk, head, 0, chunk.num_tokens);
    const auto cache = memory_.head(chunk, head);
    kernels_.pack_queries(rows, area_.q);
    const std::int64_t end = item.first + item.count;
    for (std::int64_t span = item.first; span < end; ++span) {
      memory_.attend_span(kernels_, rows, cache, {.span = span, .upcoming = span + 1 < end ? nullptr : or_null(next)},
                          area_, partial_of(plan_.split(item.chunk), head, span, rows.num_rows()));
    }
    finish_spans(item.chunk, head, rows, item.count);
  }

  /// Tokens of several chunks over tiles that lie in the same blocks; then what each chunk sees of the rest of the
  /// span.
  void compute_shared(const AttentionItem& item, std::int64_t head, const std::optional<Upcoming>& next) const {
    const auto members = plan_.members(item);
    const SequenceChunk& first = chunk_at(members.front());
    std::int32_t places[kSharedTokensPerItem];
    QueryRows together = rows_of(first, head, 0, 0);
    for (std::int32_t member : members) {
      for (std::int64_t token = 0; token < chunk_at(member).num_tokens; ++token)
        places[together.num_tokens++] = static_cast<std::int32_t>(chunk_at(member).first_row + token - first.first_row);
    }
    const std::int64_t end = item.span * kSpanTokens + item.num_tiles * kTileTokens;
    together.token_places = places;
    together.window = 0;
    together.common_end = end;
    // What member i sees of the span behind the common tiles; of those that see nothing, and at the end, the next item.
    const auto rest_of = [&](std::size_t i) {
      std::optional<Upcoming> rest;
      if (i < members.size() && item.num_tiles < kSpanTiles) rest = tile_from(chunk_at(members[i]), head, end);
      return rest ? rest : next;
    };
    kernels_.pack_queries(together, area_.q);
    std::optional<Upcoming> upcoming = rest_of(0);
    memory_.attend_span(kernels_, together, memory_.head(first, head),
                        {item.span, 0, item.num_tiles, or_null(upcoming)}, area_, next_);
    std::int64_t row = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const SequenceChunk& chunk = chunk_at(members[i]);
      const QueryRows rows = rows_of(chunk, head, 0, chunk.num_tokens);
      const PartialRows partial = partial_of(plan_.split(members[i]), head, item.span, rows.num_rows());
      for (std::int64_t own = 0; own < rows.num_rows(); ++own) copy_row(next_, row++, partial, own);
      if (item.num_tiles < kSpanTiles && rows.visible_end(rows.num_tokens - 1) > end) {
        upcoming = rest_of(i + 1);
        kernels_.pack_queries(rows, area_.q);
        memory_.attend_span(kernels_, rows, memory_.head(chunk, head),
                            {item.span, item.num_tiles, kSpanTiles, or_null(upcoming)}, area_, partial);
      }
      finish_spans(members[i], head, rows, 1);
    }
  }

  /// A run of tokens of a long chunk over all that they see.
  void compute_row_tile(const AttentionItem& item, std::int64_t head) const {
    const SequenceChunk& chunk = chunk_at(item.chunk);
    const QueryRows rows = rows_of(chunk, head, item.first, item.count);
    const auto cache = memory_.head(chunk, head);
    kernels_.pack_queries(rows, area_.q);
    std::int64_t first_span = rows.visible_begin(0) / kSpanTokens;
    std::int64_t last_span = (rows.visible_end(rows.num_tokens - 1) - 1) / kSpanTokens;
    for (std::int64_t span = first_span; span <= last_span; ++span) {
      memory_.attend_span(kernels_, rows, cache, {.span = span}, area_, next_);
      fold_span(rows, span, sum_, next_);
    }
    finish(chunk, head, item.first, rows, sum_);
  }

  const AttentionKernels& kernels_;
  const Memory& memory_;
  const AttentionCall& call_;
  AttentionScratch::State& scratch_;
  const AttentionPlan& plan_;
  FetchList fetches_;
  WorkArea area_;
  PartialRows sum_, next_;
};

/// Makes a plan for a call that has none.
inline const AttentionPlan& plan_of(Worker& worker, const KvLayout& layout, const AttentionCall& call,
                                    AttentionScratch::State& state) {
  if (call.plan) return *call.plan;
  if (worker.index() == 0)
    state.plan.make(layout, {call.chunks, call.num_heads, call.window, worker.count(), Cascade::on});
  worker.barrier();
  return state.plan;
}

/// Called by every worker; ends with a barrier.
template <class Memory>
void attend(Worker& worker, CpuTier tier, const Memory& memory, const AttentionCall& call, AttentionScratch& scratch) {
  for (const SequenceChunk& chunk : call.chunks) memory.check(chunk);
  AttentionScratch::State& state = scratch.state();
  const AttentionPlan& plan = plan_of(worker, memory.layout(), call, state);
  QUIRE_CHECK(plan.num_chunks() == static_cast<std::int64_t>(call.chunks.size()) && plan.window() == call.window &&
                  plan.group() * memory.layout().num_kv_heads == call.num_heads,
              "a plan of ", plan.num_chunks(), " chunks, window ", plan.window());
  if (!state.suffices(worker.count(), plan.need())) {
    worker.barrier();  // all have seen that it must grow
    if (worker.index() == 0) state.grow(worker.count(), plan.need());
    worker.barrier();
  }
  AttentionWork<Memory> work(attention_kernels(tier), memory, call, state, plan, worker.index());
  worker.for_each_ahead(work.num_items(), [&](std::int64_t item, std::int64_t next) { work.compute(item, next); });
}

}  // namespace quire::attention
