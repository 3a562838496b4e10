#pragma once
// ReservedKvManager: KV memory without paging, for comparison: every sequence reserves room for the longest one from
// its first token to its end, in one contiguous piece, and nothing is shared. The pool is cut into places of
// ceil(longest / block_size) blocks, place p being blocks [1 + p * m, 1 + (p + 1) * m). Tables still grow block by
// block, so that executors need to know nothing of it; a sequence's blocks lie one after another.
//
// What it does not have: a prefix cache (match finds nothing) and fork.
//
// Cost: O(blocks added) a reservation, O(1) everything else.
//
// Invariants (validate):
//  R1  a place belongs to at most one sequence; free places + sequences = places
//  R2  a sequence has at most `longest` tokens
//
// Thread-safety: none.

#include <map>
#include <vector>

#include "quire/kv/kv_manager.h"

namespace quire {

class ReservedKvManager final : public KvManager {
 public:
  /// 1 <= longest_tokens, and at least one place: ceil(longest_tokens / block_size) <= num_blocks. Blocks beyond the
  /// last whole place are never used: capacity() does not count them.
  ReservedKvManager(std::int32_t num_blocks, std::int32_t block_size, std::int64_t longest_tokens);

  std::int32_t num_places() const { return num_places_; }

  KvCapacity capacity() const override;
  KvUsage usage() const override;
  std::int64_t blocks_for(std::int64_t num_tokens) const override { return num_tokens > 0 ? blocks_per_place_ : 0; }
  std::int64_t whole_blocks(std::int64_t) const override { return 0; }
  bool can_fork() const override { return false; }
  std::int32_t num_sequences() const override { return static_cast<std::int32_t>(entries_.size()); }
  std::int64_t reserved_tokens(SequenceId sequence) const override;

  void begin_plan() override;
  bool plan_reserve(SequenceId sequence, std::int64_t num_tokens) override;
  void plan_release(SequenceId sequence) override;
  bool plan_start(SequenceId sequence, const PrefixHit& hit, std::int64_t num_tokens) override;
  std::int64_t plan_free_blocks() const override { return std::int64_t{plan_free_places_} * blocks_per_place_; }
  void commit_plan(KvChanges& changes, std::vector<KvReservation>& reservations) override;

  PrefixHit match(KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit) const override;
  void publish(SequenceId sequence, KeyChain& chain, std::span<const TokenId> tokens) override;
  KvCacheCounters cache_counters() const override { return {}; }

  void fork(SequenceId parent, SequenceId child, std::int64_t num_tokens) override;
  void release(SequenceId sequence) override;
  std::optional<std::string> validate() const override;

 private:
  struct Entry {
    std::int32_t place;
    std::int64_t num_tokens;
  };
  struct Operation {
    SequenceId sequence;
    std::int64_t num_tokens;  ///< kRelease: release it
  };
  static constexpr std::int64_t kRelease = -1;

  std::int64_t entries_for(std::int64_t num_tokens) const;
  void commit_reserve(const Operation& operation, KvChanges& changes, std::vector<KvReservation>& reservations);
  void erase(SequenceId sequence);

  const std::int32_t block_size_, blocks_per_place_, num_places_;
  const std::int64_t longest_tokens_;
  std::vector<std::int32_t> free_places_;  ///< last freed, first given
  std::map<SequenceId, Entry> entries_;
  std::int64_t num_tokens_ = 0;  ///< of all sequences
  std::int32_t plan_free_places_ = 0;
  std::vector<Operation> operations_;  ///< of the open plan, in order
};

}  // namespace quire
