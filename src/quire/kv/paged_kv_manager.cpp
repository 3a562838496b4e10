#include "quire/kv/paged_kv_manager.h"

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire {

bool is_block_size(std::int64_t block_size) {
  return block_size == 8 || block_size == 16 || block_size == 32 || block_size == 64 || block_size == 128;
}

PagedKvManager::PagedKvManager(std::int32_t num_blocks, std::int32_t block_size)
    : block_size_(block_size), pool_(num_blocks), drops_(static_cast<std::size_t>(num_blocks) + 1) {
  QUIRE_CHECK(is_block_size(block_size), block_size);
  begin_plan();
}

KvCapacity PagedKvManager::capacity() const { return {block_size_, pool_.num_blocks(), pool_.num_free()}; }

std::int64_t PagedKvManager::blocks_for(std::int64_t num_tokens) const { return ceil_div(num_tokens, block_size_); }

std::int32_t PagedKvManager::num_sequences() const {
  return static_cast<std::int32_t>(entries_.size() - unused_entries_.size());
}

std::int64_t PagedKvManager::reserved_tokens(SequenceId sequence) const {
  const Entry* entry = find(sequence);
  return entry ? entry->table.num_tokens : 0;
}

// -- sequences --

PagedKvManager::Entry* PagedKvManager::find(SequenceId sequence) {
  auto found = entry_of_.find(sequence);
  return found == entry_of_.end() ? nullptr : &entries_[found->second];
}

const PagedKvManager::Entry* PagedKvManager::find(SequenceId sequence) const {
  auto found = entry_of_.find(sequence);
  return found == entry_of_.end() ? nullptr : &entries_[found->second];
}

const BlockTable* PagedKvManager::find_table(SequenceId sequence) const {
  const Entry* entry = find(sequence);
  return entry ? &entry->table : nullptr;
}

PagedKvManager::Entry& PagedKvManager::create(SequenceId sequence) {
  if (unused_entries_.empty()) {
    unused_entries_.push_back(static_cast<std::uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const std::uint32_t place = unused_entries_.back();
  const bool is_new = entry_of_.emplace(sequence, place).second;
  QUIRE_CHECK(is_new, "sequence ", sequence, " exists");
  unused_entries_.pop_back();
  Entry& entry = entries_[place];
  entry.sequence = sequence;
  entry.live = true;
  entry.planned_in = 0;
  return entry;
}

void PagedKvManager::erase(Entry& entry) {
  for (BlockId block : entry.table.blocks) drop_reference(block);
  entry.table.blocks.clear();
  entry.table.num_tokens = 0;
  entry.live = false;
  entry_of_.erase(entry.sequence);
  unused_entries_.push_back(static_cast<std::uint32_t>(&entry - entries_.data()));
}

BlockId PagedKvManager::must_allocate() {
  const BlockId block = pool_.allocate();
  QUIRE_CHECK(block != kNullBlock, "the plan promised a block that the pool does not have");
  return block;
}

void PagedKvManager::drop_reference(BlockId block) {
  const ReleaseOutcome outcome = pool_.release(block);
  QUIRE_CHECK(outcome != ReleaseOutcome::not_held, "block ", block, " of a table is free");
}

void PagedKvManager::fork(SequenceId parent, SequenceId child) {
  QUIRE_CHECK(operations_.empty(), "fork while a plan is open");
  Entry& to = create(child);
  const Entry* from = find(parent);
  QUIRE_CHECK(from != nullptr && parent != child, "no sequence ", parent);
  to.table = from->table;
  for (BlockId block : to.table.blocks) pool_.share(block);
}

void PagedKvManager::release(SequenceId sequence) {
  QUIRE_CHECK(operations_.empty(), "release while a plan is open");
  Entry* entry = find(sequence);
  QUIRE_CHECK(entry != nullptr, "no sequence ", sequence);
  erase(*entry);
}

// -- planning: a scratch view made of a free count, planned drops by block and a list of operations --

void PagedKvManager::begin_plan() {
  ++plan_number_;
  plan_free_blocks_ = pool_.num_free();
  operations_.clear();
}

std::int32_t PagedKvManager::planned_ref_count(BlockId block) const {
  const PlannedDrops& drops = drops_[block.value];
  return pool_.ref_count(block) - (drops.plan == plan_number_ ? drops.count : 0);
}

void PagedKvManager::plan_drop(BlockId block) {
  PlannedDrops& drops = drops_[block.value];
  if (drops.plan != plan_number_) drops = {plan_number_, 0};
  ++drops.count;
  if (planned_ref_count(block) == 0) ++plan_free_blocks_;
}

void PagedKvManager::note_operation(Entry* entry, SequenceId sequence, std::int64_t num_tokens) {
  if (entry) {
    QUIRE_CHECK(entry->planned_in != plan_number_, "two operations on sequence ", sequence, " in one plan");
    entry->planned_in = plan_number_;
  }
  operations_.push_back({sequence, num_tokens});
}

bool PagedKvManager::plan_reserve(SequenceId sequence, std::int64_t num_tokens) {
  Entry* entry = find(sequence);
  const std::int64_t reserved = entry ? entry->table.num_tokens : 0;
  QUIRE_CHECK(num_tokens >= reserved, "sequence ", sequence, " has ", reserved, " tokens, asked for ", num_tokens);
  std::int64_t num_needed = blocks_for(num_tokens) - blocks_for(reserved);
  const bool writes_into_tail = num_tokens > reserved && reserved % block_size_ != 0;
  const BlockId tail = writes_into_tail ? entry->table.blocks.back() : kNullBlock;
  const bool copies_tail = writes_into_tail && planned_ref_count(tail) > 1;
  if (copies_tail) ++num_needed;
  if (num_needed > plan_free_blocks_) return false;
  plan_free_blocks_ -= num_needed;
  if (copies_tail) plan_drop(tail);
  note_operation(entry, sequence, num_tokens);
  return true;
}

void PagedKvManager::plan_release(SequenceId sequence) {
  Entry* entry = find(sequence);
  QUIRE_CHECK(entry != nullptr, "no sequence ", sequence);
  note_operation(entry, sequence, kRelease);
  for (BlockId block : entry->table.blocks) plan_drop(block);
}

// -- committing --

void PagedKvManager::commit_plan(KvChanges& changes, std::vector<KvReservation>& reservations) {
  for (const PlannedOperation& operation : operations_) {
    if (operation.num_tokens == kRelease) {
      erase(*find(operation.sequence));
      continue;
    }
    const auto offset = static_cast<std::int32_t>(changes.new_blocks.size());
    commit_reserve(operation.sequence, operation.num_tokens, changes);
    const auto end = static_cast<std::int32_t>(changes.new_blocks.size());
    reservations.push_back({operation.sequence, offset, end - offset});
  }
  QUIRE_CHECK(plan_free_blocks_ == pool_.num_free(), "planned ", plan_free_blocks_, " free blocks, committed ",
              pool_.num_free());
  begin_plan();
}

void PagedKvManager::commit_reserve(SequenceId sequence, std::int64_t num_tokens, KvChanges& changes) {
  Entry* existing = find(sequence);
  Entry& entry = existing ? *existing : create(sequence);
  BlockTable& table = entry.table;
  if (num_tokens > table.num_tokens && table.num_tokens % block_size_ != 0) copy_shared_tail(entry, changes);
  const auto num_blocks = static_cast<std::size_t>(blocks_for(num_tokens));
  while (table.blocks.size() < num_blocks) {
    table.blocks.push_back(must_allocate());
    changes.new_blocks.push_back(table.blocks.back());
  }
  table.num_tokens = num_tokens;
}

void PagedKvManager::copy_shared_tail(Entry& entry, KvChanges& changes) {
  BlockId& tail = entry.table.blocks.back();
  if (pool_.ref_count(tail) == 1) return;
  const BlockId shared = tail;
  tail = must_allocate();
  drop_reference(shared);
  changes.copies.push_back({shared, tail});
  changes.table_edits.push_back({entry.sequence, static_cast<std::int32_t>(entry.table.blocks.size() - 1), tail});
}

// -- invariants --

std::optional<std::string> PagedKvManager::validate_table(const Entry& entry) const {
  const BlockTable& table = entry.table;
  if (!entry.live) {
    if (!table.blocks.empty()) return cat("K2: an unused entry has ", table.blocks.size(), " blocks");
    return std::nullopt;
  }
  if (find(entry.sequence) != &entry) return cat("K2: sequence ", entry.sequence, " is not found by its id");
  if (static_cast<std::int64_t>(table.blocks.size()) != blocks_for(table.num_tokens))
    return cat("K2: sequence ", entry.sequence, " has ", table.num_tokens, " tokens in ", table.blocks.size(),
               " blocks");
  std::vector<BlockId> sorted = table.blocks;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (pool_.ref_count(sorted[i]) < 1)
      return cat("K2: sequence ", entry.sequence, " names block ", sorted[i], ", which is not in use");
    if (i > 0 && sorted[i] == sorted[i - 1])
      return cat("K2: sequence ", entry.sequence, " names block ", sorted[i], " twice");
  }
  return std::nullopt;
}

std::optional<std::string> PagedKvManager::validate() const {
  if (auto violation = pool_.validate()) return violation;
  std::vector<std::int32_t> named(static_cast<std::size_t>(pool_.num_blocks()) + 1, 0);
  for (const Entry& entry : entries_) {
    if (auto violation = validate_table(entry)) return violation;
    for (BlockId block : entry.table.blocks) ++named[block.value];
  }
  for (std::uint32_t id = 1; id < named.size(); ++id)
    if (named[id] != pool_.ref_count(BlockId{id}))
      return cat("K1: block ", id, " has ", pool_.ref_count(BlockId{id}), " references, ", named[id],
                 " tables name it");
  if (entry_of_.size() + unused_entries_.size() != entries_.size())
    return cat("K2: ", entry_of_.size(), " sequences and ", unused_entries_.size(), " unused entries of ",
               entries_.size());
  return std::nullopt;
}

}  // namespace quire
