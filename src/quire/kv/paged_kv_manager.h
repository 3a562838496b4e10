#pragma once
// PagedKvManager: KV memory as a pool of fixed-size blocks and a block table for each sequence, as in PagedAttention
// (Kwon et al., SOSP 2023, section 4): append, fork, copy-on-write, release. With a CacheIdentity, also a cache of
// prefixes: see kv_manager.h. With TierOptions, tiers behind the pool: see kv_tiers.h. A sequence has a table in each
// layer group (kv/layer_groups.h); a block belongs to no group while it is free.
//
// Eviction: when no block is free, the one that has been idle for longest gives up its key. A released sequence's
// blocks become idle from the last to the first, so that its end goes before the prefix that others may share; of one
// position the first group's block is the last to go, since the others lose their keys with it. What a window has
// passed over becomes idle at once, and so goes before what was released later.
//
// Cost: a reservation, its extension and its truncation are O(blocks added or given back), whatever the length of the
// table; fork and release are O(length of the table); starting a plan is O(1); what a window has passed over is given
// back in O(blocks given back).
//
// Invariants (validate), beside P1..P4 of the pool and X1..X3 of the index:
//  K1  (I2) a block's reference count = the number of table entries that name it
//  K2  (I5) all tables of a sequence have ceil(num_tokens / block_size) entries. Those before first_held are null, and
//      first_held lies where the group's window says; all others are blocks in use, no block twice in a sequence
//  K3  (I3) nothing is written to a shared block: a reservation that starts inside a block with other holders replaces that
//      block by a copy (checked while committing)
//  K4  (I3) nothing is written to a keyed block: a reservation that starts inside one, in a fork that has less than its
//      parent had, takes its key or replaces it by a copy

#include <unordered_map>

#include "quire/base/result.h"
#include "quire/kv/block_pool.h"
#include "quire/kv/block_table.h"
#include "quire/kv/kv_manager.h"
#include "quire/kv/kv_tiers.h"
#include "quire/kv/layer_groups.h"
#include "quire/kv/prefix_index.h"

namespace quire {

/// 8, 16, 32, 64 and 128 tokens.
bool is_block_size(std::int64_t block_size);

class PagedKvManager : public KvManager {
 public:
  /// is_block_size(geometry.block_size()); num_blocks >= 1. Both are checked where they enter (CoreOptions).
  /// `cache`: whose prefixes are cached; nullopt: no cache, and no tiers. Tiers need one layer group.
  PagedKvManager(std::int32_t num_blocks, const GroupGeometry& geometry,
                 std::optional<CacheIdentity> cache = std::nullopt, const TierOptions& tiers = {});
  /// One full group.
  PagedKvManager(std::int32_t num_blocks, std::int32_t block_size, std::optional<CacheIdentity> cache = std::nullopt,
                 const TierOptions& tiers = {});

  KvCapacity capacity() const override;
  KvUsage usage() const override;
  std::int64_t blocks_for(std::int64_t num_tokens) const override { return geometry_.blocks_for(num_tokens); }
  std::int64_t blocks_held(std::int64_t num_tokens) const override { return geometry_.blocks_held(num_tokens); }
  std::int64_t whole_blocks(std::int64_t num_tokens) const override {
    return geometry_.has_windows() ? 0 : num_tokens / block_size_;
  }
  std::int32_t num_sequences() const override;
  std::int64_t reserved_tokens(SequenceId sequence) const override;

  void begin_plan() override;
  bool plan_reserve(SequenceId sequence, std::int64_t num_tokens) override;
  bool plan_extend(SequenceId sequence, std::int64_t num_tokens) override;
  void plan_release(SequenceId sequence) override;
  std::int64_t plan_free_blocks() const override { return plan_free_blocks_; }
  void commit_plan(KvChanges& changes, std::vector<KvReservation>& reservations) override;

  bool plan_start(SequenceId sequence, const PrefixHit& hit, std::int64_t num_tokens) override;
  PrefixHit match(KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit) const override;
  void publish(SequenceId sequence, KeyChain& chain, std::span<const TokenId> tokens) override;
  KvCacheCounters cache_counters() const override { return cache_counters_; }

  KeepEstimate estimate_keep(std::span<const SequenceId> sequences) const override;
  void plan_keep(SequenceId sequence, KeyChain& chain) override;
  void forget_kept(KeyChain& chain) override;
  bool plan_reads(const KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit,
                  const PrefixHit& hit) override;
  bool is_reading(const KeyChain& chain, const PrefixHit& hit) const override;
  void note_files(std::span<const BlockKey> keys) override;
  void end_transfer(const TransferEnd& end) override;
  std::int32_t num_reads_in_flight() const override;
  bool has_transfers_to_start() const override;
  KvTierCounters tier_counters() const override;

  void fork(SequenceId parent, SequenceId child, std::int64_t num_tokens) override;
  void truncate(SequenceId sequence, std::int64_t num_tokens) override;
  void release(SequenceId sequence) override;
  std::optional<std::string> validate() const override;

  /// The sequence's table in a group; nullptr if the sequence does not exist. Valid until the next change.
  const BlockTable* find_table(SequenceId sequence, std::size_t group = 0) const;
  const GroupGeometry& geometry() const { return geometry_; }
  const BlockPool& pool() const { return pool_; }

 private:
  /// A place for a sequence; places are reused, ids are not.
  struct Entry {
    SequenceId sequence;
    bool live = false;
    std::uint64_t planned_in = 0;    ///< the plan (by number) that already has an operation on this sequence,
    std::size_t operation = 0;       ///< and which of its operations that is
    std::vector<BlockTable> tables;  ///< [num_groups]
    std::int64_t num_tokens = 0;     ///< reserved positions: [0, num_tokens)
    std::int64_t num_computed = 0;   ///< of these, as far as windows have been moved
    std::int32_t num_published = 0;  ///< blocks of a table whose content has been published
    PrefixEnd published_end;         ///< the prefix that they form
    bool publishes = true;           ///< false: a collision; what follows has no key either
  };
  struct PlannedOperation {
    SequenceId sequence;
    std::int64_t num_tokens;  ///< kRelease: release it
    std::size_t hit;          ///< of planned_hits_; kNoHit
  };
  static constexpr std::int64_t kRelease = -1;
  static constexpr std::size_t kNoHit = ~std::size_t{0};
  /// References that the open plan takes from a block; negative: gives to it. Counts of older plans are stale and read
  /// as 0.
  struct PlannedDrops {
    std::uint64_t plan = 0;
    std::int32_t count = 0;
  };

  Entry* find(SequenceId sequence);
  const Entry* find(SequenceId sequence) const;
  Entry& create(SequenceId sequence);
  void erase(Entry& entry);
  void note_operation(Entry* entry, SequenceId sequence, std::int64_t num_tokens);
  PlannedDrops& planned_drops(BlockId block);
  void plan_pin(BlockId block);
  std::int32_t planned_ref_count(BlockId block) const;
  void plan_drop(BlockId block);
  void pin_hits();
  void unpin_hits();
  KvReservation commit_reserve(const PlannedOperation& operation, KvChanges& changes);
  void begin_with(Entry& entry, const PrefixHit& hit, KvChanges& changes);
  void own_tail(Entry& entry, std::size_t group, KvChanges& changes);
  std::size_t longest_common(std::span<const BlockId> firsts) const;
  void add_blocks(std::span<const BlockId> firsts, PrefixHit& hit) const;
  void add_copy(const KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit, PrefixEnd end,
                PrefixHit& hit) const;
  void publish_blocks(Entry& entry, KeyChain& chain, std::span<const TokenId> tokens);
  bool publish_next(Entry& entry, const KeyChain& chain, std::span<const TokenId> tokens);
  void publish_companions(const Entry& entry, std::size_t index, BlockId first);
  void move_windows(Entry& entry, std::int64_t num_computed);
  void forget_key(BlockId block);
  BlockId must_allocate(KvChanges& changes);
  void drop_reference(BlockId block);
  std::optional<std::string> validate_entry(const Entry& entry) const;
  std::optional<std::string> validate_table(const Entry& entry, std::size_t group) const;

  // paged_kv_tiers.cpp; each needs tiers_.
  void match_tail(const KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit, PrefixEnd end,
                  PrefixHit& hit) const;
  void demote(BlockId block, KvChanges& changes);
  void keep(const Entry& entry, KvChanges& changes);
  void load_blocks(Entry& entry, const PrefixHit& hit, KvChanges& changes);
  void start_writes(KvChanges& changes);
  void start_reads(KvChanges& changes);
  void note_published(BlockId block, const BlockContent& content, std::span<const TokenId> tokens, std::size_t end);
  void store_block(BlockId block, FrameId frame, KvChanges& changes);
  void load_frame(FrameId frame, BlockId block, KvChanges& changes);
  void pin_frames(const PrefixHit& hit);
  void unpin_frames(const PrefixHit& hit);
  std::uint64_t number_behind(const PrefixHit& hit) const;
  bool is_planned_read(const BlockKey& key) const;

  const GroupGeometry geometry_;
  const std::int32_t block_size_;
  BlockPool pool_;
  std::optional<PrefixIndex> index_;  ///< nullopt: no cache
  std::optional<KvTiers> tiers_;      ///< nullopt: none
  SharedTokens published_tokens_;     ///< of the publish() under way
  KvCacheCounters cache_counters_;
  std::vector<BlockId> orphans_;  ///< kept for its memory
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> unused_entries_;
  std::unordered_map<SequenceId, std::uint32_t> entry_of_;  ///< looked up, never walked

  std::uint64_t plan_number_ = 0;
  std::int64_t plan_free_blocks_ = 0;
  std::vector<PlannedOperation> operations_;  ///< of the open plan, in order
  std::vector<PlannedDrops> drops_;           ///< [num_blocks + 1]
  std::vector<PrefixHit> planned_hits_;       ///< of the open plan
  bool released_late_ = false;                ///< the open plan has a release after a reservation
};

}  // namespace quire
