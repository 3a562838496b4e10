// PagedKvManager and the tiers behind its pool: what moves between them, and when. There is one layer group.

#include <algorithm>

#include "quire/base/check.h"
#include "quire/kv/paged_kv_manager.h"

namespace quire {

// -- looking up --

/// Behind the full blocks of the hit: the kept tail of the sequence itself, or a keyed frame of which the part up to
/// the limit is wanted, if that is more than what the pool has.
void PagedKvManager::match_tail(const KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit,
                                PrefixEnd end, PrefixHit& hit) const {
  const auto size = static_cast<std::size_t>(block_size_);
  const std::size_t i = hit.blocks.size();
  const auto wanted = std::min<std::int64_t>(block_size_, limit - static_cast<std::int64_t>(i * size));
  FrameId frame = kNoFrame;
  std::int64_t num_tail_tokens = 0;
  bool is_kept = false;
  if (i < chain.keys.size() && wanted > 0) {
    frame = tiers_->ram.find({chain.keys[i], chain.parent_of(i), end, chain.salt, tokens.subspan(i * size, size)});
    if (frame != kNoFrame) num_tail_tokens = wanted;
  }
  const auto kept = tiers_->kept.find(chain.kept);
  if (frame == kNoFrame && kept != tiers_->kept.end() && kept->second.tail != kNoFrame &&
      kept->second.num_full_blocks == static_cast<std::int32_t>(i)) {
    frame = kept->second.tail;
    num_tail_tokens = std::min<std::int64_t>(kept->second.num_tail_tokens, wanted);
    is_kept = true;
  }
  const auto num_tokens = static_cast<std::int32_t>(i * size) + static_cast<std::int32_t>(num_tail_tokens);
  if (frame == kNoFrame || num_tokens <= hit.num_tokens) return;
  hit.drop_copy(block_size_);
  hit.tail_frame = frame;
  hit.tail_is_kept = is_kept;
  hit.num_tokens = num_tokens;
}

// -- between pool and RAM --

/// The idle block is about to be given out for other content.
void PagedKvManager::demote(BlockId block, KvChanges& changes) {
  const RamTier::Stored stored = tiers_->ram.store(index_->content_of(block));
  if (stored.frame == kNoFrame) {
    ++tiers_->counters.blocks_lost;
  } else if (stored.is_new) {
    store_block(block, stored.frame, changes);
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
  if (hit.is_tail_keyed()) tiers_->ram.pin(hit.tail_frame);
}

void PagedKvManager::unpin_frames(const PrefixHit& hit) {
  if (hit.is_tail_keyed()) tiers_->ram.unpin(hit.tail_frame);
  for (auto frame = hit.frames.rbegin(); frame != hit.frames.rend(); ++frame)
    if (*frame != kNoFrame) tiers_->ram.unpin(*frame);
}

/// The table begins with the hit's blocks; those that are null get a block and are loaded. They are keyed at once:
/// whoever finds them computes in a later step.
void PagedKvManager::load_blocks(Entry& entry, const PrefixHit& hit, KvChanges& changes) {
  PrefixEnd end;
  for (std::size_t i = 0; i < hit.blocks.size(); ++i) {
    BlockId& block = entry.tables.front().blocks[i];
    if (block != kNullBlock) {
      end = index_->end_at(block);
      continue;
    }
    block = must_allocate(changes);
    load_frame(hit.frames[i], block, changes);
    const NumberedContent& content = tiers_->ram.content(hit.frames[i]);
    if (!entry.publishes) continue;
    const BlockContent asked{content.key, content.parent_key, end, content.salt, content.tokens};
    PrefixIndex::Published published = index_->publish(block, asked, content.number);
    if (published.outcome == PrefixIndex::Outcome::displaced) {
      forget_key(published.holder);
      published = index_->publish(block, asked, content.number);
    }
    entry.publishes = published.outcome != PrefixIndex::Outcome::collision;
    if (published.outcome == PrefixIndex::Outcome::added) pool_.set_keyed(block, true);
    if (entry.publishes) end = index_->end_at(published.holder);
  }
  entry.published_end = end;
}

// -- keeping what a preempted sequence has --

KeepEstimate PagedKvManager::estimate_keep(std::span<const SequenceId> sequences) const {
  KeepEstimate estimate;
  if (!tiers_) return estimate;
  estimate.has_tiers = true;
  std::vector<BlockId> held;
  for (SequenceId sequence : sequences) {
    const Entry* entry = find(sequence);
    if (!entry) continue;
    const std::vector<BlockId>& blocks = entry->tables.front().blocks;
    held.insert(held.end(), blocks.begin(), blocks.end());
  }
  std::sort(held.begin(), held.end());
  for (auto first = held.begin(); first != held.end();) {
    const auto last = std::upper_bound(first, held.end(), *first);
    estimate.num_blocks += pool_.ref_count(*first) == last - first ? 1 : 0;
    first = last;
  }
  estimate.num_tokens = std::int64_t{estimate.num_blocks} * block_size_;
  estimate.fits = estimate.num_blocks <= tiers_->ram.num_available() - tiers_->planned_frames;
  return estimate;
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
  const BlockTable& table = entry.tables.front();
  kept.num_full_blocks = static_cast<std::int32_t>(entry.num_tokens / block_size_);
  for (std::size_t i = 0; i < static_cast<std::size_t>(entry.num_published); ++i) {
    const BlockId block = table.blocks[i];
    if (!pool_.is_keyed(block) || pool_.ref_count(block) > 1) continue;
    const RamTier::Stored stored = tiers_->ram.store(index_->content_of(block));
    if (stored.frame == kNoFrame) break;
    if (stored.is_new) store_block(block, stored.frame, changes);
    tiers_->ram.pin(stored.frame);
    kept.pinned.push_back(stored.frame);
  }
  kept.num_tail_tokens = static_cast<std::int32_t>(entry.num_tokens % block_size_);
  const bool keeps_tail = kept.num_tail_tokens > 0 && entry.num_published == kept.num_full_blocks &&
                          pool_.ref_count(table.blocks.back()) == 1;
  if (keeps_tail) kept.tail = tiers_->ram.take();
  if (kept.tail != kNoFrame) store_block(table.blocks.back(), kept.tail, changes);
  tiers_->kept.emplace(entry.sequence, std::move(kept));
}

void PagedKvManager::forget_kept(KeyChain& chain) {
  QUIRE_CHECK(operations_.empty(), "forget_kept while a plan is open");
  if (tiers_ && chain.kept != SequenceId{}) tiers_->forget_kept(chain.kept);
  chain.kept = {};
}

// -- files --

void PagedKvManager::note_published(BlockId block, const BlockContent& content, std::span<const TokenId> tokens,
                                    std::size_t end) {
  if (!published_tokens_ || published_tokens_->size() != tokens.size())
    published_tokens_ = std::make_shared<const std::vector<TokenId>>(tokens.begin(), tokens.end());
  tiers_->files->note_published({block, index_->end_at(block).number, content.key, std::string(content.salt),
                                 published_tokens_, static_cast<std::int32_t>(end)});
}

/// What was published and is still in the pool or in RAM.
void PagedKvManager::start_writes(KvChanges& changes) {
  if (!tiers_->files) return;
  FileTier& files = *tiers_->files;
  while (files.can_start_write()) {
    const FileTier::Waiting source = files.take_waiting();
    const FrameId frame = tiers_->ram.find_number(source.key, source.number);
    if (index_->is_alive({source.number, source.block})) {
      files.start_write(source, source.block, kNoFrame, changes.tiers);
    } else if (frame != kNoFrame) {
      files.start_write(source, kNullBlock, frame, changes.tiers);
    } else {
      ++tiers_->counters.writes_given_up;
    }
  }
}

bool PagedKvManager::plan_reads(const KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit,
                                const PrefixHit& hit) {
  if (!tiers_ || !tiers_->files) return false;
  const auto size = static_cast<std::size_t>(block_size_);
  const std::size_t begin = hit.blocks.size();
  std::uint64_t parent = begin == 0 ? 0 : number_behind(hit);
  KvTiers::PlannedReads reads;
  for (std::size_t i = begin; i < chain.keys.size() && static_cast<std::int64_t>(i * size) < limit; ++i) {
    const BlockKey& key = chain.keys[i];
    const bool fits = tiers_->planned_frames < tiers_->ram.num_available();
    const bool is_on_its_way = tiers_->files->is_reading(key) || is_planned_read(key) ||
                               std::ranges::count(reads.contents, key, &NumberedContent::key) > 0;
    if (!fits || is_on_its_way || !tiers_->files->has(key)) break;
    const auto block = tokens.subspan(i * size, size);
    reads.contents.push_back(
        {key, chain.parent_of(i), index_->new_number(), parent, chain.salt, {block.begin(), block.end()}});
    parent = reads.contents.back().number;
    ++tiers_->planned_frames;
  }
  if (reads.contents.empty()) return false;
  const auto stretch = tokens.first((begin + reads.contents.size()) * size);
  reads.tokens.assign(stretch.begin(), stretch.end());
  reads.first_block_end = static_cast<std::int32_t>((begin + 1) * size);
  tiers_->planned_reads.push_back(std::move(reads));
  return true;
}

/// Of the content that ends with the hit's last block.
std::uint64_t PagedKvManager::number_behind(const PrefixHit& hit) const {
  const BlockId block = hit.blocks.back();
  return block != kNullBlock ? index_->end_at(block).number : tiers_->ram.content(hit.frames.back()).number;
}

bool PagedKvManager::is_planned_read(const BlockKey& key) const {
  return std::ranges::any_of(tiers_->planned_reads, [&](const KvTiers::PlannedReads& reads) {
    return std::ranges::count(reads.contents, key, &NumberedContent::key) > 0;
  });
}

bool PagedKvManager::is_reading(const KeyChain& chain, const PrefixHit& hit) const {
  if (!tiers_ || !tiers_->files || hit.blocks.size() >= chain.keys.size()) return false;
  const BlockKey& key = chain.keys[hit.blocks.size()];
  return tiers_->files->is_reading(key) || is_planned_read(key);
}

void PagedKvManager::start_reads(KvChanges& changes) {
  for (KvTiers::PlannedReads& reads : tiers_->planned_reads) {
    std::size_t end = static_cast<std::size_t>(reads.first_block_end);
    for (NumberedContent& content : reads.contents) {
      const FrameId frame = tiers_->ram.take();
      if (frame == kNoFrame) break;
      tiers_->files->start_read(frame, std::move(content), std::span(reads.tokens).first(end), changes.tiers);
      end += static_cast<std::size_t>(block_size_);
    }
  }
}

void PagedKvManager::note_files(std::span<const BlockKey> keys) {
  QUIRE_CHECK(operations_.empty(), "note_files while a plan is open");
  if (tiers_ && tiers_->files) tiers_->files->note_found(keys);
}

void PagedKvManager::end_transfer(const TransferEnd& end) {
  QUIRE_CHECK(operations_.empty(), "end_transfer while a plan is open");
  if (!tiers_ || !tiers_->files) return;
  FileTier::Ended ended = tiers_->files->end(end);
  if (!ended.is_known) return;
  KvTierCounters& counters = tiers_->counters;
  ++(ended.read ? counters.reads : counters.writes)[static_cast<std::size_t>(end.outcome)];
  counters.files_removed += end.removed.size();
  if (!ended.read) return;
  if (end.outcome == TransferOutcome::done) {
    tiers_->ram.publish(ended.read->frame, std::move(ended.read->content));
  } else {
    tiers_->ram.give_back(ended.read->frame);
  }
}

std::int32_t PagedKvManager::num_reads_in_flight() const {
  return tiers_ && tiers_->files ? tiers_->files->num_reads() : 0;
}

bool PagedKvManager::has_transfers_to_start() const {
  return tiers_ && tiers_->files && tiers_->files->can_start_write();
}

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
