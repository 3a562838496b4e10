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
//  K3  (I3) nothing is written to a shared block: a reservation that starts inside a block with other holders replaces
//      that block by a copy (checked while committing)
//  K4  (I3) nothing is written to a keyed block: a reservation that starts inside one, in a fork that has less than its
//      parent had, takes its key or replaces it by a copy

#include <unordered_map>
#include <utility>

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
  /// `cache`: whose prefixes are cached; nullopt: no cache, and no tiers.
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
  bool is_reading(const KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit,
                  const PrefixHit& hit) const override;
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
  /// What is looked up: at most `limit` of the tokens.
  struct Wanted {
    const KeyChain& chain;
    std::span<const TokenId> tokens;
    std::int64_t limit;
  };
  /// Where some content lies: in the pool or, if not there, in a frame.
  struct Source {
    BlockId block;
    FrameId frame;
    bool is_there() const { return block != kNullBlock || frame != kNoFrame; }
  };
  /// What pool and RAM have of the first group, from the first block on.
  struct Walk {
    std::vector<Source> firsts;
    std::vector<PrefixEnd> ends;  ///< [firsts + 1]: of the prefix before each block, and of all of it
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
  BlockContent content_at(const Wanted& wanted, std::size_t index, PrefixEnd before) const;
  Source find_source(const BlockContent& content, BlockId first, std::size_t group) const;
  Walk walk_first_group(const Wanted& wanted) const;
  Source source_at(const Wanted& wanted, const Walk& walk, std::size_t group, std::size_t index) const;
  std::vector<Source> find_tail(const Wanted& wanted, PrefixEnd before, PrefixHit& hit) const;
  void add_tail(const Wanted& wanted, PrefixEnd before, PrefixHit& hit) const;
  void add_blocks(const Wanted& wanted, const Walk& walk, PrefixHit& hit) const;
  void publish_blocks(Entry& entry, KeyChain& chain, std::span<const TokenId> tokens);
  bool publish_next(Entry& entry, const KeyChain& chain, std::span<const TokenId> tokens);
  void publish_companions(const Entry& entry, std::size_t index, BlockId first);
  bool add_companion(const Entry& entry, std::size_t group, std::size_t index, BlockId first);
  void move_windows(Entry& entry, std::int64_t num_computed);
  void forget_key(BlockId block);
  BlockId must_allocate(KvChanges& changes);
  void drop_reference(BlockId block);
  std::optional<std::string> validate_entry(const Entry& entry) const;
  std::optional<std::string> validate_table(const Entry& entry, std::size_t group) const;

  // paged_kv_tiers.cpp; each needs tiers_.
  void use_kept_tail(const Wanted& wanted, const Walk& walk, PrefixHit& hit) const;
  void demote(BlockId block, KvChanges& changes);
  std::int32_t num_held_alone(std::span<const SequenceId> sequences, std::size_t group) const;
  void keep(const Entry& entry, KvChanges& changes);
  bool keep_block(BlockId block, KvTiers::Kept& kept, KvChanges& changes);
  void keep_tails(const Entry& entry, KvTiers::Kept& kept, KvChanges& changes);
  void load_blocks(Entry& entry, const PrefixHit& hit, KvChanges& changes);
  BlockId name_loaded(Entry& entry, BlockId block, FrameId frame, PrefixEnd before);
  void store_block(BlockId block, FrameId frame, KvChanges& changes);
  void load_frame(FrameId frame, BlockId block, KvChanges& changes);
  void pin_frames(const PrefixHit& hit);
  void unpin_frames(const PrefixHit& hit);

  // paged_kv_files.cpp; the first one does nothing without files, all others need them.
  void note_published(BlockId block, std::size_t index);
  /// Where a block behind a hit is. Later ones are nearer.
  enum class Whereabouts : std::uint8_t { absent, in_file, coming, there };
  /// What there is behind a hit: rows of blocks of all groups, as far as the first group's is not absent.
  struct Ahead {
    std::size_t begin;                   ///< the first row's index
    std::size_t full;                    ///< blocks that lie within the limit; one more row may cross it
    std::vector<Whereabouts> blocks;     ///< [num_rows, num_groups]
    std::vector<std::uint64_t> numbers;  ///< [num_rows]: of the content; 0: it gets one when it is read
  };
  /// Blocks [begin of the hit, end) of the first group, and of the others what a hit of so many needs.
  struct Reach {
    std::size_t end = 0;
    std::vector<std::pair<std::size_t, std::size_t>> blocks;  ///< (index, group), not yet there, in order
  };
  void start_writes(KvChanges& changes);
  void start_reads(KvChanges& changes);
  Ahead look_ahead(const Wanted& wanted, const PrefixHit& hit, std::size_t max_reads) const;
  Whereabouts find_ahead(const BlockContent& content, bool knows_before, BlockId first, std::size_t group) const;
  std::uint64_t number_ahead(const BlockContent& content, Whereabouts where, BlockId first) const;
  PrefixEnd end_of(const PrefixHit& hit) const;
  Reach reach(const Ahead& ahead, Whereabouts at_least, std::size_t most) const;

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
