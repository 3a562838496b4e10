#pragma once
// KvManager: the seam between scheduling and KV memory. The scheduler asks for room and gives it back; which memory
// that is, and how it is named to the executor, is the manager's business. PagedKvManager is the implementation with
// blocks.
//
// A step is planned on a scratch view and committed in one place:
//
//     begin_plan();                        // an empty plan; the state itself is not touched
//     plan_release(victim);                // as if its memory were back
//     plan_reserve(sequence, num_tokens);  // true: there is room, noted; false: there is not, nothing noted
//     plan_extend(sequence, num_tokens);   // likewise: the reservation of this plan becomes larger
//     plan_start(sequence, hit, n);        // likewise, for a new sequence that begins with cached content
//     commit_plan(changes, reservations);  // does what was noted, in that order; cannot fail
//
// A plan that is not committed leaves no trace: begin_plan forgets it.
//
// Reserved means about to be written: reserve(sequence, n) says that this step writes positions [reserved so far, n).
// A sequence exists from its first reservation (or fork) to its release. Ids are the caller's and are not reused.
// Positions that were written and do not count after all are given back by truncate().
//
// The prefix cache. Once a step has been computed, publish() gives every full block its key (kv/block_key.h). match()
// finds the longest cached prefix of some tokens, and plan_start() begins a sequence with it: full blocks are shared,
// and slots of one more block are copied into the sequence's first private block, the one that holds its first computed
// position. The copy is of the whole block; its slots beyond the hit hold foreign content, which the sequence
// overwrites before it reads it, since it computes its positions in order and attends to none behind them. Blocks
// without references keep their content while memory lasts; they count as free.
//
// Layer groups (kv/layer_groups.h). A model whose layers differ has several groups, and a sequence a table in each, all
// with equally many entries. What a window has passed over is given back when publish() says that a position has been
// computed; those entries become null without an edit, by the rule that executors know (GroupGeometry::first_kept). A
// prefix hit needs, of each group, the blocks that its first computed position sees.
//
// Tiers, if the manager has any (kv/kv_tiers.h): content that the pool gives up goes to RAM, and to files behind that;
// match() finds it in RAM, and plan_start() loads it. A preempted sequence may be kept: its content stays in RAM until
// forget_kept(). What lies in files is asked for with plan_reads() and found in RAM once the transfer has ended.
//
// Thread-safety: none; one thread at a time.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/base/ids.h"
#include "quire/kv/block_key.h"
#include "quire/kv/tier_changes.h"

namespace quire {

/// The content of `from` goes to `to`, before the step's writes; copies are done in the order of the list.
struct BlockCopy {
  BlockId from, to;
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

/// `child`, a new sequence, begins with the parent's table entries of its first num_tokens positions, in each group.
/// Done outside of plans; the next plan tells the executor.
struct SequenceFork {
  SequenceId parent, child;
  std::int32_t num_tokens;
  friend bool operator==(const SequenceFork&, const SequenceFork&) = default;
};

/// Entry `index` of the sequence's block table in `group` becomes `block`.
struct TableEdit {
  SequenceId sequence;
  std::int32_t index;
  BlockId block;
  std::int32_t group = 0;
  friend bool operator==(const TableEdit&, const TableEdit&) = default;
};

/// vAttention: page-groups [group, group + count) are mapped at the indices [index, index + count) of a place, over
/// what is mapped there; with the null block, the last `count` groups of the place, from `index` on, are unmapped.
struct GroupMap {
  std::int32_t place, index, count;
  BlockId group;
  friend bool operator==(const GroupMap&, const GroupMap&) = default;
};

/// The cached prefix of some tokens. Valid until the next commit_plan, fork, release or publish.
struct PrefixHit {
  std::int32_t num_tokens = 0;        ///< covered, the copied slots included
  std::int32_t num_blocks = 0;        ///< full blocks, a group
  std::vector<BlockId> blocks;        ///< [num_groups, num_blocks]: to be shared; null: behind the group's window, or
                                      ///< to be loaded from `frames`
  std::vector<FrameId> frames;        ///< as many as blocks, or none
  std::vector<FrameId> tail_frames;   ///< [num_groups]: loaded into private blocks, of which the first slots count;
                                      ///< empty: none; null: the group's is copied
  bool tail_is_kept = false;          ///< these are the kept tails of a preempted sequence, not keyed frames. Windows
                                      ///< have then what positions from num_tokens on see, else from num_blocks on
  std::vector<BlockId> copy_from;     ///< [num_groups]: blocks whose first slots are copied; empty: none; null: the
                                      ///< group's is loaded
  std::int32_t num_saved_blocks = 0;  ///< of KvManager::blocks_for: those that a sequence beginning with the hit takes
                                      ///< from nobody: shared, and for as long as it lives
  std::int32_t num_idle_sources = 0;  ///< of copy_from: those that are taken from the free blocks until the commit
  std::int32_t place = -1;            ///< vAttention: where all of it was found
  bool takes_source = false;          ///< vAttention: instead of copying from it, the sequence takes the source over,
                                      ///< and what is cached there and behind it is lost

  /// The same hit in less memory, if it has idle sources.
  void take_less(std::int32_t block_size) {
    if (place < 0) return drop_copy(block_size);
    takes_source = true;
    num_idle_sources = 0;
  }

  /// The same hit without what is copied or loaded behind its full blocks, which needs less memory. Not with kept
  /// tails.
  void drop_copy(std::int32_t block_size) {
    copy_from.clear();
    tail_frames.clear();
    num_idle_sources = 0;
    num_tokens = num_blocks * block_size;
  }
};

/// Totals of the prefix cache since the start.
struct KvCacheCounters {
  std::uint64_t published_blocks = 0;  ///< blocks that got a key
  std::uint64_t evicted_blocks = 0;    ///< idle blocks that gave their key up for new content
  std::uint64_t collisions = 0;        ///< blocks that got none because another content has it
};

/// Totals of the KV tiers since the start, and their state.
struct KvTierCounters {
  std::uint64_t blocks_stored = 0;  ///< pool to RAM
  std::uint64_t blocks_loaded = 0;  ///< RAM to pool
  std::uint64_t blocks_lost = 0;    ///< evicted from the pool while no frame could be had
  std::uint64_t frames_evicted = 0;
  std::uint64_t writes_given_up = 0;                         ///< blocks that were gone, or too many
  std::array<std::uint64_t, kNumTransferOutcomes> writes{};  ///< ended, by TransferOutcome
  std::array<std::uint64_t, kNumTransferOutcomes> reads{};   ///< likewise
  std::uint64_t files_removed = 0;                           ///< to stay within the budget
  std::int32_t frames_total = 0, frames_keyed = 0, frames_private = 0;
  std::int64_t files_known = 0;
  std::int32_t writes_in_flight = 0, reads_in_flight = 0;
  std::int64_t writes_waiting = 0;  ///< published blocks that are still to be written
};

/// What it takes to keep the content of some sequences while they are preempted.
struct KeepEstimate {
  bool has_tiers = false;
  bool fits = false;            ///< the RAM tier has room for it now
  std::int32_t num_blocks = 0;  ///< that nobody else holds
  std::int64_t num_tokens = 0;  ///< in these
};

/// What a committed plan changes in memory and tables; the executor applies it before the step's writes.
struct KvChanges {
  std::vector<BlockId> new_blocks;     ///< appended to tables; a KvReservation says which are whose
  std::vector<BlockCopy> copies;       ///< copy-on-write, and partly cached blocks
  std::vector<TableEdit> table_edits;  ///< copy-on-write: the copy takes the shared block's place

  // vAttention, where a block is a page-group and a sequence has a place (kv/vattention_kv_manager.h).
  std::vector<GroupMap> group_maps;  ///< before the copies, in the order of the list
  std::vector<GroupMap> ahead_maps;  ///< for later steps: done by the beginning of the next plan
  TierChanges tiers;                 ///< done before the copies
};

/// One plan_reserve, committed: new_blocks[offset + g * count, offset + (g + 1) * count) are appended to the sequence's
/// table in group g.
struct KvReservation {
  SequenceId sequence;
  std::int32_t new_blocks_offset;
  std::int32_t num_new_blocks;  ///< a group
  std::int32_t place = -1;      ///< vAttention: where the sequence lives, from its first reservation to its end
};

struct KvCapacity {
  std::int32_t block_size;  ///< tokens a block, of one layer group
  std::int32_t num_blocks;
  std::int32_t free_blocks;        ///< can be had at once, cached ones included
  std::int32_t cached_blocks = 0;  ///< of these: hold content that the next request may find
  std::int64_t num_tokens() const { return std::int64_t{block_size} * num_blocks; }  ///< slots, of one group each
  std::int32_t used_blocks() const { return num_blocks - free_blocks; }
};

/// What the memory in use is used for; for reports.
struct KvUsage {
  std::int64_t table_entries = 0;   ///< blocks held, counted once for every sequence that holds them
  std::int64_t used_blocks = 0;     ///< the same, counted once: table_entries - used_blocks is what sharing saves
  std::int64_t unfilled_slots = 0;  ///< token slots of used blocks without a token: internal fragmentation. A block
                                    ///< that several sequences end in is as full as the longest of them makes it
};

class KvManager {
 public:
  virtual ~KvManager() = default;

  virtual KvCapacity capacity() const = 0;

  /// O(sequences).
  virtual KvUsage usage() const = 0;

  /// The most blocks that a sequence, sharing nothing, holds at once while it grows to num_tokens. Does not fall as
  /// num_tokens grows.
  virtual std::int64_t blocks_for(std::int64_t num_tokens) const = 0;

  /// Of these: blocks that a fork at num_tokens shares for good, because neither sequence will write into them or give
  /// them up; fewer where sharing has other costs. Both never change for a manager, and may be asked for from any
  /// thread.
  virtual std::int64_t whole_blocks(std::int64_t num_tokens) const = 0;

  /// The most entries that the tables of all sequences have at once, shared blocks counted in each of them.
  virtual std::int64_t most_entries() const { return std::numeric_limits<std::int64_t>::max(); }

  /// False: requests with several branches, and beam searches, are refused.
  virtual bool can_fork() const { return true; }
  /// Blocks that a sequence, sharing nothing, holds between steps once num_tokens have been computed.
  virtual std::int64_t blocks_held(std::int64_t num_tokens) const { return blocks_for(num_tokens); }

  /// Sequences that hold memory.
  virtual std::int32_t num_sequences() const = 0;

  /// Positions reserved for the sequence; 0 if it does not exist.
  virtual std::int64_t reserved_tokens(SequenceId sequence) const = 0;

  virtual void begin_plan() = 0;

  /// At most one reservation a sequence in a plan, none for one released in it; num_tokens >= what it has reserved.
  virtual bool plan_reserve(SequenceId sequence, std::int64_t num_tokens) = 0;
  virtual void plan_release(SequenceId sequence) = 0;

  /// The plan has a reservation of this sequence, which existed before; num_tokens >= what that says. A manager that
  /// cannot truncate() has no room for it.
  virtual bool plan_extend(SequenceId, std::int64_t /*num_tokens*/) { return false; }

  /// plan_reserve for a sequence that does not exist, beginning with `hit`, which is not empty and was found after
  /// begin_plan; num_tokens > hit.num_tokens. A plan with a start has its releases before its first reservation.
  virtual bool plan_start(SequenceId sequence, const PrefixHit& hit, std::int64_t num_tokens) = 0;

  /// Free blocks once the plan so far is committed.
  virtual std::int64_t plan_free_blocks() const = 0;

  /// Appends to `changes`, and to `reservations` one entry for each plan_reserve that returned true, in that order.
  virtual void commit_plan(KvChanges& changes, std::vector<KvReservation>& reservations) = 0;

  /// The longest cached prefix of `tokens`, at most `limit` tokens of it; empty without a cache. `chain` belongs to
  /// these tokens; keys that it lacks are added.
  virtual PrefixHit match(KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit) const = 0;

  /// The sequence's first positions, those of `tokens`, have been computed. Full blocks among them that have no key yet
  /// get one, unless their content is cached already; what no later position sees is given back. Not while a plan is
  /// open.
  virtual void publish(SequenceId sequence, KeyChain& chain, std::span<const TokenId> tokens) = 0;

  virtual KvCacheCounters cache_counters() const = 0;

  // -- tiers; a manager without any leaves these as they are --

  virtual KeepEstimate estimate_keep(std::span<const SequenceId>) const { return {}; }
  /// The release of this sequence in the open plan keeps its content for whoever has `chain`, as far as there is room.
  virtual void plan_keep(SequenceId, KeyChain&) {}
  /// Nobody will ask for what was kept for this chain any more: it has resumed, or ended. Not while a plan is open.
  virtual void forget_kept(KeyChain&) {}
  /// Asks for what files have behind `hit`, which is what match() found for the same arguments. False: nothing.
  virtual bool plan_reads(const KeyChain&, std::span<const TokenId>, std::int64_t /*limit*/, const PrefixHit&) {
    return false;
  }
  /// More than `hit`, likewise, will be found once files that are being read have arrived.
  virtual bool is_reading(const KeyChain&, std::span<const TokenId>, std::int64_t /*limit*/, const PrefixHit&) const {
    return false;
  }
  virtual void note_files(std::span<const BlockKey>) {}
  /// Transfers that are not in flight are ignored. Not while a plan is open.
  virtual void end_transfer(const TransferEnd&) {}
  virtual std::int32_t num_reads_in_flight() const { return 0; }
  /// A plan, even an empty one, would start a transfer.
  virtual bool has_transfers_to_start() const { return false; }
  virtual KvTierCounters tier_counters() const { return {}; }

  /// `child`, a new sequence, has the first num_tokens positions of `parent` (all of which have been computed) and
  /// shares their memory; 0 <= num_tokens <= what the parent has reserved. With windows, a window that the parent has
  /// outgrown is gone: then num_tokens is at least one less than what the parent has computed. Takes no memory: the
  /// first of them to write into a shared, partly filled block gets a copy. Not while a plan is open.
  virtual void fork(SequenceId parent, SequenceId child, std::int64_t num_tokens) = 0;

  /// The sequence's positions from num_tokens on do not count: they were proposals (sched/ngram_proposer.h) that did
  /// not come true. Their blocks are free again; what is left is what plans would have reserved without them. None of
  /// them was published or is in a fork. After plan_extend() only, and not while a plan is open.
  virtual void truncate(SequenceId, std::int64_t /*num_tokens*/) {}

  /// The sequence ends and gives up its memory. Not while a plan is open.
  virtual void release(SequenceId sequence) = 0;

  /// The system has refused what a plan counted on: the next plan gives back what no sequence needs. Not while a plan
  /// is open.
  virtual void note_refused() {}

  /// The first violated invariant, or nullopt. As slow as it needs to be: for tests and debugging.
  virtual std::optional<std::string> validate() const = 0;
};

}  // namespace quire
