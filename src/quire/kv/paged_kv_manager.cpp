#include "quire/kv/paged_kv_manager.h"

#include <algorithm>
#include <map>

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire {

bool is_block_size(std::int64_t block_size) {
  return block_size == 8 || block_size == 16 || block_size == 32 || block_size == 64 || block_size == 128;
}

PagedKvManager::PagedKvManager(std::int32_t num_blocks, std::int32_t block_size, std::optional<CacheIdentity> cache,
                               const TierOptions& tiers)
    : block_size_(block_size), pool_(num_blocks), drops_(static_cast<std::size_t>(num_blocks) + 1) {
  QUIRE_CHECK(is_block_size(block_size), block_size);
  if (cache) index_.emplace(num_blocks, block_size, *cache);
  if (cache && tiers.num_frames > 0) tiers_.emplace(tiers, num_blocks);
  begin_plan();
}

KvCapacity PagedKvManager::capacity() const {
  return {block_size_, pool_.num_blocks(), pool_.num_available(), pool_.num_idle()};
}

KvUsage PagedKvManager::usage() const {
  KvUsage usage{.used_blocks = pool_.num_used()};
  std::map<BlockId, std::int64_t> filled_of_shared_tail;
  for (const Entry& entry : entries_) {
    const BlockTable& table = entry.table;
    usage.table_entries += static_cast<std::int64_t>(table.blocks.size());
    const std::int64_t filled = table.num_tokens % block_size_;
    if (filled == 0) continue;
    if (pool_.ref_count(table.blocks.back()) == 1) {
      usage.unfilled_slots += block_size_ - filled;
    } else {
      std::int64_t& most = filled_of_shared_tail[table.blocks.back()];
      most = std::max(most, filled);
    }
  }
  for (const auto& [block, filled] : filled_of_shared_tail) usage.unfilled_slots += block_size_ - filled;
  return usage;
}

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
  entry.num_published = 0;
  entry.published_end = {};
  entry.publishes = true;
  return entry;
}

void PagedKvManager::erase(Entry& entry) {
  for (; !entry.table.blocks.empty(); entry.table.blocks.pop_back()) drop_reference(entry.table.blocks.back());
  entry.table.num_tokens = 0;
  entry.live = false;
  entry_of_.erase(entry.sequence);
  unused_entries_.push_back(static_cast<std::uint32_t>(&entry - entries_.data()));
}

/// A free block, or the one that has been idle for longest.
BlockId PagedKvManager::must_allocate(KvChanges& changes) {
  if (pool_.num_free() == 0 && pool_.num_idle() > 0) {
    if (tiers_) demote(pool_.oldest_idle(), changes);
    forget_key(pool_.oldest_idle());
    ++cache_counters_.evicted_blocks;
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
  QUIRE_CHECK(num_tokens >= 0 && num_tokens <= from->table.num_tokens, "fork at ", num_tokens, " of ",
              from->table.num_tokens, " tokens");
  const auto num_blocks = static_cast<std::size_t>(blocks_for(num_tokens));
  to.table.num_tokens = num_tokens;
  to.table.blocks.assign(from->table.blocks.begin(),
                         from->table.blocks.begin() + static_cast<std::ptrdiff_t>(num_blocks));
  for (BlockId block : to.table.blocks) pool_.share(block);
  // Where the child has less than what the parent has published, it publishes from the start: those are found again.
  if (from->num_published > num_tokens / block_size_) return;
  to.num_published = from->num_published;
  to.published_end = from->published_end;
  to.publishes = from->publishes;
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
  }
  operations_.push_back({sequence, num_tokens, kNoHit});
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
  released_late_ = released_late_ || (!operations_.empty() && operations_.back().num_tokens != kRelease);
  QUIRE_CHECK(!released_late_ || planned_hits_.empty(), "a release after a start");
  note_operation(entry, sequence, kRelease);
  for (BlockId block : entry->table.blocks) plan_drop(block);
}

bool PagedKvManager::plan_start(SequenceId sequence, const PrefixHit& hit, std::int64_t num_tokens) {
  QUIRE_CHECK(!find(sequence) && hit.num_tokens > 0 && num_tokens > hit.num_tokens, "start of sequence ", sequence,
              " with ", hit.num_tokens, " of ", num_tokens, " tokens");
  QUIRE_CHECK(!released_late_, "a start after a late release");
  const std::int64_t num_loaded = std::ranges::count(hit.blocks, kNullBlock);
  const std::int64_t num_new = blocks_for(num_tokens) - static_cast<std::int64_t>(hit.blocks.size()) + num_loaded;
  std::int64_t num_needed = num_new;
  for (BlockId block : hit.blocks) num_needed += block != kNullBlock && planned_ref_count(block) == 0 ? 1 : 0;
  if (hit.copy_from != kNullBlock && planned_ref_count(hit.copy_from) == 0) ++num_needed;
  if (num_needed > plan_free_blocks_) return false;
  for (BlockId block : hit.blocks)
    if (block != kNullBlock) plan_pin(block);
  if (hit.copy_from != kNullBlock) plan_pin(hit.copy_from);
  plan_free_blocks_ -= num_new;
  note_operation(nullptr, sequence, num_tokens);
  operations_.back().hit = planned_hits_.size();
  planned_hits_.push_back(hit);
  return true;
}

// -- committing --

void PagedKvManager::commit_plan(KvChanges& changes, std::vector<KvReservation>& reservations) {
  // What was found stays where it is until all is done: no allocation in between may evict it. Sources of copies may go
  // afterwards; the executor copies before anything is written.
  if (tiers_) start_writes(changes);
  for (const PrefixHit& hit : planned_hits_) {
    for (BlockId block : hit.blocks)
      if (block != kNullBlock) pool_.share(block);
    if (hit.copy_from != kNullBlock) pool_.share(hit.copy_from);
    if (tiers_) pin_frames(hit);
  }
  for (const PlannedOperation& operation : operations_) {
    if (operation.num_tokens == kRelease) {
      if (tiers_) keep(*find(operation.sequence), changes);
      erase(*find(operation.sequence));
      continue;
    }
    const auto offset = static_cast<std::int32_t>(changes.new_blocks.size());
    if (operation.hit != kNoHit) commit_start(operation.sequence, planned_hits_[operation.hit], changes);
    commit_reserve(operation.sequence, operation.num_tokens, changes);
    const auto end = static_cast<std::int32_t>(changes.new_blocks.size());
    reservations.push_back({operation.sequence, offset, end - offset});
  }
  QUIRE_CHECK(plan_free_blocks_ == pool_.num_available(), "planned ", plan_free_blocks_, " free blocks, committed ",
              pool_.num_available());
  for (const PrefixHit& hit : planned_hits_) {
    if (hit.copy_from != kNullBlock) drop_reference(hit.copy_from);
    if (tiers_) unpin_frames(hit);
  }
  if (tiers_) start_reads(changes);
  begin_plan();
}

void PagedKvManager::commit_reserve(SequenceId sequence, std::int64_t num_tokens, KvChanges& changes) {
  Entry* existing = find(sequence);
  Entry& entry = existing ? *existing : create(sequence);
  BlockTable& table = entry.table;
  if (num_tokens > table.num_tokens && table.num_tokens % block_size_ != 0) copy_shared_tail(entry, changes);
  const auto num_blocks = static_cast<std::size_t>(blocks_for(num_tokens));
  while (table.blocks.size() < num_blocks) {
    table.blocks.push_back(must_allocate(changes));
    changes.new_blocks.push_back(table.blocks.back());
  }
  table.num_tokens = num_tokens;
}

/// The table begins with what was found; the references are there already.
void PagedKvManager::commit_start(SequenceId sequence, const PrefixHit& hit, KvChanges& changes) {
  Entry& entry = create(sequence);
  BlockTable& table = entry.table;
  table.blocks = hit.blocks;
  entry.num_published = static_cast<std::int32_t>(hit.blocks.size());
  if (!hit.frames.empty()) {
    load_blocks(entry, hit, changes);
  } else if (!hit.blocks.empty()) {
    entry.published_end = index_->end_at(hit.blocks.back());
  }
  if (hit.copy_from != kNullBlock) {
    table.blocks.push_back(must_allocate(changes));
    changes.copies.push_back({hit.copy_from, table.blocks.back()});
  } else if (hit.tail_frame != kNoFrame) {
    table.blocks.push_back(must_allocate(changes));
    load_frame(hit.tail_frame, table.blocks.back(), changes);
  }
  changes.new_blocks.insert(changes.new_blocks.end(), table.blocks.begin(), table.blocks.end());
  table.num_tokens = hit.num_tokens;
}

void PagedKvManager::copy_shared_tail(Entry& entry, KvChanges& changes) {
  BlockId& tail = entry.table.blocks.back();
  QUIRE_CHECK(!pool_.is_keyed(tail), "K4: the unfilled block ", tail, " is keyed");
  if (pool_.ref_count(tail) == 1) return;
  const BlockId shared = tail;
  tail = must_allocate(changes);
  drop_reference(shared);
  changes.copies.push_back({shared, tail});
  changes.table_edits.push_back({entry.sequence, static_cast<std::int32_t>(entry.table.blocks.size() - 1), tail});
}

// -- the prefix cache --

PrefixHit PagedKvManager::match(KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit) const {
  PrefixHit hit;
  if (!index_) return hit;
  QUIRE_CHECK(limit <= static_cast<std::int64_t>(tokens.size()), limit);
  index_->extend(chain, tokens);
  const auto size = static_cast<std::size_t>(block_size_);
  PrefixEnd end;
  for (std::size_t i = 0; i < static_cast<std::size_t>(limit) / size; ++i) {
    const BlockContent content{chain.keys[i], chain.parent_of(i), end, chain.salt, tokens.subspan(i * size, size)};
    const BlockId block = index_->find(content);
    const FrameId frame = block == kNullBlock && tiers_ ? tiers_->ram.find(content) : kNoFrame;
    if (block == kNullBlock && frame == kNoFrame) break;
    hit.blocks.push_back(block);
    hit.num_idle_blocks += pool_.ref_count(block) == 0 ? 1 : 0;
    if (frame != kNoFrame) hit.frames.resize(hit.blocks.size() - 1, kNoFrame);
    if (frame != kNoFrame || !hit.frames.empty()) hit.frames.push_back(frame);
    end = block != kNullBlock ? index_->end_at(block) : PrefixEnd{tiers_->ram.content(frame).number, kNullBlock};
  }
  const std::size_t begin = hit.blocks.size() * size;
  const auto wanted = tokens.subspan(begin, std::min(size, static_cast<std::size_t>(limit) - begin));
  auto partial = index_->find_partial(chain.parent_of(hit.blocks.size()), end, chain.salt, wanted);
  if (hit.blocks.size() < chain.keys.size() && !wanted.empty()) {
    // The block at the limit may be cached whole, and yet no longer be among the last few.
    const std::size_t i = hit.blocks.size();
    const BlockId whole =
        index_->find({chain.keys[i], chain.parent_of(i), end, chain.salt, tokens.subspan(begin, size)});
    if (whole != kNullBlock) partial = {whole, static_cast<std::int32_t>(wanted.size())};
  }
  hit.copy_from = partial.block;
  hit.is_source_idle = partial.block != kNullBlock && pool_.ref_count(partial.block) == 0;
  hit.num_tokens = static_cast<std::int32_t>(begin) + partial.num_tokens;
  if (tiers_) match_tail(chain, tokens, limit, end, hit);
  return hit;
}

void PagedKvManager::publish(SequenceId sequence, KeyChain& chain, std::span<const TokenId> tokens) {
  QUIRE_CHECK(operations_.empty(), "publish while a plan is open");
  Entry* entry = find(sequence);
  QUIRE_CHECK(entry != nullptr && static_cast<std::int64_t>(tokens.size()) <= entry->table.num_tokens, "sequence ",
              sequence, " has not ", tokens.size(), " tokens");
  if (!index_) return;
  const auto num_full = static_cast<std::int32_t>(tokens.size()) / block_size_;
  if (entry->num_published == num_full || !entry->publishes) return;
  index_->extend(chain, tokens);
  published_tokens_ = nullptr;
  if (!index_->is_alive(entry->published_end)) {
    // The block of another sequence that stood for this prefix is gone: from the start, with blocks of our own.
    entry->num_published = 0;
    entry->published_end = {};
  }
  while (entry->num_published < num_full && publish_next(*entry, chain, tokens)) continue;
}

bool PagedKvManager::publish_next(Entry& entry, const KeyChain& chain, std::span<const TokenId> tokens) {
  const auto i = static_cast<std::size_t>(entry.num_published);
  const auto size = static_cast<std::size_t>(block_size_);
  const BlockId block = entry.table.blocks[i];
  const BlockContent content{chain.keys[i], chain.parent_of(i), entry.published_end, chain.salt,
                             tokens.subspan(i * size, size)};
  // The block's own key may be one that nobody can find any more: it gets a new one.
  if (pool_.is_keyed(block) && index_->find(content) != block) forget_key(block);
  // The content may lie in a frame already: then it keeps its number.
  const FrameId frame = tiers_ ? tiers_->ram.find(content) : kNoFrame;
  const std::uint64_t number = frame != kNoFrame ? tiers_->ram.content(frame).number : 0;
  PrefixIndex::Published published = index_->publish(block, content, number);
  if (published.outcome == PrefixIndex::Outcome::displaced) {
    forget_key(published.holder);
    published = index_->publish(block, content, number);
  }
  if (published.outcome == PrefixIndex::Outcome::collision) {
    ++cache_counters_.collisions;
    return entry.publishes = false;
  }
  if (published.outcome == PrefixIndex::Outcome::added) {
    pool_.set_keyed(block, true);
    ++cache_counters_.published_blocks;
    if (tiers_ && tiers_->files) note_published(block, content, tokens, (i + 1) * size);
  }
  entry.published_end = index_->end_at(published.holder);
  ++entry.num_published;
  return true;
}

void PagedKvManager::forget_key(BlockId block) {
  index_->forget(block);
  pool_.set_keyed(block, false);
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
  if (index_) {
    if (auto violation = index_->validate(pool_)) return violation;
  }
  if (tiers_) {
    if (auto violation = tiers_->validate()) return violation;
  }
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
