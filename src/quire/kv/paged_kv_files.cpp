// PagedKvManager and block files: what is written, and what of a waiting request's prefix is read.

#include <algorithm>
#include <functional>

#include "quire/base/check.h"
#include "quire/kv/paged_kv_manager.h"

namespace quire {

// -- writing --

/// The keyed block is the one with this index of the tokens that are being published.
void PagedKvManager::note_published(BlockId block, std::size_t index) {
  if (!tiers_ || !tiers_->files) return;
  NumberedContent content = index_->content_of(block);
  const auto num_tokens = static_cast<std::int32_t>(index + 1) * block_size_;
  tiers_->files->note_published(
      {block, content.number, content.key, std::move(content.salt), published_tokens_, num_tokens});
}

/// What was published and is still in the pool or in RAM.
void PagedKvManager::start_writes(KvChanges& changes) {
  if (!tiers_->files) return;
  FileTier& files = *tiers_->files;
  while (files.can_start_write()) {
    const FileTier::Waiting source = files.take_waiting();
    const FrameId frame = tiers_->ram.find_number(source.key, source.number);
    if (index_->has_content(source.block, source.key, source.number)) {
      files.start_write(source, source.block, kNoFrame, changes.tiers);
    } else if (frame != kNoFrame) {
      files.start_write(source, kNullBlock, frame, changes.tiers);
    } else {
      ++tiers_->counters.writes_given_up;
    }
  }
}

// -- reading ahead --

/// Walks from the end of the hit as far as the first group goes on, with at most max_reads of its blocks in files.
PagedKvManager::Ahead PagedKvManager::look_ahead(const Wanted& wanted, const PrefixHit& hit,
                                                 std::size_t max_reads) const {
  const auto size = static_cast<std::size_t>(block_size_), limit = static_cast<std::size_t>(wanted.limit);
  Ahead ahead{static_cast<std::size_t>(hit.num_blocks), limit / size, {}, {}};
  PrefixEnd before = end_of(hit);
  bool knows_before = true;  // false: it lies in a file and has no number yet
  for (std::size_t i = ahead.begin; i < wanted.chain.keys.size() && i * size < limit; ++i) {
    const BlockContent content = content_at(wanted, i, before);
    const BlockId first = knows_before ? index_->find(content) : kNullBlock;
    const Whereabouts where = find_ahead(content, knows_before, first, 0);
    if (where == Whereabouts::absent || (where == Whereabouts::in_file && max_reads-- == 0)) break;
    ahead.blocks.push_back(where);
    for (std::size_t group = 1; group < geometry_.num_groups(); ++group)
      ahead.blocks.push_back(find_ahead(content, knows_before, first, group));
    ahead.numbers.push_back(number_ahead(content, where, first));
    before = {ahead.numbers.back(), first};
    knows_before = where != Whereabouts::in_file;
  }
  return ahead;
}

/// `first`: the pool's block with the first group's content, or null.
PagedKvManager::Whereabouts PagedKvManager::find_ahead(const BlockContent& content, bool knows_before, BlockId first,
                                                       std::size_t group) const {
  if (knows_before && find_source(content, first, group).is_there()) return Whereabouts::there;
  const BlockKey key = in_group(content.key, group);
  if (const NumberedContent* read = tiers_->find_read(key))
    return knows_before && is_same(*read, content) ? Whereabouts::coming : Whereabouts::absent;
  return tiers_->files->has(key) ? Whereabouts::in_file : Whereabouts::absent;
}

/// Of the first group's content.
std::uint64_t PagedKvManager::number_ahead(const BlockContent& content, Whereabouts where, BlockId first) const {
  if (where == Whereabouts::in_file) return 0;
  if (where == Whereabouts::coming) return tiers_->find_read(content.key)->number;
  if (first != kNullBlock) return index_->end_at(first).number;
  return tiers_->ram.content(tiers_->ram.find(content, 0)).number;
}

/// The prefix that ends with the hit's last full block.
PrefixEnd PagedKvManager::end_of(const PrefixHit& hit) const {
  if (hit.num_blocks == 0) return {};
  const auto last = static_cast<std::size_t>(hit.num_blocks) - 1;
  const BlockId block = hit.blocks[last];
  return block != kNullBlock ? index_->end_at(block) : PrefixEnd{tiers_->ram.content(hit.frames[last]).number};
}

/// How far a hit would go with blocks that are at least so near, up to `most` of the first group; behind what the limit
/// allows whole, one more is wanted of all groups.
PagedKvManager::Reach PagedKvManager::reach(const Ahead& ahead, Whereabouts at_least, std::size_t most) const {
  const std::size_t num_groups = geometry_.num_groups();
  const auto has = [&](std::size_t group, std::size_t index) {
    return index < ahead.begin || ahead.blocks[(index - ahead.begin) * num_groups + group] >= at_least;
  };
  std::size_t end = ahead.begin;
  while (end < std::min(most, ahead.begin + ahead.numbers.size()) && has(0, end)) ++end;
  const auto num_whole = geometry_.longest_hit(
      static_cast<std::int64_t>(std::min(end, ahead.full)),
      [&](std::size_t group, std::int64_t entry) { return has(group, static_cast<std::size_t>(entry)); });
  Reach reach{static_cast<std::size_t>(num_whole), {}};
  bool goes_on = reach.end == ahead.full && end > ahead.full;
  for (std::size_t group = 1; group < num_groups; ++group) goes_on = goes_on && has(group, ahead.full);
  reach.end += goes_on ? 1 : 0;
  for (std::size_t i = ahead.begin; i < reach.end; ++i) {
    for (std::size_t group = 0; group < num_groups; ++group) {
      const bool is_needed = static_cast<std::int64_t>(i) >= geometry_.first_needed(group, num_whole * block_size_);
      if (is_needed && ahead.blocks[(i - ahead.begin) * num_groups + group] != Whereabouts::there)
        reach.blocks.push_back({i, group});
    }
  }
  return reach;
}

bool PagedKvManager::is_reading(const KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit,
                                const PrefixHit& hit) const {
  if (!tiers_ || !tiers_->files || (tiers_->files->num_reads() == 0 && tiers_->planned_reads.empty())) return false;
  const Ahead ahead = look_ahead({chain, tokens, limit}, hit, 0);
  return !reach(ahead, Whereabouts::coming, chain.keys.size()).blocks.empty();
}

bool PagedKvManager::plan_reads(const KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit,
                                const PrefixHit& hit) {
  if (!tiers_ || !tiers_->files || tiers_->files->num_known() == 0) return false;
  const auto room = static_cast<std::size_t>(std::max(0, tiers_->ram.num_available() - tiers_->planned_frames));
  Ahead ahead = look_ahead({chain, tokens, limit}, hit, room);
  const auto is_in_file = [&](const std::pair<std::size_t, std::size_t>& block) {
    const auto& [index, group] = block;
    return ahead.blocks[(index - ahead.begin) * geometry_.num_groups() + group] == Whereabouts::in_file;
  };
  Reach wanted = reach(ahead, Whereabouts::in_file, chain.keys.size());
  while (static_cast<std::size_t>(std::ranges::count_if(wanted.blocks, is_in_file)) > room)
    wanted = reach(ahead, Whereabouts::in_file, wanted.end - 1);
  std::erase_if(wanted.blocks, std::not_fn(is_in_file));
  if (wanted.blocks.empty()) return false;
  const auto size = static_cast<std::size_t>(block_size_);
  const auto prefix = tokens.first(wanted.end * size);
  const auto shared = std::make_shared<const std::vector<TokenId>>(prefix.begin(), prefix.end());
  for (const auto& [index, group] : wanted.blocks) {
    const std::size_t row = index - ahead.begin;
    if (ahead.numbers[row] == 0) ahead.numbers[row] = index_->new_number();
    const std::uint64_t parent = row == 0 ? end_of(hit).number : ahead.numbers[row - 1];
    const auto block = tokens.subspan(index * size, size);
    const BlockKey key = in_group(chain.keys[index], group);
    if (tiers_->find_read(key)) break;  // F2; its own, and so the hash collides
    tiers_->plan_read(
        {{key, chain.parent_of(index), ahead.numbers[row], parent, chain.salt, {block.begin(), block.end()}},
         shared,
         static_cast<std::int32_t>((index + 1) * size)});
  }
  return true;
}

void PagedKvManager::start_reads(KvChanges& changes) {
  for (KvTiers::PlannedRead& read : tiers_->planned_reads) {
    const FrameId frame = tiers_->ram.take();
    if (frame == kNoFrame) return;
    tiers_->files->start_read(frame, std::move(read.content),
                              std::span(*read.tokens).first(static_cast<std::size_t>(read.num_tokens)), changes.tiers);
  }
}

// -- what comes from outside --

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

}  // namespace quire
