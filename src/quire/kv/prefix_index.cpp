#include "quire/kv/prefix_index.h"

#include <algorithm>
#include <utility>

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire {

bool is_same(const NumberedContent& held, const BlockContent& asked) {
  const bool continues =
      held.parent_number == asked.parent.number && (held.parent_number != 0 || held.salt == asked.salt);
  return continues && std::ranges::equal(held.tokens, asked.tokens);
}

PrefixIndex::PrefixIndex(std::int32_t num_blocks, std::int32_t block_size, const CacheIdentity& identity,
                         std::size_t num_groups)
    : block_size_(block_size),
      identity_(identity),
      num_groups_(num_groups),
      companions_((static_cast<std::size_t>(num_blocks) + 1) * (num_groups - 1), kNullBlock),
      place_of_(num_groups > 1 ? static_cast<std::size_t>(num_blocks) + 1 : 0),
      entries_(static_cast<std::size_t>(num_blocks) + 1),
      tokens_((static_cast<std::size_t>(num_blocks) + 1) * static_cast<std::size_t>(block_size)) {}

BlockKey PrefixIndex::hash(std::string_view salt, const BlockKey* parent, std::span<const TokenId> tokens) const {
  const std::vector<std::byte> message = block_key_message(identity_.domain, salt, parent, tokens);
  return identity_.hasher ? identity_.hasher->hash(message) : DigestHasher().hash(message);
}

void PrefixIndex::extend(KeyChain& chain, std::span<const TokenId> tokens) const {
  extend_chain(chain, identity_, static_cast<std::size_t>(block_size_), tokens);
}

// -- lookups --

std::span<const TokenId> PrefixIndex::tokens_of(BlockId block) const {
  const auto size = static_cast<std::size_t>(block_size_);
  return std::span(tokens_).subspan(block.value * size, size);
}

bool PrefixIndex::continues(BlockId block, PrefixEnd parent, std::string_view salt) const {
  const Entry& entry = entries_[block.value];
  return entry.parent.number == parent.number && (parent.number != 0 || entry.salt == salt);
}

bool PrefixIndex::holds(BlockId block, const BlockContent& content) const {
  return continues(block, content.parent, content.salt) && std::ranges::equal(tokens_of(block), content.tokens);
}

BlockId PrefixIndex::find(const BlockContent& content) const {
  const auto found = block_of_.find(content.key);
  return found != block_of_.end() && holds(found->second, content) ? found->second : kNullBlock;
}

PrefixIndex::Partial PrefixIndex::find_partial(const BlockKey& parent_key, PrefixEnd parent, std::string_view salt,
                                               std::span<const TokenId> tokens) const {
  Partial best;
  const auto found = children_.find(parent_key);
  if (found == children_.end()) return best;
  for (std::size_t i = 0; i < found->second.count; ++i) {
    const BlockId block = found->second.blocks[i];
    if (!continues(block, parent, salt) || !has_all_companions(block)) continue;
    const auto agreeing = std::ranges::mismatch(tokens_of(block), tokens).in2 - tokens.begin();
    if (agreeing > best.num_tokens) best = {block, static_cast<std::int32_t>(agreeing)};
  }
  return best;
}

bool PrefixIndex::has_all_companions(BlockId first) const {
  for (std::size_t group = 1; group < num_groups_; ++group)
    if (companion(first, group) == kNullBlock) return false;
  return true;
}

// -- changes --

PrefixIndex::Published PrefixIndex::publish(BlockId block, const BlockContent& content, std::uint64_t number) {
  const auto [place, is_new] = block_of_.try_emplace(content.key, block);
  if (!is_new) {
    const BlockId holder = place->second;
    if (holds(holder, content)) return {Outcome::known, holder};
    return {is_alive(entries_[holder.value].parent) ? Outcome::collision : Outcome::displaced, holder};
  }
  Entry& entry = entries_[block.value];
  QUIRE_CHECK(entry.number == 0, "block ", block, " has a key already");
  QUIRE_CHECK(content.tokens.size() == static_cast<std::size_t>(block_size_), content.tokens.size());
  entry = {number != 0 ? number : new_number(), content.parent, content.key, content.parent_key,
           std::string(content.salt)};
  std::ranges::copy(content.tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(block.value) * block_size_);
  add_candidate(content.parent_key, block);
  return {Outcome::added, block};
}

/// Of a keyed block: the first group's block with which it goes, maybe itself, and its group.
PrefixIndex::Place PrefixIndex::place_of(BlockId block) const {
  const bool is_companion = num_groups_ > 1 && place_of_[block.value].first != kNullBlock;
  return is_companion ? place_of_[block.value] : Place{block, 0};
}

NumberedContent PrefixIndex::content_of(BlockId block) const {
  const auto [first, group] = place_of(block);
  const Entry& entry = entries_[first.value];
  const std::span<const TokenId> tokens = tokens_of(first);
  return {in_group(entry.key, group), entry.parent_key, entry.number,
          entry.parent.number,        entry.salt,       {tokens.begin(), tokens.end()}};
}

bool PrefixIndex::has_content(BlockId block, const BlockKey& key, std::uint64_t number) const {
  const auto [first, group] = place_of(block);
  return entries_[first.value].number == number && in_group(entries_[first.value].key, group) == key;
}

void PrefixIndex::add_companion(BlockId first, std::size_t group, BlockId block) {
  BlockId& place = companions_[companion_place(first, group)];
  QUIRE_CHECK(place == kNullBlock && place_of_[block.value].first == kNullBlock && entries_[first.value].number != 0,
              "block ", block, " as companion of ", first, " in group ", group);
  place = block;
  place_of_[block.value] = {first, group};
}

void PrefixIndex::forget(BlockId block, std::vector<BlockId>& orphans) {
  if (num_groups_ > 1 && place_of_[block.value].first != kNullBlock) {
    const Place place = std::exchange(place_of_[block.value], Place{});
    companions_[companion_place(place.first, place.group)] = kNullBlock;
    return;
  }
  for (std::size_t group = 1; group < num_groups_; ++group) {
    const BlockId orphan = std::exchange(companions_[companion_place(block, group)], kNullBlock);
    if (orphan == kNullBlock) continue;
    place_of_[orphan.value] = Place{};
    orphans.push_back(orphan);
  }
  Entry& entry = entries_[block.value];
  QUIRE_CHECK(entry.number != 0, "block ", block, " has no key");
  block_of_.erase(entry.key);
  remove_candidate(entry.parent_key, block);
  entry = Entry{};
}

void PrefixIndex::add_candidate(const BlockKey& parent_key, BlockId block) {
  Candidates& children = children_[parent_key];
  children.count = std::min(children.count + 1, kMaxCandidates);
  for (std::size_t i = children.count - 1; i > 0; --i) children.blocks[i] = children.blocks[i - 1];
  children.blocks[0] = block;
}

void PrefixIndex::remove_candidate(const BlockKey& parent_key, BlockId block) {
  const auto found = children_.find(parent_key);
  if (found == children_.end()) return;
  Candidates& children = found->second;
  const auto end = children.blocks.begin() + static_cast<std::ptrdiff_t>(children.count);
  children.count = static_cast<std::size_t>(std::remove(children.blocks.begin(), end, block) - children.blocks.begin());
  if (children.count == 0) children_.erase(found);
}

// -- invariants --

std::optional<std::string> PrefixIndex::validate_entry(BlockId block) const {
  const Entry& entry = entries_[block.value];
  const auto found = block_of_.find(entry.key);
  if (found == block_of_.end() || found->second != block) return cat("X1: block ", block, " is not found by its key");
  if (hash(entry.salt, &entry.parent_key, tokens_of(block)) != entry.key)
    return cat("X2: block ", block, " has a key that is not that of its tokens");
  return std::nullopt;
}

std::optional<std::string> PrefixIndex::validate_companion(BlockId block) const {
  const Place& place = place_of_[block.value];
  if (place.first == kNullBlock) return std::nullopt;
  if (entries_[block.value].number != 0) return cat("X1: block ", block, " is in the map and a companion");
  if (place.group < 1 || place.group >= num_groups_ || entries_[place.first.value].number == 0 ||
      companion(place.first, place.group) != block)
    return cat("X4: block ", block, " is not the companion of block ", place.first, " in group ", place.group);
  return std::nullopt;
}

std::optional<std::string> PrefixIndex::validate_candidates() const {
  for (const auto& [parent_key, children] : children_) {  // a walk whose order nothing depends on
    if (children.count == 0) return "X3: a list of candidates is empty";
    for (std::size_t i = 0; i < children.count; ++i) {
      const Entry& entry = entries_[children.blocks[i].value];
      if (entry.number == 0 || entry.parent_key != parent_key)
        return cat("X3: block ", children.blocks[i], " is no candidate of its parent");
      if (std::count(children.blocks.begin(), children.blocks.begin() + static_cast<std::ptrdiff_t>(i),
                     children.blocks[i]) > 0)
        return cat("X3: block ", children.blocks[i], " is a candidate twice");
    }
  }
  return std::nullopt;
}

std::optional<std::string> PrefixIndex::validate(const BlockPool& pool) const {
  std::size_t num_in_map = 0, num_companions = 0;
  for (std::uint32_t id = 1; id < entries_.size(); ++id) {
    const BlockId block{id};
    const bool is_companion = num_groups_ > 1 && place_of_[id].first != kNullBlock;
    if ((entries_[id].number != 0 || is_companion) != pool.is_keyed(block))
      return cat("X1: index and pool differ on the key of block ", id);
    if (num_groups_ > 1) {
      if (auto violation = validate_companion(block)) return violation;
      num_companions += is_companion ? 1 : 0;
    }
    if (entries_[id].number == 0) continue;
    ++num_in_map;
    if (auto violation = validate_entry(block)) return violation;
  }
  if (num_in_map != block_of_.size()) return cat("X1: ", num_in_map, " blocks with keys, ", block_of_.size(), " keys");
  const auto num_named = companions_.size() - static_cast<std::size_t>(std::ranges::count(companions_, kNullBlock));
  if (num_named != num_companions) return cat("X4: ", num_named, " companions named, there are ", num_companions);
  return validate_candidates();
}

}  // namespace quire
