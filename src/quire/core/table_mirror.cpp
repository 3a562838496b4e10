#include "quire/core/table_mirror.h"

#include "quire/base/check.h"

namespace quire {

void TableMirror::apply(const BatchPlan& plan) {
  for (const SequenceFork& fork : plan.forks) {
    const auto parent = tables_.find(fork.parent);
    QUIRE_CHECK(parent != tables_.end(), "fork of unknown sequence ", fork.parent);
    std::vector<BlockTable> child = parent->second;
    for (BlockTable& table : child)
      table.blocks.resize(static_cast<std::size_t>(geometry_.num_entries(fork.num_tokens)));
    const bool is_new = tables_.emplace(fork.child, std::move(child)).second;
    QUIRE_CHECK(is_new, "fork into sequence ", fork.child, ", which exists");
  }
  for (SequenceId sequence : plan.dropped) tables_.erase(sequence);
  for (const TableEdit& edit : plan.table_edits) {
    auto found = tables_.find(edit.sequence);
    QUIRE_CHECK(found != tables_.end(), "edit of unknown sequence ", edit.sequence);
    found->second.at(static_cast<std::size_t>(edit.group)).blocks.at(static_cast<std::size_t>(edit.index)) = edit.block;
  }
  for (const PlanRow& row : plan.rows) {
    std::vector<BlockTable>& tables = tables_[row.sequence];
    tables.resize(geometry_.num_groups());
    auto first = plan.new_blocks.begin() + row.new_blocks_offset;
    for (BlockTable& table : tables) {
      table.blocks.insert(table.blocks.end(), first, first + row.num_new_blocks);
      first += row.num_new_blocks;
    }
  }
}

void TableMirror::end_step(const BatchPlan& plan, std::span<const RowResult> results) {
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    if (row.num_proposed == 0 && !geometry_.has_windows()) continue;
    const std::int64_t counted = end_that_counts(row, results[r]);
    std::vector<BlockTable>& tables = tables_.at(row.sequence);
    for (std::size_t group = 0; group < tables.size(); ++group) {
      BlockTable& table = tables[group];
      table.blocks.resize(static_cast<std::size_t>(geometry_.num_entries(counted)));
      for (const std::int64_t end = geometry_.first_kept(group, counted); table.first_held < end; ++table.first_held)
        table.blocks[static_cast<std::size_t>(table.first_held)] = kNullBlock;
    }
  }
}

std::span<const BlockId> TableMirror::table(SequenceId sequence, std::size_t group) const {
  auto found = tables_.find(sequence);
  if (found == tables_.end()) return {};
  return found->second[group].blocks;
}

}  // namespace quire
