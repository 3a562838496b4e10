#pragma once
// SimulatedPlaces: the memory of vAttention without memory, for tests and the simulator. It does what plans say with
// values instead of bytes: a value is stored for each token, in each of the groups that the token's tile lies in, as
// the K and V of its layers would be. A group in two places is one memory.
//
// Thread-safety: none.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/cat.h"
#include "quire/kv/kv_manager.h"
#include "quire/kv/page_groups.h"

namespace quire {

template <class Value>
class SimulatedPlaces {
 public:
  SimulatedPlaces(const PageGroupGeometry& geometry, std::int32_t num_groups, std::int32_t num_places)
      : geometry_(geometry),
        places_(static_cast<std::size_t>(num_places)),
        contents_(static_cast<std::size_t>(num_groups) + 1),
        num_mappings_(static_cast<std::size_t>(num_groups) + 1, 0) {}

  /// Before a step: what the plan before wanted ahead, then this plan's maps and copies. An error is a map at an index
  /// with a gap before it, or an unmap that is not of the last ones.
  std::optional<std::string> apply(const KvChanges& changes) {
    std::optional<std::string> error;
    for (const GroupMap& map : ahead_) note(error, apply(map));
    for (const GroupMap& map : changes.group_maps) note(error, apply(map));
    ahead_ = changes.ahead_maps;
    for (const BlockCopy& copy : changes.copies) contents_.at(copy.to.value) = contents_.at(copy.from.value);
    return error;
  }

  /// The values of one token, one for each group that it lies in; empty if one of them is not mapped.
  std::vector<Value*> values_at(std::int32_t place, std::int64_t position) {
    const std::int64_t tile = position / kKvTileTokens;
    std::vector<Value*> values;
    for (std::int64_t i = geometry_.groups_within(tile); i < geometry_.groups_for((tile + 1) * kKvTileTokens); ++i) {
      const auto& groups = places_.at(static_cast<std::size_t>(place));
      if (i >= static_cast<std::int64_t>(groups.size())) return {};
      auto& content = contents_.at(groups[static_cast<std::size_t>(i)].value);
      const std::int64_t part = tile - i * geometry_.group_bytes / geometry_.tile_bytes;
      const auto at = static_cast<std::size_t>(part * kKvTileTokens + position % kKvTileTokens);
      if (content.size() <= at) content.resize(at + 1);
      values.push_back(&content[at]);
    }
    return values;
  }

  /// Places whose groups the token lies in, at most; 1: nobody else has any of them.
  std::int32_t sharers_at(std::int32_t place, std::int64_t position) const {
    const std::int64_t tile = position / kKvTileTokens;
    std::int32_t most = 0;
    for (std::int64_t i = geometry_.groups_within(tile); i < geometry_.groups_for((tile + 1) * kKvTileTokens); ++i)
      most = std::max(
          most, num_mappings_.at(places_.at(static_cast<std::size_t>(place)).at(static_cast<std::size_t>(i)).value));
    return most;
  }

  const std::vector<BlockId>& groups(std::int32_t place) const { return places_.at(static_cast<std::size_t>(place)); }

 private:
  static void note(std::optional<std::string>& error, std::optional<std::string> found) {
    if (!error) error = std::move(found);
  }

  std::optional<std::string> apply(const GroupMap& map) {
    std::vector<BlockId>& groups = places_.at(static_cast<std::size_t>(map.place));
    const auto size = static_cast<std::int32_t>(groups.size());
    if (map.group == kNullBlock) {
      if (map.index < 0 || map.count < 1 || map.index + map.count != size)
        return cat("place ", map.place, " has ", size, " groups, unmapped are ", map.count, " from ", map.index, " on");
      for (std::int32_t i = 0; i < map.count; ++i) {
        --num_mappings_.at(groups.back().value);
        groups.pop_back();
      }
      return std::nullopt;
    }
    if (map.index < 0 || map.count < 1 || map.index > size)
      return cat("place ", map.place, " has ", size, " groups, mapped are ", map.count, " from ", map.index, " on");
    for (std::int32_t i = 0; i < map.count; ++i) {
      const auto at = static_cast<std::size_t>(map.index + i);
      if (at == groups.size()) groups.push_back(kNullBlock);
      if (groups[at] != kNullBlock) --num_mappings_.at(groups[at].value);
      groups[at] = BlockId{map.group.value + static_cast<std::uint32_t>(i)};
      ++num_mappings_.at(groups[at].value);
    }
    return std::nullopt;
  }

  const PageGroupGeometry geometry_;
  std::vector<std::vector<BlockId>> places_;
  std::vector<std::vector<Value>> contents_;  ///< [num_groups + 1]: by tile within the group, then by token
  std::vector<std::int32_t> num_mappings_;    ///< [num_groups + 1]
  std::vector<GroupMap> ahead_;
};

}  // namespace quire
