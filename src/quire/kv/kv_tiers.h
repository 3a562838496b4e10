#pragma once
// KvTiers: what PagedKvManager knows of the tiers behind its pool. One keyed store with pins: pool, RAM and files hold
// the same kind of content under the same keys, and a content that is lost anywhere is a miss. Blocks of all layer
// groups are of one size, and each moves by itself under the key of its group (kv/block_key.h): of a prefix, any tier
// may have any part, and a hit is what all groups can be served with.
//
//   demotion     an idle block that the pool evicts goes to a frame, unless a frame has its content already; so do its
//                companions, which lose their keys with it
//   promotion    a hit takes what is in frames into new blocks of the pool, and leaves it in the frames too
//   keeping      a preempted sequence's blocks that nobody else holds go to frames at once: full ones as keyed content,
//                pinned; the unfilled last one of each group as a private frame. What a window has passed over is not
//                the sequence's any more and is not kept
//   write-behind every published block is written to a file (kv/file_tier.h)
//   read-ahead   what files have of a waiting request's prefix goes to frames, of windows no more than a hit needs; it
//   is
//                found there when it has arrived
//
// Invariants (validate), beside T1..T3 of the RAM tier and F1, F2 of the file tier:
//  T4  a frame's pins = the number of kept sequences that name it; kept tails are in private frames
//  T5  every private frame is a kept tail or the target of a read in flight: none is lost

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "quire/kv/file_tier.h"
#include "quire/kv/kv_manager.h"
#include "quire/kv/ram_tier.h"

namespace quire {

/// None by default.
struct TierOptions {
  std::int32_t num_frames = 0;  ///< blocks that the RAM tier has room for
  bool has_files = false;       ///< needs frames
};

struct KvTiers {
  KvTiers(const TierOptions& options, std::int32_t num_blocks);

  /// Of a preempted sequence.
  struct Kept {
    std::vector<FrameId> pinned;  ///< in the order of their positions
    std::vector<FrameId> tails;   ///< [num_groups]; empty: none
    std::int32_t num_full_blocks = 0;
    std::int32_t num_tail_tokens = 0;
  };
  struct PlannedRead {
    NumberedContent content;
    SharedTokens tokens;
    std::int32_t num_tokens;  ///< of `tokens`: the prefix that ends with the block
  };

  void begin_plan();
  void plan_read(PlannedRead read);
  /// What is on its way from a file under this key, or will be once the open plan is committed; nullptr: nothing.
  const NumberedContent* find_read(const BlockKey& key) const;
  void forget_kept(SequenceId sequence);
  std::optional<std::string> validate() const;

  RamTier ram;
  std::optional<FileTier> files;
  std::unordered_map<SequenceId, Kept> kept;  ///< looked up; walked only by validate
  KvTierCounters counters;                    ///< totals only

  // Of the open plan.
  std::vector<SequenceId> planned_keeps;
  std::int32_t planned_frames = 0;  ///< for keeps and reads
  std::vector<PlannedRead> planned_reads;
  std::unordered_map<BlockKey, std::size_t, BlockKeyHash> planned_read_of;  ///< looked up, never walked
};

}  // namespace quire
