#include "quire/kv/paged_kv_manager.h"

#include <algorithm>
#include <map>
#include <utility>

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire {

bool is_block_size(std::int64_t block_size) {
  return block_size == 8 || block_size == 16 || block_size == 32 || block_size == 64 || block_size == 128;
}

PagedKvManager::PagedKvManager(std::int32_t num_blocks, const GroupGeometry& geometry,
                               std::optional<CacheIdentity> cache, const TierOptions& tiers)
    : geometry_(geometry),
      block_size_(geometry.block_size()),
      pool_(num_blocks),
      drops_(static_cast<std::size_t>(num_blocks) + 1) {
  QUIRE_CHECK(is_block_size(block_size_), block_size_);
  if (cache) index_.emplace(num_blocks, block_size_, *cache, geometry_.num_groups());
  if (cache && tiers.num_frames > 0) tiers_.emplace(tiers, num_blocks);
  begin_plan();
}

PagedKvManager::PagedKvManager(std::int32_t num_blocks, std::int32_t block_size, std::optional<CacheIdentity> cache,
                               const TierOptions& tiers)
    : PagedKvManager(num_blocks, GroupGeometry::uniform(block_size), cache, tiers) {}

KvCapacity PagedKvManager::capacity() const {
  return {block_size_, pool_.num_blocks(), pool_.num_available(), pool_.num_idle()};
}

KvUsage PagedKvManager::usage() const {
  KvUsage usage{.used_blocks = pool_.num_used()};
  std::map<BlockId, std::int64_t> filled_of_shared_tail;
  for (const Entry& entry : entries_) {
    if (!entry.live) continue;
    const std::int64_t filled = entry.num_tokens % block_size_;
    for (const BlockTable& table : entry.tables) {
      usage.table_entries += static_cast<std::int64_t>(table.blocks.size()) - table.first_held;
      if (filled == 0) continue;
      if (pool_.ref_count(table.blocks.back()) == 1) {
        usage.unfilled_slots += block_size_ - filled;
      } else {
        std::int64_t& most = filled_of_shared_tail[table.blocks.back()];
        most = std::max(most, filled);
      }
    }
  }
  for (const auto& [block, filled] : filled_of_shared_tail) usage.unfilled_slots += block_size_ - filled;
  return usage;
}

std::int32_t PagedKvManager::num_sequences() const {
  return static_cast<std::int32_t>(entries_.size() - unused_entries_.size());
}

std::int64_t PagedKvManager::reserved_tokens(SequenceId sequence) const {
  const Entry* entry = find(sequence);
  return entry ? entry->num_tokens : 0;
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

const BlockTable* PagedKvManager::find_table(SequenceId sequence, std::size_t group) const {
  const Entry* entry = find(sequence);
  return entry ? &entry->tables.at(group) : nullptr;
}

PagedKvManager::Entry& PagedKvManager::create(SequenceId sequence) {
  if (unused_entries_.empty()) {
    unused_entries_.push_back(static_cast<std::uint32_t>(entries_.size()));
    entries_.emplace_back().tables.resize(geometry_.num_groups());
  }
  const std::uint32_t place = unused_entries_.back();
  const bool is_new = entry_of_.emplace(sequence, place).second;
  QUIRE_CHECK(is_new, "sequence ", sequence, " exists");
  unused_entries_.pop_back();
  Entry& entry = entries_[place];
  entry.sequence = sequence;
  entry.live = true;
  entry.planned_in = 0;
  entry.num_tokens = entry.num_computed = 0;
  entry.num_published = 0;
  entry.published_end = {};
  entry.publishes = true;
  return entry;
}

void PagedKvManager::erase(Entry& entry) {
  while (!entry.tables.front().blocks.empty()) {
    for (auto table = entry.tables.rbegin(); table != entry.tables.rend(); ++table) {
      if (table->blocks.back() != kNullBlock) drop_reference(table->blocks.back());
      table->blocks.pop_back();
    }
  }
  for (BlockTable& table : entry.tables) table.first_held = 0;
  entry.live = false;
  entry_of_.erase(entry.sequence);
  unused_entries_.push_back(static_cast<std::uint32_t>(&entry - entries_.data()));
}

/// A free block, or the one that has been idle for longest.
BlockId PagedKvManager::must_allocate(KvChanges& changes) {
  if (pool_.num_free() == 0 && pool_.num_idle() > 0) {
    const std::int32_t num_idle = pool_.num_idle();
    if (tiers_) demote(pool_.oldest_idle(), changes);
    forget_key(pool_.oldest_idle());
    cache_counters_.evicted_blocks += static_cast<std::uint64_t>(num_idle - pool_.num_idle());
  }
  const BlockId block = pool_.allocate();
  QUIRE_CHECK(block != kNullBlock, "the plan promised a block that the pool does not have");
  return block;
}

void PagedKvManager::drop_reference(BlockId block) {
  const ReleaseOutcome outcome = pool_.release(block);
  QUIRE_CHECK(outcome != ReleaseOutcome::not_held, "block ", block, " of a table is free");
}

void PagedKvManager::fork(SequenceId parent, SequenceId child, std::int64_t num_tokens) {
  QUIRE_CHECK(operations_.empty(), "fork while a plan is open");
  Entry& to = create(child);
  const Entry* from = find(parent);
  QUIRE_CHECK(from != nullptr && parent != child, "no sequence ", parent);
  QUIRE_CHECK(num_tokens >= 0 && num_tokens <= from->num_tokens, "fork at ", num_tokens, " of ", from->num_tokens,
              " tokens");
  to.num_tokens = to.num_computed = num_tokens;
  for (std::size_t group = 0; group < to.tables.size(); ++group) {
    const BlockTable& table = from->tables[group];
    QUIRE_CHECK(table.first_held <= geometry_.first_needed(group, num_tokens), "a fork at ", num_tokens,
                " sees what the window of group ", group, " has passed over");
    to.tables[group].blocks.assign(table.blocks.begin(), table.blocks.begin() + geometry_.num_entries(num_tokens));
    to.tables[group].first_held = std::min(table.first_held, geometry_.num_entries(num_tokens));
    for (BlockId block : to.tables[group].blocks)
      if (block != kNullBlock) pool_.share(block);
  }
  // Where the child has less than what the parent has published, it publishes from the start: those are found again.
  if (from->num_published > num_tokens / block_size_) return;
  to.num_published = from->num_published;
  to.published_end = from->published_end;
  to.publishes = from->publishes;
}

void PagedKvManager::truncate(SequenceId sequence, std::int64_t num_tokens) {
  QUIRE_CHECK(operations_.empty(), "truncate while a plan is open");
  Entry* entry = find(sequence);
  QUIRE_CHECK(entry != nullptr && num_tokens <= entry->num_tokens, "truncates sequence ", sequence, " to ", num_tokens);
  QUIRE_CHECK(num_tokens >= entry->num_computed && num_tokens >= std::int64_t{entry->num_published} * block_size_,
              "truncates sequence ", sequence, " to ", num_tokens, ", of which more counts");
  const auto num_entries = static_cast<std::size_t>(geometry_.num_entries(num_tokens));
  for (BlockTable& table : entry->tables) {
    for (; table.blocks.size() > num_entries; table.blocks.pop_back()) drop_reference(table.blocks.back());
  }
  entry->num_tokens = num_tokens;
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
  plan_free_blocks_ = pool_.num_available();
  operations_.clear();
  planned_hits_.clear();
  released_late_ = false;
  if (tiers_) tiers_->begin_plan();
}

std::int32_t PagedKvManager::planned_ref_count(BlockId block) const {
  const PlannedDrops& drops = drops_[block.value];
  return pool_.ref_count(block) - (drops.plan == plan_number_ ? drops.count : 0);
}

PagedKvManager::PlannedDrops& PagedKvManager::planned_drops(BlockId block) {
  PlannedDrops& drops = drops_[block.value];
  if (drops.plan != plan_number_) drops = {plan_number_, 0};
  return drops;
}

void PagedKvManager::plan_drop(BlockId block) {
  ++planned_drops(block).count;
  if (planned_ref_count(block) == 0) ++plan_free_blocks_;
}

void PagedKvManager::plan_pin(BlockId block) {
  if (planned_ref_count(block) == 0) --plan_free_blocks_;
  --planned_drops(block).count;
}

void PagedKvManager::note_operation(Entry* entry, SequenceId sequence, std::int64_t num_tokens) {
  if (entry) {
    QUIRE_CHECK(entry->planned_in != plan_number_, "two operations on sequence ", sequence, " in one plan");
    entry->planned_in = plan_number_;
    entry->operation = operations_.size();
  }
  operations_.push_back({sequence, num_tokens, kNoHit});
}

bool PagedKvManager::plan_reserve(SequenceId sequence, std::int64_t num_tokens) {
  Entry* entry = find(sequence);
  const std::int64_t reserved = entry ? entry->num_tokens : 0;
  QUIRE_CHECK(num_tokens >= reserved, "sequence ", sequence, " has ", reserved, " tokens, asked for ", num_tokens);
  QUIRE_CHECK(num_tokens - reserved <= geometry_.max_step_tokens(), num_tokens - reserved, " tokens in a step");
  const auto num_groups = static_cast<std::int64_t>(geometry_.num_groups());
  std::int64_t num_needed = num_groups * (geometry_.num_entries(num_tokens) - geometry_.num_entries(reserved));
  const bool writes_into_tail = num_tokens > reserved && reserved % block_size_ != 0;
  const auto copies_tail = [&](const BlockTable& table) { return planned_ref_count(table.blocks.back()) > 1; };
  if (writes_into_tail) num_needed += std::ranges::count_if(entry->tables, copies_tail);
  if (num_needed > plan_free_blocks_) return false;
  plan_free_blocks_ -= num_needed;
  if (writes_into_tail) {
    for (const BlockTable& table : entry->tables)
      if (copies_tail(table)) plan_drop(table.blocks.back());
  }
  note_operation(entry, sequence, num_tokens);
  return true;
}

bool PagedKvManager::plan_extend(SequenceId sequence, std::int64_t num_tokens) {
  const Entry* entry = find(sequence);
  QUIRE_CHECK(entry && entry->planned_in == plan_number_, "no reservation of sequence ", sequence, " to extend");
  PlannedOperation& planned = operations_[entry->operation];
  QUIRE_CHECK(planned.num_tokens > entry->num_tokens && num_tokens >= planned.num_tokens, "extends sequence ", sequence,
              " from ", planned.num_tokens, " to ", num_tokens, " tokens");
  QUIRE_CHECK(num_tokens - entry->num_tokens <= geometry_.max_step_tokens(), num_tokens - entry->num_tokens,
              " tokens in a step");
  const auto num_groups = static_cast<std::int64_t>(geometry_.num_groups());
  const std::int64_t num_needed =
      num_groups * (geometry_.num_entries(num_tokens) - geometry_.num_entries(planned.num_tokens));
  if (num_needed > plan_free_blocks_) return false;
  plan_free_blocks_ -= num_needed;
  planned.num_tokens = num_tokens;
  return true;
}

void PagedKvManager::plan_release(SequenceId sequence) {
  Entry* entry = find(sequence);
  QUIRE_CHECK(entry != nullptr, "no sequence ", sequence);
  released_late_ = released_late_ || (!operations_.empty() && operations_.back().num_tokens != kRelease);
  QUIRE_CHECK(!released_late_ || planned_hits_.empty(), "a release after a start");
  note_operation(entry, sequence, kRelease);
  for (const BlockTable& table : entry->tables) {
    for (BlockId block : table.blocks)
      if (block != kNullBlock) plan_drop(block);
  }
}

bool PagedKvManager::plan_start(SequenceId sequence, const PrefixHit& hit, std::int64_t num_tokens) {
  QUIRE_CHECK(!find(sequence) && hit.num_tokens > 0 && num_tokens > hit.num_tokens, "start of sequence ", sequence,
              " with ", hit.num_tokens, " of ", num_tokens, " tokens");
  QUIRE_CHECK(num_tokens - hit.num_tokens <= geometry_.max_step_tokens(), num_tokens - hit.num_tokens,
              " tokens in a step");
  QUIRE_CHECK(!released_late_, "a start after a late release");
  const auto num_groups = static_cast<std::int64_t>(geometry_.num_groups());
  const auto num_loaded = static_cast<std::int64_t>(hit.frames.size()) - std::ranges::count(hit.frames, kNoFrame);
  const std::int64_t num_own = num_groups * (geometry_.num_entries(num_tokens) - hit.num_blocks) + num_loaded;
  const auto is_taken = [&](BlockId block) { return block != kNullBlock && planned_ref_count(block) == 0; };
  const std::int64_t num_needed =
      num_own + std::ranges::count_if(hit.blocks, is_taken) + std::ranges::count_if(hit.copy_from, is_taken);
  if (num_needed > plan_free_blocks_) return false;
  for (BlockId block : hit.blocks)
    if (block != kNullBlock) plan_pin(block);
  for (BlockId block : hit.copy_from)
    if (block != kNullBlock) plan_pin(block);
  plan_free_blocks_ -= num_own;
  note_operation(nullptr, sequence, num_tokens);
  operations_.back().hit = planned_hits_.size();
  planned_hits_.push_back(hit);
  return true;
}

// -- committing --

void PagedKvManager::commit_plan(KvChanges& changes, std::vector<KvReservation>& reservations) {
  if (tiers_) start_writes(changes);
  pin_hits();
  for (const PlannedOperation& operation : operations_) {
    if (operation.num_tokens != kRelease) {
      reservations.push_back(commit_reserve(operation, changes));
      continue;
    }
    Entry& released = *find(operation.sequence);
    if (tiers_) keep(released, changes);
    erase(released);
  }
  QUIRE_CHECK(plan_free_blocks_ == pool_.num_available(), "planned ", plan_free_blocks_, " free blocks, committed ",
              pool_.num_available());
  unpin_hits();
  if (tiers_) start_reads(changes);
  begin_plan();
}

/// What was found stays where it is until all is done: no allocation in between may evict it. Sources of copies may go
/// afterwards; the executor copies before anything is written.
void PagedKvManager::pin_hits() {
  for (const PrefixHit& hit : planned_hits_) {
    for (BlockId block : hit.blocks)
      if (block != kNullBlock) pool_.share(block);
    for (BlockId block : hit.copy_from)
      if (block != kNullBlock) pool_.share(block);
    if (tiers_) pin_frames(hit);
  }
}

/// The shared blocks are the tables' now.
void PagedKvManager::unpin_hits() {
  for (const PrefixHit& hit : planned_hits_) {
    for (BlockId block : hit.copy_from)
      if (block != kNullBlock) drop_reference(block);
    if (tiers_) unpin_frames(hit);
  }
}

KvReservation PagedKvManager::commit_reserve(const PlannedOperation& operation, KvChanges& changes) {
  Entry* existing = find(operation.sequence);
  Entry& entry = existing ? *existing : create(operation.sequence);
  const std::size_t num_before = entry.tables.front().blocks.size();
  if (operation.hit != kNoHit) begin_with(entry, planned_hits_[operation.hit], changes);
  const bool writes_into_tail =
      existing && operation.num_tokens > entry.num_tokens && entry.num_tokens % block_size_ != 0;
  const auto num_entries = static_cast<std::size_t>(geometry_.num_entries(operation.num_tokens));
  const auto offset = static_cast<std::int32_t>(changes.new_blocks.size());
  for (std::size_t group = 0; group < entry.tables.size(); ++group) {
    if (writes_into_tail) own_tail(entry, group, changes);
    std::vector<BlockId>& blocks = entry.tables[group].blocks;
    while (blocks.size() < num_entries) blocks.push_back(must_allocate(changes));
    changes.new_blocks.insert(changes.new_blocks.end(), blocks.begin() + static_cast<std::ptrdiff_t>(num_before),
                              blocks.end());
  }
  entry.num_tokens = operation.num_tokens;
  return {operation.sequence, offset, static_cast<std::int32_t>(num_entries - num_before)};
}

/// The tables begin with what was found; the references are there already.
void PagedKvManager::begin_with(Entry& entry, const PrefixHit& hit, KvChanges& changes) {
  entry.num_published = hit.num_blocks;
  entry.num_tokens = hit.num_tokens;
  entry.num_computed = hit.tail_is_kept ? hit.num_tokens : std::int64_t{hit.num_blocks} * block_size_;
  for (std::size_t group = 0; group < entry.tables.size(); ++group) {
    BlockTable& table = entry.tables[group];
    const auto first = hit.blocks.begin() + static_cast<std::ptrdiff_t>(group) * hit.num_blocks;
    table.blocks.assign(first, first + hit.num_blocks);
    table.first_held = geometry_.first_needed(group, entry.num_computed);
  }
  if (!hit.frames.empty()) {
    load_blocks(entry, hit, changes);
  } else if (hit.num_blocks > 0) {
    entry.published_end = index_->end_at(entry.tables.front().blocks.back());
  }
  if (hit.copy_from.empty() && hit.tail_frames.empty()) return;
  for (std::size_t group = 0; group < entry.tables.size(); ++group) {
    const BlockId tail = must_allocate(changes);
    entry.tables[group].blocks.push_back(tail);
    if (!hit.copy_from.empty() && hit.copy_from[group] != kNullBlock) {
      changes.copies.push_back({hit.copy_from[group], tail});
    } else {
      load_frame(hit.tail_frames[group], tail, changes);
    }
  }
}

/// The tail is about to be written: it must be the sequence's own, and nameless.
void PagedKvManager::own_tail(Entry& entry, std::size_t group, KvChanges& changes) {
  BlockId& tail = entry.tables[group].blocks.back();
  if (pool_.ref_count(tail) == 1) {
    if (pool_.is_keyed(tail)) forget_key(tail);  // filled by the sequence from which this one was forked
    return;
  }
  const BlockId shared = tail;
  tail = must_allocate(changes);
  drop_reference(shared);
  changes.copies.push_back({shared, tail});
  const auto index = static_cast<std::int32_t>(entry.tables[group].blocks.size() - 1);
  changes.table_edits.push_back({entry.sequence, index, tail, static_cast<std::int32_t>(group)});
}

// -- windows --

/// Positions [0, num_computed) have been computed: what no later one sees is given back.
void PagedKvManager::move_windows(Entry& entry, std::int64_t num_computed) {
  entry.num_computed = num_computed;
  if (!geometry_.has_windows()) return;
  for (std::size_t group = 0; group < entry.tables.size(); ++group) {
    BlockTable& table = entry.tables[group];
    const std::int64_t first_kept = geometry_.first_kept(group, num_computed);
    for (; table.first_held < first_kept; ++table.first_held)
      drop_reference(std::exchange(table.blocks[static_cast<std::size_t>(table.first_held)], kNullBlock));
  }
}

}  // namespace quire
