// The prefix cache of PagedKvManager.

#include <algorithm>

#include "quire/base/check.h"
#include "quire/kv/paged_kv_manager.h"

namespace quire {

// -- finding --

PrefixHit PagedKvManager::match(KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit) const {
  PrefixHit hit;
  if (!index_) return hit;
  QUIRE_CHECK(limit <= static_cast<std::int64_t>(tokens.size()), limit);
  index_->extend(chain, tokens);
  const Wanted wanted{chain, tokens, limit};
  const Walk walk = walk_first_group(wanted);
  const auto num_blocks =
      geometry_.longest_hit(static_cast<std::int64_t>(walk.firsts.size()), [&](std::size_t group, std::int64_t entry) {
        return source_at(wanted, walk, group, static_cast<std::size_t>(entry)).is_there();
      });
  hit.num_blocks = static_cast<std::int32_t>(num_blocks);
  hit.num_tokens = hit.num_blocks * block_size_;
  add_tail(wanted, walk.ends[static_cast<std::size_t>(num_blocks)], hit);
  if (tiers_) use_kept_tail(wanted, walk, hit);
  add_blocks(wanted, walk, hit);
  return hit;
}

/// Block `index` of what is wanted, which follows the prefix `before`.
BlockContent PagedKvManager::content_at(const Wanted& wanted, std::size_t index, PrefixEnd before) const {
  const auto size = static_cast<std::size_t>(block_size_);
  return {wanted.chain.keys[index], wanted.chain.parent_of(index), before, wanted.chain.salt,
          wanted.tokens.subspan(index * size, size)};
}

/// Where the group has this content. `first`: the pool's block with the first group's; null: there is none.
PagedKvManager::Source PagedKvManager::find_source(const BlockContent& content, BlockId first,
                                                   std::size_t group) const {
  BlockId block = first;
  if (group > 0 && first != kNullBlock) block = index_->companion(first, group);
  if (block != kNullBlock || !tiers_) return {block, kNoFrame};
  return {kNullBlock, tiers_->ram.find(content, group)};
}

PagedKvManager::Walk PagedKvManager::walk_first_group(const Wanted& wanted) const {
  Walk walk{{}, {PrefixEnd{}}};
  for (std::size_t i = 0; i < static_cast<std::size_t>(wanted.limit / block_size_); ++i) {
    const BlockContent content = content_at(wanted, i, walk.ends.back());
    const Source source = find_source(content, index_->find(content), 0);
    if (!source.is_there()) break;
    walk.firsts.push_back(source);
    walk.ends.push_back(source.block != kNullBlock ? index_->end_at(source.block)
                                                   : PrefixEnd{tiers_->ram.content(source.frame).number, kNullBlock});
  }
  return walk;
}

PagedKvManager::Source PagedKvManager::source_at(const Wanted& wanted, const Walk& walk, std::size_t group,
                                                 std::size_t index) const {
  const Source& first = walk.firsts[index];
  return group == 0 ? first : find_source(content_at(wanted, index, walk.ends[index]), first.block, group);
}

/// Of hit.num_blocks blocks: in each group those that are still seen.
void PagedKvManager::add_blocks(const Wanted& wanted, const Walk& walk, PrefixHit& hit) const {
  const auto num_blocks = static_cast<std::size_t>(hit.num_blocks);
  const std::int64_t next = hit.tail_is_kept ? hit.num_tokens : std::int64_t{hit.num_blocks} * block_size_;
  hit.blocks.assign(geometry_.num_groups() * num_blocks, kNullBlock);
  for (std::size_t group = 0; group < geometry_.num_groups(); ++group) {
    for (auto i = static_cast<std::size_t>(geometry_.first_needed(group, next)); i < num_blocks; ++i) {
      const Source source = source_at(wanted, walk, group, i);
      hit.blocks[group * num_blocks + i] = source.block;
      if (source.frame != kNoFrame) {
        hit.frames.resize(hit.blocks.size(), kNoFrame);
        hit.frames[group * num_blocks + i] = source.frame;
      }
      // A window moves on, and what then takes the place of a shared block is the sequence's own.
      if (geometry_.groups()[group].window == 0 && pool_.ref_count(source.block) > 0) ++hit.num_saved_blocks;
    }
  }
}

/// What agrees with the tokens behind the hit's full blocks, up to the limit, in all groups [num_groups]: empty, or a
/// block in the pool that agrees with some of them, or with all of them the very content, wherever it lies. Adds the
/// tokens to the hit.
std::vector<PagedKvManager::Source> PagedKvManager::find_tail(const Wanted& wanted, PrefixEnd before,
                                                              PrefixHit& hit) const {
  const auto index = static_cast<std::size_t>(hit.num_blocks), size = static_cast<std::size_t>(block_size_);
  const std::size_t begin = index * size;
  const auto part = wanted.tokens.subspan(begin, std::min(size, static_cast<std::size_t>(wanted.limit) - begin));
  if (part.empty()) return {};
  std::vector<Source> sources;
  const PrefixIndex::Partial partial =
      index_->find_partial(wanted.chain.parent_of(index), before, wanted.chain.salt, part);
  std::int32_t num_tokens = partial.num_tokens;
  for (std::size_t group = 0; group < geometry_.num_groups() && partial.block != kNullBlock; ++group)
    sources.push_back({group == 0 ? partial.block : index_->companion(partial.block, group), kNoFrame});
  if (index < wanted.chain.keys.size()) {
    // The block at the limit may be cached whole, and yet no longer be among the last few, or be in RAM.
    const BlockContent content = content_at(wanted, index, before);
    const BlockId first = index_->find(content);
    std::vector<Source> whole;
    for (std::size_t group = 0; group < geometry_.num_groups(); ++group)
      whole.push_back(find_source(content, first, group));
    const bool needs_loads = std::ranges::any_of(whole, [](Source source) { return source.frame != kNoFrame; });
    const bool is_worth_it = !needs_loads || static_cast<std::size_t>(num_tokens) < part.size();
    if (is_worth_it && std::ranges::all_of(whole, &Source::is_there)) {
      sources = std::move(whole);
      num_tokens = static_cast<std::int32_t>(part.size());
    }
  }
  hit.num_tokens += num_tokens;
  return sources;
}

void PagedKvManager::add_tail(const Wanted& wanted, PrefixEnd before, PrefixHit& hit) const {
  const std::vector<Source> sources = find_tail(wanted, before, hit);
  for (std::size_t group = 0; group < sources.size(); ++group) {
    const auto& [block, frame] = sources[group];
    if (frame != kNoFrame) {
      hit.tail_frames.resize(sources.size(), kNoFrame);
      hit.tail_frames[group] = frame;
    } else {
      hit.copy_from.resize(sources.size(), kNullBlock);
      hit.copy_from[group] = block;
      if (pool_.ref_count(block) == 0) ++hit.num_idle_sources;
    }
  }
}

// -- publishing --

void PagedKvManager::publish(SequenceId sequence, KeyChain& chain, std::span<const TokenId> tokens) {
  QUIRE_CHECK(operations_.empty(), "publish while a plan is open");
  Entry* entry = find(sequence);
  QUIRE_CHECK(entry != nullptr && static_cast<std::int64_t>(tokens.size()) <= entry->num_tokens, "sequence ", sequence,
              " has not ", tokens.size(), " tokens");
  if (index_) publish_blocks(*entry, chain, tokens);
  move_windows(*entry, static_cast<std::int64_t>(tokens.size()));
}

void PagedKvManager::publish_blocks(Entry& entry, KeyChain& chain, std::span<const TokenId> tokens) {
  const auto num_full = static_cast<std::int32_t>(tokens.size()) / block_size_;
  if (entry.num_published == num_full || !entry.publishes) return;
  index_->extend(chain, tokens);
  if (tiers_ && tiers_->files)
    published_tokens_ = std::make_shared<const std::vector<TokenId>>(tokens.begin(), tokens.end());
  if (!index_->is_alive(entry.published_end)) {
    // The block of another sequence that stood for this prefix is gone: from the start, with blocks of our own.
    entry.num_published = 0;
    entry.published_end = {};
  }
  while (entry.num_published < num_full && publish_next(entry, chain, tokens)) continue;
}

bool PagedKvManager::publish_next(Entry& entry, const KeyChain& chain, std::span<const TokenId> tokens) {
  const auto i = static_cast<std::size_t>(entry.num_published);
  const BlockId block = entry.tables.front().blocks[i];
  const BlockContent content = content_at({chain, tokens, 0}, i, entry.published_end);
  // The block's own key may be one that nobody can find any more: it gets a new one.
  if (pool_.is_keyed(block) && index_->find(content) != block) forget_key(block);
  // The content may lie in a frame already: then it keeps its number.
  const FrameId frame = tiers_ ? tiers_->ram.find(content, 0) : kNoFrame;
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
    note_published(block, i);
  }
  publish_companions(entry, i, published.holder);
  entry.published_end = index_->end_at(published.holder);
  ++entry.num_published;
  return true;
}

/// The other groups' blocks become companions of `first` where it has none.
void PagedKvManager::publish_companions(const Entry& entry, std::size_t index, BlockId first) {
  for (std::size_t group = 1; group < entry.tables.size(); ++group) {
    if (!add_companion(entry, group, index, first)) continue;
    ++cache_counters_.published_blocks;
    note_published(entry.tables[group].blocks[index], index);
  }
}

/// False: there is no block, it has a name already, or another one is the companion.
bool PagedKvManager::add_companion(const Entry& entry, std::size_t group, std::size_t index, BlockId first) {
  const BlockId block = entry.tables[group].blocks[index];
  if (block == kNullBlock || pool_.is_keyed(block) || index_->companion(first, group) != kNullBlock) return false;
  index_->add_companion(first, group, block);
  pool_.set_keyed(block, true);
  return true;
}

void PagedKvManager::forget_key(BlockId block) {
  orphans_.clear();
  index_->forget(block, orphans_);
  pool_.set_keyed(block, false);
  for (BlockId orphan : orphans_) pool_.set_keyed(orphan, false);
}

}  // namespace quire
