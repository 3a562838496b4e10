#pragma once
// The settings of the deciding half. Fixed for the life of a core, and part of a recorded log.

#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/result.h"
#include "quire/kv/layer_groups.h"
#include "quire/kv/vattention_kv_manager.h"
#include "quire/sched/ngram_proposer.h"

namespace quire {

struct CoreOptions {
  std::int32_t block_size = 16;     ///< tokens a block: 8, 16, 32, 64 or 128
  std::int32_t num_blocks = 0;      ///< blocks of the pool, the null block not counted; 1 to 2^24
  std::int32_t context_tokens = 0;  ///< longest sequence the model takes, prompt and generated tokens; >= 1
  std::int32_t token_budget = 512;  ///< tokens computed in a step; >= 1
  std::int32_t max_rows = 256;      ///< sequences in a step; >= 1. At most min(max_rows, token_budget) run at a time
  std::int32_t watermark_blocks =
      -1;  ///< blocks kept free by admission while others run; -1: 1 % of the pool, at least 1
  std::int32_t ageing_steps = 1024;   ///< after more steps than these a request goes before later arrivals, whatever
                                      ///< the queue policy (sched/scheduler.h); >= 1
  std::string queue_policy = "fcfs";  ///< sched/policy.h
  std::string victim_policy = "latest-arrived";  ///< sched/policy.h
  std::string step_composition = "mixed";        ///< sched/step_composition.h
  bool prefix_cache = false;                     ///< find prefixes that were computed before; see kv/kv_manager.h

  // Speculative decoding (sched/ngram_proposer.h), with kv_manager paged.
  std::int32_t num_speculative_tokens = 0;  ///< proposed for a row at most, up to kMaxSpeculativeTokens; 0: off
  NgramMatch ngram;                         ///< within 1 and kMaxNgram

  std::string kv_manager = "paged";  ///< paged, vattention (kv/vattention_kv_manager.h) or reserved: the whole context
                                     ///< for every sequence (kv/reserved_kv_manager.h)

  // For vattention, where num_blocks are page-groups and block_size is that of keys: kKvTileTokens.
  std::int64_t tile_bytes = 0;         ///< of kKvTileTokens tokens, in one tensor; >= 1
  std::int64_t page_group_bytes = 0;   ///< in one tensor; >= 1
  std::int32_t num_kv_tensors = 1;     ///< that grow together; >= 1
  std::int32_t max_mappings = 64'000;  ///< of the process; the pool must be possible within them
  std::int32_t num_idle_places = 256;  ///< places beyond max_rows, for what ended sequences leave

  // Tiers behind the pool (kv/kv_tiers.h); they need the prefix cache.
  std::int32_t kv_ram_frames = 0;     ///< blocks that the RAM tier holds; 0: none
  bool kv_files = false;              ///< block files behind the RAM tier
  std::string preemption = "auto";    ///< sched/preemption.h
  std::int64_t copy_block_ns = 0;     ///< rates for "auto", measured once: a block to RAM and back;
  std::int64_t compute_token_ns = 0;  ///< a token computed again. Either 0: unknown

  std::vector<LayerGroup> layer_groups = {LayerGroup{}};  ///< kv/layer_groups.h; the first one is full

  GroupGeometry geometry() const { return {block_size, layer_groups, token_budget}; }
  bool is_vattention() const { return kv_manager == "vattention"; }
  bool is_reserved() const { return kv_manager == "reserved"; }
  PageGroupGeometry page_groups() const { return {tile_bytes, page_group_bytes, num_kv_tensors}; }
  VAttentionOptions vattention() const;
  /// Longest sequence that the pool can hold.
  std::int64_t pool_tokens() const;
  /// The pool in words: "4 blocks of 16".
  std::string pool_text() const;
};

/// The first option out of range, by name, with its value and what is allowed.
Result<void> check_options(const CoreOptions& options);

}  // namespace quire
