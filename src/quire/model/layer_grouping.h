#pragma once
// LayerGrouping: which layers of a model share KV blocks. In the uniform layout a block holds the K and V of all
// layers. In the grouped one layers with the same window are cut into groups of equally many layers (g), full ones
// first; a block holds one group's layers, and memory behind a window is given back (kv/layer_groups.h says how).
//
// g is the largest size that leaves, of either kind, at most one in sixteen places without a layer: the last group of a
// kind may be smaller than g, and its blocks are not. The greatest common divisor of the kinds' sizes leaves none, so
// there always is one. Gemma 3 270M has 15 layers with a window and 3 without: six groups of 3. Gemma 3 4B has 29 and
// 5: seven groups of 5, one place in 35 empty.
//
// A model whose layers are alike is laid out uniformly, and so is one without a full layer.

#include <cstdint>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/model/config.h"

namespace quire::model {

enum class KvArrangement { uniform, grouped };
std::string_view to_string(KvArrangement arrangement);
Result<KvArrangement> parse_kv_arrangement(std::string_view name);

struct LayerGrouping {
  /// Where a layer's K and V lie.
  struct Place {
    std::int64_t group = 0;
    std::int64_t index = 0;  ///< the layer of attention::KvStore, in [0, layers_per_group)
  };
  std::vector<std::int64_t> windows;  ///< [num_groups] of the groups' memory; 0: nothing is given back; the first is 0
  std::int64_t layers_per_group = 0;
  std::vector<Place> places;  ///< [num_layers]

  std::int64_t num_groups() const { return static_cast<std::int64_t>(windows.size()); }
};

LayerGrouping group_layers(const ModelConfig& config, KvArrangement arrangement);

}  // namespace quire::model
