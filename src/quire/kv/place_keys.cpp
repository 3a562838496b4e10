#include "quire/kv/place_keys.h"

#include <algorithm>
#include <limits>

#include "quire/base/cat.h"

namespace quire {
namespace {

/// Places tried for one key. The first one holds what is asked for unless the hash collides.
constexpr int kMaxTries = 8;

}  // namespace

PlaceKeys::PlaceKeys(std::int32_t num_places, std::int32_t tile_tokens, const CacheIdentity& identity)
    : tile_tokens_(tile_tokens), identity_(identity), places_(static_cast<std::size_t>(num_places)) {}

void PlaceKeys::extend(KeyChain& chain, std::span<const TokenId> tokens) const {
  extend_chain(chain, identity_, static_cast<std::size_t>(tile_tokens_), tokens);
}

void PlaceKeys::publish(std::int32_t number, const KeyChain& chain, std::span<const TokenId> tokens) {
  Place& place = at(number);
  place.salt = chain.salt;
  const auto num_full = static_cast<std::int32_t>(tokens.size()) / tile_tokens_;
  for (std::int32_t tile = num_tiles(number); tile < num_full; ++tile) {
    place.keys.push_back(chain.keys[static_cast<std::size_t>(tile)]);
    const auto content = tokens.subspan(tokens_of(tile), tokens_of(1));
    place.tokens.insert(place.tokens.end(), content.begin(), content.end());
    index_.insert({place.keys.back(), number, tile});
  }
}

void PlaceKeys::truncate(std::int32_t number, std::int32_t num_left) {
  Place& place = at(number);
  while (num_tiles(number) > num_left) {
    index_.erase({place.keys.back(), number, num_tiles(number) - 1});
    place.keys.pop_back();
  }
  place.tokens.resize(std::min(place.tokens.size(), tokens_of(num_left)));
}

bool PlaceKeys::holds(std::int32_t number, const KeyChain& chain, std::span<const TokenId> tokens) const {
  const Place& place = at(number);
  return place.salt == chain.salt && place.tokens.size() >= tokens.size() &&
         std::equal(tokens.begin(), tokens.end(), place.tokens.begin());
}

PlaceKeys::Found PlaceKeys::find(const KeyChain& chain, std::span<const TokenId> tokens, std::int32_t max_tiles) const {
  const auto first_of = [&](std::int32_t tile) {
    return index_.lower_bound(
        {chain.keys[static_cast<std::size_t>(tile)], std::numeric_limits<std::int32_t>::min(), 0});
  };
  const auto is_of = [&](std::set<Entry>::const_iterator entry, std::int32_t tile) {
    return entry != index_.end() && entry->key == chain.keys[static_cast<std::size_t>(tile)];
  };
  std::int32_t num_known = 0;
  while (num_known < max_tiles && is_of(first_of(num_known), num_known)) ++num_known;
  for (std::int32_t tile = num_known - 1; tile >= 0; --tile) {
    int num_tries = 0;
    for (auto entry = first_of(tile); is_of(entry, tile) && num_tries < kMaxTries; ++entry, ++num_tries)
      if (entry->tile == tile && holds(entry->place, chain, tokens.first(tokens_of(tile + 1))))
        return {entry->place, tile + 1};
  }
  return {};
}

std::optional<std::string> PlaceKeys::validate() const {
  std::size_t num_published = 0;
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(places_.size()); ++p) {
    const Place& place = at(p);
    if (place.tokens.size() != tokens_of(num_tiles(p)))
      return cat("H2: place ", p, " knows ", place.tokens.size(), " tokens of ", num_tiles(p), " tiles");
    KeyChain chain{.salt = place.salt, .root = {}, .has_root = false, .keys = {}};
    extend(chain, place.tokens);
    if (chain.keys != place.keys) return cat("H2: the keys of place ", p, " are not those of its tokens");
    for (std::int32_t tile = 0; tile < num_tiles(p); ++tile)
      if (index_.count({place.keys[static_cast<std::size_t>(tile)], p, tile}) == 0)
        return cat("H1: tile ", tile, " of place ", p, " is not in the index");
    num_published += place.keys.size();
  }
  if (num_published != index_.size())
    return cat("H1: ", index_.size(), " entries, ", num_published, " published tiles");
  return std::nullopt;
}

}  // namespace quire
