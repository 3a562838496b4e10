#pragma once
// Layer groups: the layers of a model, cut into sets of equally many, each with a block table of its own over one pool.
// A block then holds block_size tokens of one group's layers. Layers with a sliding window are grouped with their like,
// so that their blocks can be given back as soon as the window has passed over them. A model whose layers are alike has
// one group. Which layer is in which group is the model's business (model/layer_grouping.h); here a group is its
// window.
//
// A query at position p of a group with window W sees positions (p - W, p]. Once positions [0, next) of a sequence have
// been computed, no later query sees anything before next - W + 1. One position more is kept, so that a fork may repeat
// the last computed position: the entries of a table before first_kept() are null, all others hold a block. A sequence
// that begins with cached content needs no more than first_needed() says.
//
// What a sequence of n tokens holds at once while it grows by at most `max_step_tokens` (C) a step, from c < n
// positions to e <= min(n, c + C): a full group holds ceil(e / B) blocks. A group of window W holds those that touch
// [max(0, c - W), e), that is at most W + C positions; an interval of L positions touches at most ceil((L - 1) / B) + 1
// blocks. So blocks_for(n) = the sum over groups of
//     full      ceil(n / B)
//     window W  min(ceil(n / B), ceil((W + C - 1) / B) + 1)
// It never falls as n grows, and it is all that the scheduler's promises rest on (sched/scheduler.h).
//
// The first group is full: the identity of cached content hangs on its blocks (kv/prefix_index.h). A model without a
// full layer is served with one full group, whose attention has a window and whose memory has none.

#include <cstdint>
#include <functional>
#include <vector>

namespace quire {

struct LayerGroup {
  std::int32_t window = 0;  ///< positions that a query sees; 0: all up to its own
  friend bool operator==(const LayerGroup&, const LayerGroup&) = default;
};

inline constexpr std::size_t kMaxLayerGroups = 128;  ///< at most 256: a byte of a key (kv/block_key.h)
inline constexpr LayerGroup kOneFullGroup[] = {LayerGroup{}};

class GroupGeometry {
 public:
  /// `groups` is not empty, the first one full. `max_step_tokens` >= 1: positions that a sequence grows by in one step
  /// at most.
  GroupGeometry(std::int32_t block_size, std::vector<LayerGroup> groups, std::int32_t max_step_tokens);

  /// One full group, and no limit to a step.
  static GroupGeometry uniform(std::int32_t block_size);

  std::int32_t block_size() const { return block_size_; }
  std::size_t num_groups() const { return groups_.size(); }
  const std::vector<LayerGroup>& groups() const { return groups_; }
  bool has_windows() const { return num_full_ != groups_.size(); }
  std::int32_t max_step_tokens() const { return max_step_tokens_; }

  /// Entries of a group's table, the null ones included.
  std::int64_t num_entries(std::int64_t num_tokens) const;
  /// The first entry that positions from `next` on see; 0 for a full group.
  std::int64_t first_needed(std::size_t group, std::int64_t next) const { return first_entry(group, next + 1); }
  /// The first entry that is kept once [0, next) have been computed; at most first_needed.
  std::int64_t first_kept(std::size_t group, std::int64_t next) const { return first_entry(group, next); }

  /// Whether an entry of a group's table could be filled from what is cached. Asked of all groups but the first.
  using EntryTest = std::function<bool(std::size_t group, std::int64_t entry)>;
  /// Each group has, of its first num_entries entries, those that positions from `next` on see.
  bool has_seen(std::int64_t next, std::int64_t num_entries, const EntryTest& has) const;
  /// The largest number of entries, at most num_entries, all of which the first group has, and of which each other
  /// group has those that positions behind them see. O(entries tested), each at most once for a group.
  std::int64_t longest_hit(std::int64_t num_entries, const EntryTest& has) const;

  /// Blocks that a sequence of up to num_tokens, sharing nothing, holds at once; see above.
  std::int64_t blocks_for(std::int64_t num_tokens) const;
  /// Blocks that a sequence, sharing nothing, holds between steps once num_tokens have been computed.
  std::int64_t blocks_held(std::int64_t num_tokens) const;
  /// The most tokens whose blocks_for() is at most num_blocks.
  std::int64_t longest_sequence(std::int64_t num_blocks) const;

 private:
  std::int64_t first_entry(std::size_t group, std::int64_t end) const {
    const std::int32_t window = groups_[group].window;
    return window == 0 || end <= window ? 0 : (end - window) / block_size_;
  }

  std::int32_t block_size_;
  std::int32_t max_step_tokens_;
  std::vector<LayerGroup> groups_;
  std::size_t num_full_ = 0;
};

}  // namespace quire
