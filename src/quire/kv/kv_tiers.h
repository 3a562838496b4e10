#pragma once
// KvTiers: what PagedKvManager knows of the tiers behind its pool. One keyed store with pins: pool, RAM and files hold
// the same kind of content under the same keys, and a content that is lost anywhere is a miss.
//
//   demotion     an idle block that the pool evicts goes to a frame, unless a frame has its content already
//   promotion    a hit takes what is in frames into new blocks of the pool, and leaves it in the frames too
//   keeping      a preempted sequence's blocks that nobody else holds go to frames at once: full ones as keyed content,
//                pinned; the unfilled last one as a private frame
//   write-behind every published block is written to a file (kv/file_tier.h)
//   read-ahead   what files have of a waiting request's prefix goes to frames; it is found there when it has arrived
//
// Invariants (validate), beside T1..T3 of the RAM tier and F1, F2 of the file tier:
//  T4  a frame's pins = the number of kept sequences that name it; a kept tail is in a private frame
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
    FrameId tail;                 ///< kNoFrame: none
    std::int32_t num_full_blocks = 0;
    std::int32_t num_tail_tokens = 0;
  };
  /// Several blocks of one prefix.
  struct PlannedReads {
    std::vector<NumberedContent> contents;
    std::vector<TokenId> tokens;   ///< up to the end of the last block
    std::int32_t first_block_end;  ///< tokens up to the end of the first block
  };

  void begin_plan();
  void forget_kept(SequenceId sequence);
  std::optional<std::string> validate() const;

  RamTier ram;
  std::optional<FileTier> files;
  std::unordered_map<SequenceId, Kept> kept;  ///< looked up; walked only by validate
  KvTierCounters counters;                    ///< totals only

  // Of the open plan.
  std::vector<SequenceId> planned_keeps;
  std::int32_t planned_frames = 0;  ///< for keeps and reads
  std::vector<PlannedReads> planned_reads;
};

}  // namespace quire
