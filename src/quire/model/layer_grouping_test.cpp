#include "quire/model/layer_grouping.h"

#include <gtest/gtest.h>

#include <set>

namespace quire::model {
namespace {

/// Layers `period`, 2 * `period`, ... are full, the others have a window, as in Gemma 3; period 0: all are full.
ModelConfig config_with(std::int64_t num_layers, std::int64_t period, std::int64_t window = 512) {
  ModelConfig config;
  config.num_layers = num_layers;
  for (std::int64_t i = 1; i <= num_layers; ++i)
    config.layers.push_back({.window = period == 0 || i % period == 0 ? 0 : window});
  return config;
}

struct Expected {
  std::int64_t num_layers, full_groups, window_groups, layers_per_group;
};

TEST(LayerGrouping, CutsTheLayersIntoGroupsOfEquallyManyFullOnesFirst) {
  // Gemma 3: 270M, 1B, 4B, 12B, 27B.
  for (const Expected& e : {Expected{18, 1, 5, 3}, {26, 2, 11, 2}, {34, 1, 6, 5}, {48, 1, 5, 8}, {62, 2, 11, 5}}) {
    const ModelConfig config = config_with(e.num_layers, 6);
    const LayerGrouping grouping = group_layers(config, KvArrangement::grouped);
    EXPECT_EQ(grouping.layers_per_group, e.layers_per_group) << e.num_layers;
    ASSERT_EQ(grouping.num_groups(), e.full_groups + e.window_groups) << e.num_layers;
    EXPECT_EQ(std::count(grouping.windows.begin(), grouping.windows.end(), 0), e.full_groups);
    EXPECT_EQ(grouping.windows.front(), 0);
    std::set<std::pair<std::int64_t, std::int64_t>> places;
    for (std::int64_t layer = 0; layer < e.num_layers; ++layer) {
      const auto place = grouping.places[static_cast<std::size_t>(layer)];
      EXPECT_TRUE(places.emplace(place.group, place.index).second) << "two layers in one place";
      EXPECT_LT(place.index, grouping.layers_per_group);
      EXPECT_EQ(grouping.windows[static_cast<std::size_t>(place.group)],
                config.layers[static_cast<std::size_t>(layer)].window);
    }
    EXPECT_LE((grouping.num_groups() * grouping.layers_per_group - e.num_layers) * 16,
              grouping.num_groups() * grouping.layers_per_group);
  }
}

TEST(LayerGrouping, IsUniformWhereLayersAreAlikeWhereNoneIsFullAndWhereThatIsWanted) {
  for (const LayerGrouping& grouping : {group_layers(config_with(30, 0), KvArrangement::grouped),
                                        group_layers(config_with(30, 31), KvArrangement::grouped),
                                        group_layers(config_with(30, 6), KvArrangement::uniform)}) {
    EXPECT_EQ(grouping.windows, std::vector<std::int64_t>{0});
    EXPECT_EQ(grouping.layers_per_group, 30);
    for (std::int64_t layer = 0; layer < 30; ++layer) {
      EXPECT_EQ(grouping.places[static_cast<std::size_t>(layer)].group, 0);
      EXPECT_EQ(grouping.places[static_cast<std::size_t>(layer)].index, layer);
    }
  }
}

TEST(LayerGrouping, ItsNamesAreReadAndOthersRefused) {
  EXPECT_EQ(*parse_kv_arrangement("grouped"), KvArrangement::grouped);
  EXPECT_EQ(*parse_kv_arrangement("uniform"), KvArrangement::uniform);
  EXPECT_EQ(parse_kv_arrangement("typed").error().message, "KV layout 'typed' is unknown; wanted grouped or uniform");
}

}  // namespace
}  // namespace quire::model
