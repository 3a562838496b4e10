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
//     commit_plan(changes, reservations);  // does what was noted, in that order; cannot fail
//
// A plan that is not committed leaves no trace: begin_plan forgets it.
//
// Reserved means about to be written: reserve(sequence, n) says that this step writes positions [reserved so far, n).
// A sequence exists from its first reservation (or fork) to its release. Ids are the caller's and are not reused.
//
// Thread-safety: none; one thread at a time.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

/// The content of `from` goes to `to`, before the step's writes; copies are done in the order of the list.
struct BlockCopy {
  BlockId from, to;
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

/// Entry `index` of the sequence's block table becomes `block`.
struct TableEdit {
  SequenceId sequence;
  std::int32_t index;
  BlockId block;
  friend bool operator==(const TableEdit&, const TableEdit&) = default;
};

/// What a committed plan changes in memory and tables; the executor applies it before the step's writes.
struct KvChanges {
  std::vector<BlockId> new_blocks;     ///< appended to tables; a KvReservation says which are whose
  std::vector<BlockCopy> copies;       ///< copy-on-write
  std::vector<TableEdit> table_edits;  ///< copy-on-write: the copy takes the shared block's place
};

/// One plan_reserve, committed: new_blocks[offset, offset + count) are appended to the sequence's table.
struct KvReservation {
  SequenceId sequence;
  std::int32_t new_blocks_offset;
  std::int32_t num_new_blocks;
};

struct KvCapacity {
  std::int32_t block_size;  ///< tokens a block
  std::int32_t num_blocks;
  std::int32_t free_blocks;
  std::int64_t num_tokens() const { return std::int64_t{block_size} * num_blocks; }
  std::int32_t used_blocks() const { return num_blocks - free_blocks; }
};

class KvManager {
 public:
  virtual ~KvManager() = default;

  virtual KvCapacity capacity() const = 0;

  /// Blocks that a sequence of num_tokens, sharing nothing, holds.
  virtual std::int64_t blocks_for(std::int64_t num_tokens) const = 0;

  /// Sequences that hold memory.
  virtual std::int32_t num_sequences() const = 0;

  /// Positions reserved for the sequence; 0 if it does not exist.
  virtual std::int64_t reserved_tokens(SequenceId sequence) const = 0;

  virtual void begin_plan() = 0;

  /// At most one reservation a sequence in a plan, none for one released in it; num_tokens >= what it has reserved.
  virtual bool plan_reserve(SequenceId sequence, std::int64_t num_tokens) = 0;
  virtual void plan_release(SequenceId sequence) = 0;

  /// Free blocks once the plan so far is committed.
  virtual std::int64_t plan_free_blocks() const = 0;

  /// Appends to `changes`, and to `reservations` one entry for each plan_reserve that returned true, in that order.
  virtual void commit_plan(KvChanges& changes, std::vector<KvReservation>& reservations) = 0;

  /// `child`, a new sequence, has the same positions as `parent` and shares its memory. Takes no memory: the first of
  /// them to write into a shared, partly filled block gets a copy. Not while a plan is open.
  virtual void fork(SequenceId parent, SequenceId child) = 0;

  /// The sequence ends and gives up its memory. Not while a plan is open.
  virtual void release(SequenceId sequence) = 0;

  /// The first violated invariant, or nullopt. As slow as it needs to be: for tests and debugging.
  virtual std::optional<std::string> validate() const = 0;
};

}  // namespace quire
