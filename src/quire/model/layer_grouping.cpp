#include "quire/model/layer_grouping.h"

#include <algorithm>
#include <map>

#include "quire/base/checked.h"

namespace quire::model {
namespace {

constexpr std::int64_t kMostEmpty = 16;  ///< of a kind at most one place in so many has no layer

using Kinds = std::map<std::int64_t, std::vector<std::int64_t>>;  ///< by window, which puts full ones first: layers

std::int64_t layers_per_group(const Kinds& kinds, std::int64_t num_layers) {
  std::int64_t size = num_layers;
  const auto fits = [&](const auto& kind) {
    const auto count = static_cast<std::int64_t>(kind.second.size());
    const std::int64_t num_places = round_up(count, size);
    return (num_places - count) * kMostEmpty <= num_places;
  };
  while (!std::ranges::all_of(kinds, fits)) --size;
  return size;
}

LayerGrouping uniform(std::int64_t num_layers) {
  LayerGrouping grouping{{0}, num_layers, {}};
  for (std::int64_t layer = 0; layer < num_layers; ++layer) grouping.places.push_back({0, layer});
  return grouping;
}

}  // namespace

std::string_view to_string(KvArrangement arrangement) {
  return arrangement == KvArrangement::grouped ? "grouped" : "uniform";
}

Result<KvArrangement> parse_kv_arrangement(std::string_view name) {
  for (KvArrangement arrangement : {KvArrangement::uniform, KvArrangement::grouped})
    if (name == to_string(arrangement)) return arrangement;
  return fail("KV layout '", name, "' is unknown; wanted grouped or uniform");
}

LayerGrouping group_layers(const ModelConfig& config, KvArrangement arrangement) {
  Kinds kinds;
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer)
    kinds[config.layers[static_cast<std::size_t>(layer)].window].push_back(layer);
  if (arrangement == KvArrangement::uniform || kinds.size() == 1 || kinds.begin()->first != 0)
    return uniform(config.num_layers);
  LayerGrouping grouping;
  grouping.layers_per_group = layers_per_group(kinds, config.num_layers);
  grouping.places.resize(static_cast<std::size_t>(config.num_layers));
  for (const auto& [window, layers] : kinds) {
    const std::int64_t first_group = grouping.num_groups();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      grouping.places[static_cast<std::size_t>(layers[i])] = {first_group + at / grouping.layers_per_group,
                                                              at % grouping.layers_per_group};
    }
    const auto num_layers = static_cast<std::int64_t>(layers.size());
    grouping.windows.insert(grouping.windows.end(),
                            static_cast<std::size_t>(ceil_div(num_layers, grouping.layers_per_group)), window);
  }
  return grouping;
}

}  // namespace quire::model
