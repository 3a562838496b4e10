#pragma once
// VAttentionKvManager: KV memory without block tables, after vAttention (Prabhu et al., ASPLOS 2025, arXiv 2405.04437).
// A sequence lives in a place, an address range of its own, where page-groups of physical memory are mapped as it
// grows. This class decides which group is mapped where and when; attention/virtual_kv_store.h does it. A block, where
// KvManager speaks of blocks, is a page-group (kv/page_groups.h); a key names a tile of 64 tokens.
//
//  - Growing: the groups that the new positions need are mapped in the plan that reserves them. Decodes are mapped
//    ahead: kAheadTokens tokens early, for at most kMostAhead sequences a step, and from free memory only.
//  - Deferred reclamation: an ended sequence's groups stay mapped in its place, which is free for the next one. Of the
//    free places, a new sequence takes the one that fits best: the smallest that has enough groups, else the largest.
//    Places whose content can be found are left alone while there are others: what is cached goes oldest first.
//  - Reclamation: only when no group is free. Of ended sequences, the one that has ended (or been found) longest ago,
//    from its end; then what is mapped ahead. All of this counts as free (capacity, plan_free_blocks).
//  - Aliasing, which the paper leaves out: a sequence that begins with cached content maps the same groups, those that
//    lie entirely in the shared tiles. The next group, if part of the shared content is in it, is copied; where memory
//    is short and nobody else has it, taken over. A forked sequence shares all groups of its tokens; the first to write
//    into a shared one gets a copy of it.
//  - A fork takes neither memory nor mappings: the child holds its groups in a list (kv/place_table.h) until its first
//    reservation, which gives it a place, if possible one where the same groups are mapped already.
//  - The kernel's limit on mappings is a second resource of a plan: a reservation or start that might exceed it has no
//    room. Mappings are counted as if no two places touched, in runs of consecutive groups; those of ended sequences go
//    when the limit comes near. What live sequences may take is bounded in two ways, and one of them has to fit:
//        their table entries; or every group of the pool, and on top the runs of what is aliased.
//    By the first, sequences alone whose groups, each counted in each of them, fit the limit (most_entries) never run
//    short of it. By the second, nor do sequences that share nothing, however many, since the pool is small enough.
//
// A hit covers whole tiles: of a partly cached tile nothing is used. cached_blocks is an upper bound: it counts what is
// mapped ahead.
//
// Cost: a reservation is O(groups it adds); a new sequence, a release and a fork are O(groups + places).
//
// Invariants (validate), beside G1..G5 of the place table and H1..H2 of the keys:
//  V1  a live sequence has one place or list, which holds groups_for(its tokens) groups, writable from
//      first_written(tokens) on
//  V2  what can be found is in memory: a place's published tiles lie in its mapped groups, and a live sequence's within
//      its tokens
//  V3  the places to reclaim from are those of ended sequences that have groups, once each
//  V4  nothing is written to a group that anybody else maps: a reservation that starts in one copies it (checked while
//      committing)

#include <set>
#include <unordered_map>
#include <utility>

#include "quire/kv/kv_manager.h"
#include "quire/kv/page_groups.h"
#include "quire/kv/place_keys.h"
#include "quire/kv/place_table.h"

namespace quire {

struct VAttentionOptions {
  PageGroupGeometry geometry;
  std::int32_t num_groups = 0;         ///< of the pool; >= 1
  std::int32_t num_places = 0;         ///< at least the sequences that live at once; more keep more of ended ones
  std::int64_t context_tokens = 0;     ///< longest sequence
  std::int64_t max_mappings = 64'000;  ///< of the process, all tensors; Linux allows 65,530 unless told otherwise
};

/// The pool that the limit on mappings allows even if no two groups of it are neighbours.
std::int64_t most_groups(const VAttentionOptions& options);

class VAttentionKvManager final : public KvManager {
 public:
  static constexpr std::int64_t kAheadTokens = 10;
  static constexpr int kMostAhead = 2;

  /// 1 <= num_groups <= most_groups(options); checked where it enters (CoreOptions). `cache` as for PagedKvManager.
  explicit VAttentionKvManager(const VAttentionOptions& options, std::optional<CacheIdentity> cache = std::nullopt);

  KvCapacity capacity() const override;
  /// Slots are those of whole tiles in held groups; a group that several sequences end in counts for each of them.
  KvUsage usage() const override;
  std::int64_t blocks_for(std::int64_t num_tokens) const override;
  std::int64_t whole_blocks(std::int64_t num_tokens) const override {
    return options_.geometry.first_written(num_tokens);
  }
  std::int64_t most_entries() const override { return max_runs_; }
  std::int32_t num_sequences() const override { return static_cast<std::int32_t>(place_of_.size()); }
  std::int64_t reserved_tokens(SequenceId sequence) const override;

  void begin_plan() override;
  bool plan_reserve(SequenceId sequence, std::int64_t num_tokens) override;
  void plan_release(SequenceId sequence) override;
  bool plan_start(SequenceId sequence, const PrefixHit& hit, std::int64_t num_tokens) override;
  std::int64_t plan_free_blocks() const override { return plan_available_; }
  void commit_plan(KvChanges& changes, std::vector<KvReservation>& reservations) override;

  PrefixHit match(KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit) const override;
  void publish(SequenceId sequence, KeyChain& chain, std::span<const TokenId> tokens) override;
  KvCacheCounters cache_counters() const override { return cache_counters_; }

  void fork(SequenceId parent, SequenceId child, std::int64_t num_tokens) override;
  void release(SequenceId sequence) override;
  void note_refused() override;
  std::optional<std::string> validate() const override;

  struct GroupUsage {
    std::int64_t held = 0;      ///< groups that live sequences need
    std::int64_t spare = 0;     ///< mapped, but nobody needs them now
    std::int64_t unmapped = 0;  ///< the rest
    std::int64_t mappings = 0;  ///< for the kernel, all tensors
  };
  GroupUsage group_usage() const;

  const PageGroupGeometry& geometry() const { return options_.geometry; }
  const PlaceTable& table() const { return table_; }
  /// The sequence's place; -1 if it does not exist, table().is_list() if it has been forked and not reserved since.
  std::int32_t place_of(SequenceId sequence) const;

 private:
  struct Occupant {
    SequenceId sequence;          ///< meaningful while the place is live
    std::int64_t num_tokens = 0;  ///< reserved; 0 if not live
    std::uint64_t planned_in = 0;
    std::int64_t alias_runs = 0;   ///< mappings that its shared beginning took, if it lives
    std::uint64_t idle_since = 0;  ///< orders the places of ended sequences
  };
  struct PlannedOperation {
    SequenceId sequence;
    std::int64_t num_tokens;  ///< kRelease: release it
    std::size_t hit;          ///< of planned_hits_; kNoHit
  };
  static constexpr std::int64_t kRelease = -1;
  static constexpr std::size_t kNoHit = ~std::size_t{0};
  /// What the open plan changes of a group; of older plans: nothing.
  struct PlannedChange {
    std::uint64_t plan = 0;
    std::int32_t holders = 0, pins = 0;
    bool is_taken_over = false;  ///< to be written, though it holds cached content
  };

  Occupant& occupant(std::int32_t place) { return occupants_[static_cast<std::size_t>(place)]; }
  const Occupant& occupant(std::int32_t place) const { return occupants_[static_cast<std::size_t>(place)]; }
  std::int32_t groups_of(std::int64_t num_tokens) const { return static_cast<std::int32_t>(blocks_for(num_tokens)); }
  std::int32_t first_written(std::int64_t num_tokens) const;

  void note_operation(std::int32_t place, SequenceId sequence, std::int64_t num_tokens);
  PlannedChange& planned(BlockId group);
  std::int32_t planned_holders(BlockId group) const;
  bool is_planned_held(BlockId group) const;
  void plan_holders(BlockId group, std::int32_t change);
  void plan_pin(BlockId group);
  bool plan_mappings(std::int64_t num_entries, std::int64_t num_alias_runs);

  std::int32_t choose_place(std::int32_t num_groups, const PrefixHit* hit) const;
  std::int32_t place_like(std::int32_t list) const;
  bool can_continue_in(std::int32_t place, const PrefixHit& hit) const;
  std::int32_t best_fit(std::int32_t num_groups, bool with_content) const;
  void begin_sequence(std::int32_t place, SequenceId sequence);
  void end_sequence(std::int32_t place);
  void empty_list(std::int32_t list);
  void note_late_maps();
  void note_aliases(std::int32_t place, std::int32_t num_groups);
  void set_tokens(std::int32_t place, std::int64_t num_tokens);

  void commit_reserve(const PlannedOperation& operation, KvChanges& changes);
  void commit_new(const PlannedOperation& operation, KvChanges& changes);
  std::int32_t move_in(SequenceId sequence);
  void hold_mapped(std::int32_t place, std::int32_t index, std::int32_t group);
  void copy_shared(std::int32_t place, KvChanges& changes);
  void fill(std::int32_t place, std::int64_t num_tokens, BlockId continued);
  void drop_shared_spare(std::int32_t place);
  void map_ahead();

  std::int32_t take_group(std::int32_t wanted);
  void reclaim(std::int32_t num_free);
  void reclaim_spare();
  void keep_mappings_within_limit(std::int64_t num_more);
  void unmap_last(std::int32_t place);
  void take_from_others(std::int32_t place, std::int32_t index);
  void shrink_to(std::int32_t place, std::int32_t size);
  void set_idle(std::int32_t place, bool idle);
  std::optional<std::string> validate_sequences() const;

  const VAttentionOptions options_;
  const std::int64_t max_runs_;
  PlaceTable table_;
  std::optional<PlaceKeys> keys_;  ///< nullopt: no cache
  KvCacheCounters cache_counters_;
  std::vector<Occupant> occupants_;                        ///< by place or list
  std::unordered_map<SequenceId, std::int32_t> place_of_;  ///< looked up, never walked
  std::set<std::pair<std::uint64_t, std::int32_t>> idle_;  ///< (since, place): ended, with groups
  std::uint64_t next_idle_ = 1;
  std::int64_t num_alias_runs_ = 0;  ///< of all occupants
  std::vector<GroupMap> late_maps_;  ///< between plans: of forks and ends

  std::uint64_t plan_number_ = 0;
  std::int64_t plan_available_ = 0, plan_entries_ = 0, plan_alias_runs_ = 0;
  std::vector<PlannedOperation> operations_;
  std::vector<PrefixHit> planned_hits_;
  std::vector<PlannedChange> planned_;  ///< [num_groups + 1]
  bool released_late_ = false;
};

}  // namespace quire
