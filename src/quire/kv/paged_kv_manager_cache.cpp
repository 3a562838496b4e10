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
  const auto size = static_cast<std::size_t>(block_size_);
  std::vector<BlockId> firsts;  // of the first group
  PrefixEnd end;
  for (std::size_t i = 0; i < static_cast<std::size_t>(limit) / size; ++i) {
    const BlockContent content{chain.keys[i], chain.parent_of(i), end, chain.salt, tokens.subspan(i * size, size)};
    const BlockId block = index_->find(content);
    const FrameId frame = block == kNullBlock && tiers_ ? tiers_->ram.find(content) : kNoFrame;
    if (block == kNullBlock && frame == kNoFrame) break;
    if (frame != kNoFrame) hit.frames.resize(firsts.size(), kNoFrame);
    if (frame != kNoFrame || !hit.frames.empty()) hit.frames.push_back(frame);
    firsts.push_back(block);
    end = block != kNullBlock ? index_->end_at(block) : PrefixEnd{tiers_->ram.content(frame).number, kNullBlock};
  }
  const std::size_t num_common = longest_common(firsts);
  if (num_common < firsts.size()) end = num_common == 0 ? PrefixEnd{} : index_->end_at(firsts[num_common - 1]);
  firsts.resize(num_common);
  hit.num_blocks = static_cast<std::int32_t>(num_common);
  hit.num_tokens = hit.num_blocks * block_size_;
  add_blocks(firsts, hit);
  add_copy(chain, tokens, limit, end, hit);
  if (tiers_) match_tail(chain, tokens, limit, end, hit);
  return hit;
}

/// The largest number of the first group's blocks that is a hit for all groups: each has what the first position behind
/// them sees.
std::size_t PagedKvManager::longest_common(std::span<const BlockId> firsts) const {
  const std::size_t num_groups = geometry_.num_groups();
  if (num_groups == 1) return firsts.size();
  std::vector<std::int64_t> unbroken_from(num_groups, 0);  // all companions from here on are there
  std::size_t longest = 0;
  for (std::size_t count = 1; count <= firsts.size(); ++count) {
    bool is_hit = true;
    for (std::size_t group = 1; group < num_groups; ++group) {
      if (index_->companion(firsts[count - 1], group) == kNullBlock)
        unbroken_from[group] = static_cast<std::int64_t>(count);
      const auto num_tokens = static_cast<std::int64_t>(count) * block_size_;
      is_hit = is_hit && unbroken_from[group] <= geometry_.first_needed(group, num_tokens);
    }
    if (is_hit) longest = count;
  }
  return longest;
}

void PagedKvManager::add_blocks(std::span<const BlockId> firsts, PrefixHit& hit) const {
  hit.blocks.assign(geometry_.num_groups() * firsts.size(), kNullBlock);
  auto to = hit.blocks.begin();
  for (std::size_t group = 0; group < geometry_.num_groups(); ++group) {
    const auto first_needed = static_cast<std::size_t>(geometry_.first_needed(group, hit.num_tokens));
    for (std::size_t i = 0; i < firsts.size(); ++i, ++to) {
      if (i < first_needed) continue;
      *to = group == 0 ? firsts[i] : index_->companion(firsts[i], group);
      // A window moves on, and what then takes the place of a shared block is the sequence's own.
      if (geometry_.groups()[group].window == 0 && pool_.ref_count(*to) > 0) ++hit.num_saved_blocks;
    }
  }
}

/// A block that agrees with some of the tokens behind the full blocks, and so do its companions.
void PagedKvManager::add_copy(const KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit, PrefixEnd end,
                              PrefixHit& hit) const {
  const auto i = static_cast<std::size_t>(hit.num_blocks), size = static_cast<std::size_t>(block_size_);
  const std::size_t begin = i * size;
  const auto wanted = tokens.subspan(begin, std::min(size, static_cast<std::size_t>(limit) - begin));
  if (wanted.empty()) return;
  auto partial = index_->find_partial(chain.parent_of(i), end, chain.salt, wanted);
  if (i < chain.keys.size()) {
    // The block at the limit may be cached whole, and yet no longer be among the last few.
    const BlockId whole =
        index_->find({chain.keys[i], chain.parent_of(i), end, chain.salt, tokens.subspan(begin, size)});
    if (whole != kNullBlock && index_->has_all_companions(whole))
      partial = {whole, static_cast<std::int32_t>(wanted.size())};
  }
  if (partial.block == kNullBlock) return;
  hit.num_tokens += partial.num_tokens;
  for (std::size_t group = 0; group < geometry_.num_groups(); ++group) {
    hit.copy_from.push_back(group == 0 ? partial.block : index_->companion(partial.block, group));
    if (pool_.ref_count(hit.copy_from.back()) == 0) ++hit.num_idle_sources;
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
  published_tokens_ = nullptr;
  if (!index_->is_alive(entry.published_end)) {
    // The block of another sequence that stood for this prefix is gone: from the start, with blocks of our own.
    entry.num_published = 0;
    entry.published_end = {};
  }
  while (entry.num_published < num_full && publish_next(entry, chain, tokens)) continue;
}

bool PagedKvManager::publish_next(Entry& entry, const KeyChain& chain, std::span<const TokenId> tokens) {
  const auto i = static_cast<std::size_t>(entry.num_published);
  const auto size = static_cast<std::size_t>(block_size_);
  const BlockId block = entry.tables.front().blocks[i];
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
  publish_companions(entry, i, published.holder);
  entry.published_end = index_->end_at(published.holder);
  ++entry.num_published;
  return true;
}

/// The other groups' blocks become companions of `first` where it has none.
void PagedKvManager::publish_companions(const Entry& entry, std::size_t index, BlockId first) {
  for (std::size_t group = 1; group < entry.tables.size(); ++group) {
    const BlockId block = entry.tables[group].blocks[index];
    if (block == kNullBlock || pool_.is_keyed(block) || index_->companion(first, group) != kNullBlock) continue;
    index_->add_companion(first, group, block);
    pool_.set_keyed(block, true);
    ++cache_counters_.published_blocks;
  }
}

void PagedKvManager::forget_key(BlockId block) {
  orphans_.clear();
  index_->forget(block, orphans_);
  pool_.set_keyed(block, false);
  for (BlockId orphan : orphans_) pool_.set_keyed(orphan, false);
}

}  // namespace quire
