#include "quire/core/table_mirror.h"

#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire {

void TableMirror::apply(const BatchPlan& plan) {
  for (const SequenceFork& fork : plan.forks) {
    std::vector<BlockId> child(table(fork.parent).begin(),
                               table(fork.parent).begin() + ceil_div(fork.num_tokens, block_size_));
    const bool is_new = tables_.emplace(fork.child, std::move(child)).second;
    QUIRE_CHECK(is_new, "fork into sequence ", fork.child, ", which exists");
  }
  for (SequenceId sequence : plan.dropped) tables_.erase(sequence);
  for (const TableEdit& edit : plan.table_edits) {
    auto found = tables_.find(edit.sequence);
    QUIRE_CHECK(found != tables_.end(), "edit of unknown sequence ", edit.sequence);
    found->second.at(static_cast<std::size_t>(edit.index)) = edit.block;
  }
  for (const PlanRow& row : plan.rows) {
    std::vector<BlockId>& table = tables_[row.sequence];
    const auto first = plan.new_blocks.begin() + row.new_blocks_offset;
    table.insert(table.end(), first, first + row.num_new_blocks);
  }
}

std::span<const BlockId> TableMirror::table(SequenceId sequence) const {
  auto found = tables_.find(sequence);
  if (found == tables_.end()) return {};
  return found->second;
}

}  // namespace quire
