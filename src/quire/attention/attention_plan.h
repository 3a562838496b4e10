#pragma once
// AttentionPlan: how a step's attention is cut into items of work. A plan depends on the chunks, the heads and the
// window alone, so one serves all layers that agree in these; it is made by one thread before the step's workers use it
// and is constant while they do. Which items there are never changes a bit: partial results are of whole spans of
// absolute positions and are folded in their order (rules 9 to 12 of the arithmetic).
//
// Items, in the order in which they are handed out
//   row_tile   a run of tokens of a long chunk over all that they see
//   shared     tokens of several chunks over the leading tiles of a span that lies in the same blocks for all of them
//              (shared_spans.h); then, for each of these chunks, what is left of the span
//   spans      the tokens of a short chunk over consecutive spans that it shares with nobody
//
// Contiguous memory (vAttention) has no block ids, so nothing is shared there.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/attention/attention_call.h"
#include "quire/attention/kv_store.h"
#include "quire/attention/shared_spans.h"

namespace quire::attention {

/// A chunk of at most this many tokens is cut into spans that different threads compute. A longer one is cut into runs
/// of tokens, enough to go round, each of which takes its spans in order. The order of the arithmetic is the same.
inline constexpr std::int64_t kMostSplitTokens = 16;
/// Tokens of a longer chunk that share each load of K and V.
inline constexpr std::int64_t kTokensPerItem = 32;
/// Tokens of different chunks that share each load. More would save little and leave too few items for many threads.
inline constexpr std::int64_t kSharedTokensPerItem = 16;

/// What a call needs of the scratch.
struct ScratchNeed {
  std::int64_t worker_bytes = 0, partial_floats = 0, counters = 0;
};

/// Floats of the PartialRows of num_rows rows.
std::int64_t partial_floats(std::int64_t num_rows, std::int64_t head_dim);

enum class Cascade : std::uint8_t { off, on };

struct AttentionItem {
  enum class Kind : std::uint8_t { row_tile, shared, spans };
  Kind kind = Kind::spans;
  std::int32_t num_tiles = 0;         ///< shared: leading tiles of the span that are walked once
  std::int32_t chunk = 0;             ///< row_tile, spans
  std::int32_t first = 0, count = 0;  ///< row_tile: tokens; shared: members; spans: spans
  std::int32_t span = 0;              ///< shared
};

/// Where the partial results of a short chunk go: for each KV head one for each span.
struct SplitChunk {
  std::int64_t first_span = 0, num_spans = 0;  ///< the spans that any of its rows sees; 0: the chunk is not split
  std::int64_t floats_per_partial = 0;
  std::int64_t first_partial = 0;  ///< floats into the shared partial results
  std::int64_t first_counter = 0;  ///< one counter a KV head
  std::int64_t span_index = 0;     ///< of first_span, among the spans of all split chunks
};

class AttentionPlan {
 public:
  struct Input {
    std::span<const SequenceChunk> chunks;
    std::int64_t num_heads = 0;
    std::int64_t window = 0;
    int num_workers = 1;
    Cascade cascade = Cascade::on;
  };

  /// Replaces the plan. Allocates only to grow.
  void make(const KvLayout& layout, const Input& input);

  // What it was made for: a call with this plan has the same.
  std::int64_t num_chunks() const { return static_cast<std::int64_t>(chunks_.size()); }
  std::int64_t group() const { return group_; }
  std::int64_t window() const { return window_; }

  /// For each KV head.
  std::span<const AttentionItem> items() const { return items_; }
  std::span<const std::int32_t> members(const AttentionItem& shared) const {
    return std::span(members_).subspan(static_cast<std::size_t>(shared.first), static_cast<std::size_t>(shared.count));
  }
  const SplitChunk& split(std::int64_t chunk) const { return chunks_[static_cast<std::size_t>(chunk)]; }
  const ScratchNeed& need() const { return need_; }
  std::int64_t rows_per_item() const { return rows_per_item_; }  ///< most rows of an item

  /// Positions whose K and V are walked once for several chunks, and what they would be if each walked its own.
  std::int64_t shared_positions() const { return shared_positions_; }
  std::int64_t unshared_positions() const { return unshared_positions_; }

 private:
  void place_chunks(const KvLayout& layout, const Input& input);
  void add_row_tiles(const Input& input);
  void add_shared(const Input& input, const SharedRun& run);
  void add_spans(const KvLayout& layout, const Input& input);
  void size_scratch(const KvLayout& layout, const Input& input);

  std::int64_t group_ = 0, window_ = 0, rows_per_item_ = 0;
  std::int64_t shared_positions_ = 0, unshared_positions_ = 0;
  ScratchNeed need_;
  SharedSpans shared_;
  std::vector<AttentionItem> items_;
  std::vector<std::int32_t> members_;
  std::vector<SplitChunk> chunks_;
  std::vector<std::uint8_t> is_shared_;  ///< by span of a split chunk, one chunk after another
};

/// The plans of a step, one for each window and set of tables; kept for their memory.
class AttentionPlans {
 public:
  /// Forgets the last step's.
  void clear() { count_ = 0; }
  /// The plan for these chunks, made unless the step has it. Valid until clear().
  const AttentionPlan& plan(const KvLayout& layout, const AttentionPlan::Input& input);
  std::span<const std::unique_ptr<AttentionPlan>> made() const { return std::span(plans_).first(count_); }

 private:
  std::vector<std::unique_ptr<AttentionPlan>> plans_;
  std::vector<const SequenceChunk*> chunks_;  ///< as plans_
  std::size_t count_ = 0;
};

}  // namespace quire::attention
