#include "quire/attention/attention_plan.h"

#include <algorithm>

#include "quire/attention/attention_kernels.h"
#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire::attention {
namespace {

/// Items of consecutive spans are cut so that each worker finds this many, or spans of their own if there are fewer.
constexpr std::int64_t kItemsPerWorker = 12;
constexpr std::int64_t kMostSpansPerItem = 8;

std::int32_t narrow(std::int64_t value) { return static_cast<std::int32_t>(value); }

std::int64_t align16(std::int64_t floats) { return round_up(floats, 16); }

}  // namespace

std::int64_t partial_floats(std::int64_t num_rows, std::int64_t head_dim) {
  return 2 * align16(num_rows) + num_rows * padded_dim(head_dim);
}

void AttentionPlan::make(const KvLayout& layout, const Input& input) {
  QUIRE_CHECK(input.num_heads > 0 && input.num_heads % layout.num_kv_heads == 0, input.num_heads, " heads");
  group_ = input.num_heads / layout.num_kv_heads;
  window_ = input.window;
  items_.clear();
  members_.clear();
  need_ = {};
  shared_positions_ = unshared_positions_ = 0;
  place_chunks(layout, input);
  add_row_tiles(input);
  if (input.cascade == Cascade::on) {
    shared_.find({input.chunks, layout.block_size, input.window, kMostSplitTokens});
    for (const SharedRun& run : shared_.runs()) add_shared(input, run);
  }
  add_spans(layout, input);
  size_scratch(layout, input);
}

void AttentionPlan::place_chunks(const KvLayout& layout, const Input& input) {
  chunks_.clear();
  std::int64_t num_spans = 0;
  for (const SequenceChunk& chunk : input.chunks) {
    SplitChunk split;
    if (chunk.num_tokens > 0 && chunk.num_tokens <= kMostSplitTokens) {
      const std::int64_t end = chunk.first_position + chunk.num_tokens;
      const std::int64_t begin =
          input.window > 0 ? std::max<std::int64_t>(0, chunk.first_position + 1 - input.window) : 0;
      split.first_span = begin / kSpanTokens;
      split.num_spans = ceil_div(end, kSpanTokens) - split.first_span;
      split.floats_per_partial = partial_floats(chunk.num_tokens * group_, layout.head_dim);
      split.first_partial = need_.partial_floats;
      split.first_counter = need_.counters;
      need_.partial_floats += layout.num_kv_heads * split.num_spans * split.floats_per_partial;
      need_.counters += layout.num_kv_heads;
    }
    split.span_index = num_spans;
    num_spans += split.num_spans;
    chunks_.push_back(split);
  }
  is_shared_.assign(static_cast<std::size_t>(num_spans), 0);
}

/// Long items first, so that the last ones to finish are short; and of a chunk the last tokens first, which see most.
void AttentionPlan::add_row_tiles(const Input& input) {
  for (std::size_t i = 0; i < input.chunks.size(); ++i) {
    const std::int64_t num_tokens = input.chunks[i].num_tokens;
    if (num_tokens <= kMostSplitTokens) continue;
    for (std::int64_t tile = ceil_div(num_tokens, kTokensPerItem) - 1; tile >= 0; --tile) {
      const std::int64_t first = tile * kTokensPerItem;
      items_.push_back({.kind = AttentionItem::Kind::row_tile,
                        .chunk = narrow(static_cast<std::int64_t>(i)),
                        .first = narrow(first),
                        .count = narrow(std::min(kTokensPerItem, num_tokens - first))});
    }
  }
}

/// Cuts a run into items of nearly equal numbers of tokens.
void AttentionPlan::add_shared(const Input& input, const SharedRun& run) {
  const auto chunks = shared_.members(run);
  const auto tokens_of = [&](std::int32_t chunk) { return input.chunks[static_cast<std::size_t>(chunk)].num_tokens; };
  std::int64_t num_tokens = 0;
  for (std::int32_t chunk : chunks) num_tokens += tokens_of(chunk);
  const std::int64_t wanted = ceil_div(num_tokens, ceil_div(num_tokens, kSharedTokensPerItem));
  AttentionItem item{.kind = AttentionItem::Kind::shared,
                     .num_tiles = run.num_tiles,
                     .first = narrow(static_cast<std::int64_t>(members_.size())),
                     .span = run.span};
  std::int64_t tokens = 0;
  for (std::int32_t chunk : chunks) {
    if (item.count > 0 && tokens + tokens_of(chunk) > wanted) {
      items_.push_back(item);
      item.first += item.count;
      item.count = 0, tokens = 0;
    }
    tokens += tokens_of(chunk);
    members_.push_back(chunk);
    ++item.count;
    const SplitChunk& split = chunks_[static_cast<std::size_t>(chunk)];
    is_shared_[static_cast<std::size_t>(split.span_index + run.span - split.first_span)] = 1;
  }
  items_.push_back(item);
  const std::int64_t positions = run.num_tiles * kTileTokens;
  shared_positions_ += positions;
  unshared_positions_ += positions * run.num_members;
}

void AttentionPlan::add_spans(const KvLayout& layout, const Input& input) {
  const auto num_private = std::count(is_shared_.begin(), is_shared_.end(), 0) * layout.num_kv_heads;
  const std::int64_t most =
      std::clamp<std::int64_t>(num_private / (kItemsPerWorker * input.num_workers), 1, kMostSpansPerItem);
  const std::size_t first = items_.size();
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    const SplitChunk& split = chunks_[i];
    const auto shared = std::span(is_shared_).subspan(static_cast<std::size_t>(split.span_index));
    for (std::int64_t at = 0; at < split.num_spans;) {
      const std::int64_t begin = at;
      while (at < split.num_spans && at - begin < most && shared[static_cast<std::size_t>(at)] == 0) ++at;
      if (at == begin) {
        ++at;
        continue;
      }
      items_.push_back({.chunk = narrow(static_cast<std::int64_t>(i)),
                        .first = narrow(split.first_span + begin),
                        .count = narrow(at - begin)});
    }
  }
  std::partition(items_.begin() + static_cast<std::ptrdiff_t>(first), items_.end(),
                 [&](const AttentionItem& item) { return item.count == most; });
}

void AttentionPlan::size_scratch(const KvLayout& layout, const Input& input) {
  std::int64_t most_tokens = 1;
  for (const SequenceChunk& chunk : input.chunks) most_tokens = std::max(most_tokens, chunk.num_tokens);
  most_tokens = std::min(most_tokens, kTokensPerItem);
  if (!members_.empty()) most_tokens = std::max(most_tokens, kSharedTokensPerItem);
  rows_per_item_ = most_tokens * group_;
  const std::int64_t floats = align16(rows_per_item_ * layout.head_dim) +             // packed queries
                              2 * kTileTokens * padded_dim(layout.head_dim) +         // decoded K and V
                              kMaxBlockRows * kTileTokens +                           // scores
                              2 * scale_groups(layout.head_dim) * kTileTokens + 16 +  // scales of int8
                              2 * partial_floats(rows_per_item_, layout.head_dim);    // running and next state
  const std::int64_t element_bytes = layout.type == KvType::f32 ? 4 : layout.type == KvType::int8 ? 1 : 2;
  const std::int64_t fetches = 2 * most_fetches(layout.head_dim, layout.block_size, element_bytes) + kMostFetchesAhead;
  need_.worker_bytes = round_up(floats * 4 + fetches * std::int64_t{sizeof(std::byte*)}, 64);
}

const AttentionPlan& AttentionPlans::plan(const KvLayout& layout, const AttentionPlan::Input& input) {
  for (std::size_t i = 0; i < count_; ++i) {
    if (chunks_[i] == input.chunks.data() && plans_[i]->window() == input.window) return *plans_[i];
  }
  if (count_ == plans_.size()) {
    plans_.push_back(std::make_unique<AttentionPlan>());
    chunks_.push_back(nullptr);
  }
  chunks_[count_] = input.chunks.data();
  plans_[count_]->make(layout, input);
  return *plans_[count_++];
}

}  // namespace quire::attention
