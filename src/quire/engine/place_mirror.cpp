#include "quire/engine/place_mirror.h"

#include "quire/kv/page_groups.h"

namespace quire::engine {
namespace {

static_assert(kKvTileTokens == attention::kTileTokens, "the deciding half counts in tiles of the kernels");

/// Groups are numbered from 1 where 0 means none, and from 0 where they are addresses.
std::int64_t address_of(BlockId block) { return std::int64_t{block.value} - 1; }

attention::GroupRange range_of(const GroupMap& map) { return {map.place, map.index, map.count, address_of(map.group)}; }

}  // namespace

void PlaceMirror::apply(const BatchPlan& plan) {
  store_.fence();
  for (const GroupMap& map : plan.group_maps) {
    if (map.group == kNullBlock) {
      store_.unmap(map.place, map.count);
    } else {
      store_.map(range_of(map));
    }
  }
  for (const BlockCopy& copy : plan.copies) store_.copy(address_of(copy.from), address_of(copy.to));
  for (const GroupMap& map : plan.ahead_maps) store_.map_ahead(range_of(map));
}

}  // namespace quire::engine
