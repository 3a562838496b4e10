#pragma once
// TableMirror: an executor's own copy of the block tables, kept up to date from the changes that plans carry.
// Thread-safety: none; readers may share it between calls of apply.

#include <span>
#include <unordered_map>
#include <vector>

#include "quire/base/ids.h"
#include "quire/sched/batch_plan.h"

namespace quire {

class TableMirror {
 public:
  explicit TableMirror(std::int32_t block_size) : block_size_(block_size) {}

  /// Steps 1 to 4 of sched/batch_plan.h: forks, drops, edits, appends. Call it once for each plan, in order. The block
  /// copies (step 5) are the caller's: they move contents.
  void apply(const BatchPlan& plan);

  /// The sequence's table: position p lives in block table[p / block_size]. Empty if the sequence is unknown. Valid
  /// until the next apply.
  std::span<const BlockId> table(SequenceId sequence) const;

  std::size_t num_sequences() const { return tables_.size(); }

 private:
  const std::int32_t block_size_;
  std::unordered_map<SequenceId, std::vector<BlockId>> tables_;  ///< looked up, never walked
};

}  // namespace quire
