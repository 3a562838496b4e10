#pragma once
// PlaceKeys: which place holds the longest cached prefix of some tokens. The content of a place is known tile by tile
// (64 tokens), by the keys of kv/block_key.h; it stays known until the memory behind it is written or taken away,
// whether the sequence lives or not. Several places may hold the same content.
//
// The hash is not trusted: a place is accepted only if its salt and all its tokens are those that are asked for.
//
// Invariants (validate):
//  H1  the index names (key, place, tile) if and only if the place has published that tile with that key
//  H2  a place's keys are the keys of its tokens; it knows the tokens of its published tiles and no others
//
// Thread-safety: none.

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "quire/kv/block_key.h"

namespace quire {

class PlaceKeys {
 public:
  PlaceKeys(std::int32_t num_places, std::int32_t tile_tokens, const CacheIdentity& identity);

  void extend(KeyChain& chain, std::span<const TokenId> tokens) const;

  /// Tiles of the place that can be found.
  std::int32_t num_tiles(std::int32_t place) const { return static_cast<std::int32_t>(at(place).keys.size()); }

  /// The place holds these tokens. Their whole tiles behind the known ones can be found from now on.
  void publish(std::int32_t place, const KeyChain& chain, std::span<const TokenId> tokens);
  /// Only the first num_tiles tiles of the place are still what they were.
  void truncate(std::int32_t place, std::int32_t num_tiles);

  struct Found {
    std::int32_t place = -1;
    std::int32_t num_tiles = 0;
  };
  /// The most tiles, at most max_tiles, that a place has of these tokens. The chain covers them.
  Found find(const KeyChain& chain, std::span<const TokenId> tokens, std::int32_t max_tiles) const;

  std::optional<std::string> validate() const;

 private:
  struct Place {
    std::string salt;
    std::vector<BlockKey> keys;
    std::vector<TokenId> tokens;
  };
  struct Entry {
    BlockKey key;
    std::int32_t place, tile;
    friend bool operator<(const Entry& a, const Entry& b) {
      if (a.key.bytes != b.key.bytes) return a.key.bytes < b.key.bytes;
      return a.place != b.place ? a.place < b.place : a.tile < b.tile;
    }
  };
  Place& at(std::int32_t place) { return places_[static_cast<std::size_t>(place)]; }
  const Place& at(std::int32_t place) const { return places_[static_cast<std::size_t>(place)]; }
  std::size_t tokens_of(std::int32_t num_tiles) const { return static_cast<std::size_t>(num_tiles * tile_tokens_); }
  bool holds(std::int32_t place, const KeyChain& chain, std::span<const TokenId> tokens) const;

  const std::int32_t tile_tokens_;
  const CacheIdentity identity_;
  std::vector<Place> places_;
  std::set<Entry> index_;
};

}  // namespace quire
