// PagedKvManager and the RAM tier behind its pool: what moves between them, and when. paged_kv_files.cpp has the files.

#include <algorithm>

#include "quire/base/check.h"
#include "quire/kv/paged_kv_manager.h"

namespace quire {

// -- looking up --

/// Where the sequence itself has left off, if that is more than what has been found: at an unfilled tail of its own.
/// Windows have what positions behind the tail see; the full blocks alone may be no hit.
void PagedKvManager::use_kept_tail(const Wanted& wanted, const Walk& walk, PrefixHit& hit) const {
  const auto kept = tiers_->kept.find(wanted.chain.kept);
  if (kept == tiers_->kept.end() || kept->second.tails.empty()) return;
  const std::int64_t num_blocks = kept->second.num_full_blocks;
  const std::int64_t num_tokens = std::min(num_blocks * block_size_ + kept->second.num_tail_tokens, wanted.limit);
  if (num_blocks > static_cast<std::int64_t>(walk.firsts.size()) || num_tokens <= hit.num_tokens) return;
  const bool is_seen = geometry_.has_seen(num_tokens, num_blocks, [&](std::size_t group, std::int64_t entry) {
    return source_at(wanted, walk, group, static_cast<std::size_t>(entry)).is_there();
  });
  if (!is_seen) return;
  hit.drop_copy(block_size_);
  hit.num_blocks = static_cast<std::int32_t>(num_blocks);
  hit.num_tokens = static_cast<std::int32_t>(num_tokens);
  hit.tail_frames = kept->second.tails;
  hit.tail_is_kept = true;
}

// -- between pool and RAM --

/// The idle block is about to be given out for other content, and it and its companions lose their keys. It is stored
/// last, and so goes after them: without it they are not found.
void PagedKvManager::demote(BlockId block, KvChanges& changes) {
  for (std::size_t group = geometry_.num_groups(); group-- > 0;) {
    const BlockId source = group == 0 ? block : index_->companion(block, group);
    if (source == kNullBlock) continue;
    const RamTier::Stored stored = tiers_->ram.store(index_->content_of(source));
    if (stored.frame == kNoFrame) {
      ++tiers_->counters.blocks_lost;
    } else if (stored.is_new) {
      store_block(source, stored.frame, changes);
    }
  }
}

void PagedKvManager::store_block(BlockId block, FrameId frame, KvChanges& changes) {
  changes.tiers.stores.push_back({block, frame});
  ++tiers_->counters.blocks_stored;
}

void PagedKvManager::load_frame(FrameId frame, BlockId block, KvChanges& changes) {
  changes.tiers.loads.push_back({frame, block});
  ++tiers_->counters.blocks_loaded;
}

/// While a plan is committed its hits' frames are not evicted, and afterwards the end of a prefix before its beginning.
void PagedKvManager::pin_frames(const PrefixHit& hit) {
  for (FrameId frame : hit.frames)
    if (frame != kNoFrame) tiers_->ram.pin(frame);
  if (hit.tail_is_kept) return;
  for (FrameId frame : hit.tail_frames)
    if (frame != kNoFrame) tiers_->ram.pin(frame);
}

void PagedKvManager::unpin_frames(const PrefixHit& hit) {
  const auto unpin = [&](FrameId frame) {
    if (frame != kNoFrame) tiers_->ram.unpin(frame);
  };
  if (!hit.tail_is_kept) std::ranges::for_each(hit.tail_frames, unpin);
  const auto num_blocks = static_cast<std::size_t>(hit.num_blocks);
  for (std::size_t i = hit.frames.empty() ? 0 : num_blocks; i-- > 0;)
    for (std::size_t group = geometry_.num_groups(); group-- > 0;) unpin(hit.frames[group * num_blocks + i]);
}

/// The tables begin with the hit's blocks; those that are in frames get a block and are loaded. They are keyed at once:
/// whoever finds them computes in a later step.
void PagedKvManager::load_blocks(Entry& entry, const PrefixHit& hit, KvChanges& changes) {
  const auto num_blocks = static_cast<std::size_t>(hit.num_blocks);
  for (std::size_t i = 0; i < num_blocks; ++i) {
    const PrefixEnd before = entry.published_end;
    BlockId first = entry.tables.front().blocks[i];
    for (std::size_t group = 0; group < entry.tables.size(); ++group) {
      const FrameId frame = hit.frames[group * num_blocks + i];
      BlockId& block = entry.tables[group].blocks[i];
      if (frame != kNoFrame) {
        block = must_allocate(changes);
        load_frame(frame, block, changes);
        if (group == 0) first = name_loaded(entry, block, frame, before);
      }
      if (!entry.publishes) continue;
      if (group == 0) entry.published_end = index_->end_at(first);
      if (group > 0 && frame != kNoFrame) add_companion(entry, group, i, first);
    }
  }
}

/// The first group's block gets the key of what is loaded into it. The block that has it: maybe another one; null: none
/// can, and what follows has no key either.
BlockId PagedKvManager::name_loaded(Entry& entry, BlockId block, FrameId frame, PrefixEnd before) {
  if (!entry.publishes) return kNullBlock;
  const NumberedContent& content = tiers_->ram.content(frame);
  const BlockContent asked{content.key, content.parent_key, before, content.salt, content.tokens};
  PrefixIndex::Published published = index_->publish(block, asked, content.number);
  if (published.outcome == PrefixIndex::Outcome::displaced) {
    forget_key(published.holder);
    published = index_->publish(block, asked, content.number);
  }
  entry.publishes = published.outcome != PrefixIndex::Outcome::collision;
  if (published.outcome == PrefixIndex::Outcome::added) pool_.set_keyed(block, true);
  return entry.publishes ? published.holder : kNullBlock;
}

// -- keeping what a preempted sequence has --

KeepEstimate PagedKvManager::estimate_keep(std::span<const SequenceId> sequences) const {
  KeepEstimate estimate;
  if (!tiers_) return estimate;
  estimate.has_tiers = true;
  for (std::size_t group = 0; group < geometry_.num_groups(); ++group) {
    const std::int32_t num_blocks = num_held_alone(sequences, group);
    if (group == 0) estimate.num_tokens = std::int64_t{num_blocks} * block_size_;
    estimate.num_blocks += num_blocks;
  }
  estimate.fits = estimate.num_blocks <= tiers_->ram.num_available() - tiers_->planned_frames;
  return estimate;
}

/// Blocks of a group that these sequences hold and nobody else.
std::int32_t PagedKvManager::num_held_alone(std::span<const SequenceId> sequences, std::size_t group) const {
  std::vector<BlockId> held;
  for (SequenceId sequence : sequences) {
    const Entry* entry = find(sequence);
    if (!entry) continue;
    const BlockTable& table = entry->tables[group];
    held.insert(held.end(), table.blocks.begin() + table.first_held, table.blocks.end());
  }
  std::sort(held.begin(), held.end());
  std::int32_t num_alone = 0;
  for (auto first = held.begin(); first != held.end();) {
    const auto last = std::upper_bound(first, held.end(), *first);
    num_alone += pool_.ref_count(*first) == last - first ? 1 : 0;
    first = last;
  }
  return num_alone;
}

void PagedKvManager::plan_keep(SequenceId sequence, KeyChain& chain) {
  if (!tiers_) return;
  tiers_->planned_frames += estimate_keep(std::span(&sequence, 1)).num_blocks;
  tiers_->planned_keeps.push_back(sequence);
  chain.kept = sequence;
}

/// Before the sequence gives up its blocks: those that it alone holds go to frames. What finds no room is lost.
void PagedKvManager::keep(const Entry& entry, KvChanges& changes) {
  if (std::ranges::count(tiers_->planned_keeps, entry.sequence) == 0) return;
  KvTiers::Kept kept;
  kept.num_full_blocks = static_cast<std::int32_t>(entry.num_tokens / block_size_);
  kept.num_tail_tokens = static_cast<std::int32_t>(entry.num_tokens % block_size_);
  bool has_room = true;
  for (std::size_t i = 0; i < static_cast<std::size_t>(entry.num_published); ++i)
    for (std::size_t group = 0; group < entry.tables.size() && has_room; ++group)
      has_room = keep_block(entry.tables[group].blocks[i], kept, changes);
  if (kept.num_tail_tokens > 0 && entry.num_published == kept.num_full_blocks) keep_tails(entry, kept, changes);
  tiers_->kept.emplace(entry.sequence, std::move(kept));
}

/// Of an entry of the table, which may be null. False: there is no room.
bool PagedKvManager::keep_block(BlockId block, KvTiers::Kept& kept, KvChanges& changes) {
  if (block == kNullBlock || !pool_.is_keyed(block) || pool_.ref_count(block) > 1) return true;
  const RamTier::Stored stored = tiers_->ram.store(index_->content_of(block));
  if (stored.frame == kNoFrame) return false;
  if (stored.is_new) store_block(block, stored.frame, changes);
  tiers_->ram.pin(stored.frame);
  kept.pinned.push_back(stored.frame);
  return true;
}

/// The unfilled last blocks, all of them or none.
void PagedKvManager::keep_tails(const Entry& entry, KvTiers::Kept& kept, KvChanges& changes) {
  const auto is_shared = [&](const BlockTable& table) { return pool_.ref_count(table.blocks.back()) > 1; };
  const auto num_groups = static_cast<std::int32_t>(entry.tables.size());
  if (std::ranges::any_of(entry.tables, is_shared) || tiers_->ram.num_available() < num_groups) return;
  for (const BlockTable& table : entry.tables) {
    kept.tails.push_back(tiers_->ram.take());
    store_block(table.blocks.back(), kept.tails.back(), changes);
  }
}

void PagedKvManager::forget_kept(KeyChain& chain) {
  QUIRE_CHECK(operations_.empty(), "forget_kept while a plan is open");
  if (tiers_ && chain.kept != SequenceId{}) tiers_->forget_kept(chain.kept);
  chain.kept = {};
}

// -- counters --

KvTierCounters PagedKvManager::tier_counters() const {
  if (!tiers_) return {};
  KvTierCounters counters = tiers_->counters;
  counters.frames_evicted = tiers_->ram.num_evicted();
  counters.frames_total = tiers_->ram.num_frames();
  counters.frames_keyed = tiers_->ram.num_keyed();
  counters.frames_private = tiers_->ram.num_private();
  if (!tiers_->files) return counters;
  counters.writes_given_up += tiers_->files->num_given_up();
  counters.files_known = tiers_->files->num_known();
  counters.writes_in_flight = tiers_->files->num_writes();
  counters.reads_in_flight = tiers_->files->num_reads();
  counters.writes_waiting = tiers_->files->num_waiting();
  return counters;
}

}  // namespace quire
