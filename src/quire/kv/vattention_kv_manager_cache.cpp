// The prefix cache of VAttentionKvManager.

#include <algorithm>

#include "quire/base/check.h"
#include "quire/kv/vattention_kv_manager.h"

namespace quire {

PrefixHit VAttentionKvManager::match(KeyChain& chain, std::span<const TokenId> tokens, std::int64_t limit) const {
  PrefixHit hit;
  if (!keys_) return hit;
  QUIRE_CHECK(limit <= static_cast<std::int64_t>(tokens.size()), limit);
  keys_->extend(chain, tokens);
  const PageGroupGeometry& geometry = options_.geometry;
  const PlaceKeys::Found found = keys_->find(chain, tokens, static_cast<std::int32_t>(limit / kKvTileTokens));
  if (found.num_tiles == 0) return hit;
  const auto groups = table_.groups(found.place);
  // Groups that somebody may write in place are not shared any further; the first of them may be copied.
  std::int64_t num_tiles = found.num_tiles;
  for (std::int64_t i = 0; i < geometry.groups_within(num_tiles); ++i)
    if (table_.state(groups[static_cast<std::size_t>(i)]).writers > 0)
      num_tiles = std::min(num_tiles, ((i + 1) * geometry.group_bytes - 1) / geometry.tile_bytes);
  const auto needs_copy = [&] { return !geometry.is_aligned(num_tiles); };
  const auto source = [&] { return groups[static_cast<std::size_t>(geometry.groups_within(num_tiles))]; };
  if (num_tiles == 0) return hit;
  hit.place = found.place;
  hit.num_tokens = static_cast<std::int32_t>(num_tiles) * kKvTileTokens;
  std::int32_t num_idle = 0, num_runs = 0;
  for (std::int32_t group : groups.first(static_cast<std::size_t>(geometry.groups_within(num_tiles)))) {
    num_idle += table_.state(group).is_held() ? 0 : 1;
    num_runs += hit.blocks.empty() || group != group_of(hit.blocks.back()) + 1 ? 1 : 0;
    hit.blocks.push_back(block_of(group));
  }
  const std::int64_t num_entries = table_.num_held_entries() + blocks_for(static_cast<std::int64_t>(tokens.size()));
  if (num_entries > max_runs_ && options_.num_groups + num_alias_runs_ + num_runs > max_runs_) return {};
  hit.num_blocks = static_cast<std::int32_t>(hit.blocks.size());
  hit.num_saved_blocks = hit.num_blocks - num_idle;
  if (needs_copy()) {
    hit.copy_from = {block_of(source())};
    hit.num_idle_sources = table_.state(source()).is_held() ? 0 : 1;
  }
  return hit;
}

void VAttentionKvManager::publish(SequenceId sequence, KeyChain& chain, std::span<const TokenId> tokens) {
  QUIRE_CHECK(operations_.empty(), "publish while a plan is open");
  const std::int32_t place = place_of(sequence);
  QUIRE_CHECK(place >= 0 && static_cast<std::int64_t>(tokens.size()) <= occupant(place).num_tokens, "sequence ",
              sequence, " has not ", tokens.size(), " tokens");
  if (!keys_) return;
  const auto num_full = static_cast<std::int32_t>(tokens.size()) / kKvTileTokens;
  if (keys_->num_tiles(place) >= num_full) return;
  keys_->extend(chain, tokens);
  cache_counters_.published_blocks += static_cast<std::uint64_t>(num_full - keys_->num_tiles(place));
  keys_->publish(place, chain, tokens);
}

}  // namespace quire
