// PagedKvManager::validate: invariants K1 and K2, and those of pool and index.

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/kv/paged_kv_manager.h"

namespace quire {

std::optional<std::string> PagedKvManager::validate_table(const Entry& entry, std::size_t group) const {
  const BlockTable& table = entry.tables[group];
  const auto where = [&] { return cat("K2: sequence ", entry.sequence, " in group ", group); };
  const auto num_entries = static_cast<std::int64_t>(table.blocks.size());
  if (num_entries != geometry_.num_entries(entry.num_tokens))
    return cat(where(), " has ", entry.num_tokens, " tokens in ", num_entries, " entries");
  if (table.first_held < geometry_.first_kept(group, entry.num_computed) ||
      table.first_held > geometry_.first_needed(group, entry.num_computed))
    return cat(where(), " holds blocks from entry ", table.first_held, " on with ", entry.num_computed, " computed");
  for (std::int64_t i = 0; i < num_entries; ++i) {
    const BlockId block = table.blocks[static_cast<std::size_t>(i)];
    if ((block == kNullBlock) != (i < table.first_held))
      return cat(where(), " has block ", block, " at ", i, " and holds from ", table.first_held);
    if (block != kNullBlock && pool_.ref_count(block) < 1)
      return cat(where(), " names block ", block, ", which is not in use");
  }
  return std::nullopt;
}

std::optional<std::string> PagedKvManager::validate_entry(const Entry& entry) const {
  if (!entry.live) {
    for (const BlockTable& table : entry.tables)
      if (!table.blocks.empty()) return cat("K2: an unused entry has ", table.blocks.size(), " blocks");
    return std::nullopt;
  }
  if (find(entry.sequence) != &entry) return cat("K2: sequence ", entry.sequence, " is not found by its id");
  std::vector<BlockId> named;
  for (std::size_t group = 0; group < entry.tables.size(); ++group) {
    if (auto violation = validate_table(entry, group)) return violation;
    std::ranges::copy_if(entry.tables[group].blocks, std::back_inserter(named),
                         [](BlockId block) { return block != kNullBlock; });
  }
  std::sort(named.begin(), named.end());
  const auto twice = std::adjacent_find(named.begin(), named.end());
  if (twice != named.end()) return cat("K2: sequence ", entry.sequence, " names block ", *twice, " twice");
  return std::nullopt;
}

std::optional<std::string> PagedKvManager::validate() const {
  if (auto violation = pool_.validate()) return violation;
  if (index_) {
    if (auto violation = index_->validate(pool_)) return violation;
  }
  if (tiers_) {
    if (auto violation = tiers_->validate()) return violation;
  }
  std::vector<std::int32_t> named(static_cast<std::size_t>(pool_.num_blocks()) + 1, 0);
  for (const Entry& entry : entries_) {
    if (auto violation = validate_entry(entry)) return violation;
    for (const BlockTable& table : entry.tables)
      for (BlockId block : table.blocks) ++named[block.value];
  }
  for (std::uint32_t id = 1; id < named.size(); ++id)
    if (named[id] != pool_.ref_count(BlockId{id}))
      return cat("K1: block ", id, " has ", pool_.ref_count(BlockId{id}), " references, ", named[id],
                 " table entries name it");
  if (entry_of_.size() + unused_entries_.size() != entries_.size())
    return cat("K2: ", entry_of_.size(), " sequences and ", unused_entries_.size(), " unused entries of ",
               entries_.size());
  return std::nullopt;
}

}  // namespace quire
