// VAttentionKvManager::validate: invariants V1 to V3, and those of places and keys.

#include "quire/base/cat.h"
#include "quire/kv/vattention_kv_manager.h"

namespace quire {

std::optional<std::string> VAttentionKvManager::validate_sequences() const {
  std::size_t num_live = 0, num_idle = 0;
  for (std::int32_t place = 0; place < table_.num_places_and_lists(); ++place) {
    const Occupant& owner = occupant(place);
    const bool is_live = table_.is_live(place);
    num_live += is_live ? 1 : 0;
    if (is_live && place_of(owner.sequence) != place)
      return cat("V1: sequence ", owner.sequence, " is not found by its id");
    if (!is_live && owner.num_tokens != 0) return cat("V1: place ", place, " has tokens and no sequence");
    if (table_.held(place) != groups_of(owner.num_tokens) ||
        (is_live && table_.writable_from(place) != first_written(owner.num_tokens)))
      return cat("V1: place ", place, " holds ", table_.held(place), " groups for ", owner.num_tokens, " tokens");
    const bool is_idle = idle_.count({owner.idle_since, place}) > 0;
    if (is_idle != (!is_live && table_.size(place) > 0)) return cat("V3: place ", place, " is idle, or not listed");
    num_idle += is_idle ? 1 : 0;
    if (!keys_ || table_.is_list(place)) continue;
    const std::int64_t num_tiles = keys_->num_tiles(place);
    if (num_tiles > options_.geometry.tiles_in(table_.size(place)) ||
        (is_live && num_tiles * kKvTileTokens > owner.num_tokens))
      return cat("V2: place ", place, " has published ", num_tiles, " tiles in ", table_.size(place), " groups");
  }
  if (num_live != place_of_.size()) return cat("V1: ", place_of_.size(), " sequences in ", num_live, " places");
  if (num_idle != idle_.size()) return cat("V3: ", idle_.size(), " places listed, ", num_idle, " to reclaim from");
  return std::nullopt;
}

std::optional<std::string> VAttentionKvManager::validate() const {
  if (auto violation = table_.validate()) return violation;
  if (keys_) {
    if (auto violation = keys_->validate()) return violation;
  }
  return validate_sequences();
}

}  // namespace quire
