#pragma once
// TableMirror: an executor's own copy of the block tables, kept up to date from the changes that plans carry.
// Thread-safety: none; readers may share it between calls of apply and end_step.

#include <span>
#include <unordered_map>
#include <vector>

#include "quire/base/ids.h"
#include "quire/kv/block_table.h"
#include "quire/kv/layer_groups.h"
#include "quire/sched/batch_plan.h"

namespace quire {

class TableMirror {
 public:
  explicit TableMirror(GroupGeometry geometry) : geometry_(std::move(geometry)) {}
  /// One full group.
  explicit TableMirror(std::int32_t block_size) : TableMirror(GroupGeometry::uniform(block_size)) {}

  /// Steps 1 to 4 of sched/batch_plan.h: forks, drops, edits, appends. Call it once for each plan, in order. The block
  /// copies (step 6) are the caller's: they move contents.
  void apply(const BatchPlan& plan);

  /// Steps 8 and 9: the rows have been computed. What did not come true is gone, what lies behind windows is null.
  void end_step(const BatchPlan& plan, std::span<const RowResult> results);

  /// The sequence's table in a group: position p lives in block table[p / block_size]. Empty if the sequence is
  /// unknown. Valid until the next apply.
  std::span<const BlockId> table(SequenceId sequence, std::size_t group = 0) const;

  const GroupGeometry& geometry() const { return geometry_; }
  std::size_t num_sequences() const { return tables_.size(); }

 private:
  const GroupGeometry geometry_;
  std::unordered_map<SequenceId, std::vector<BlockTable>> tables_;  ///< [num_groups] each; looked up, never walked
};

}  // namespace quire
