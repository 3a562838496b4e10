#include "bench/layer_group_sections.h"

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/kv/paged_kv_manager.h"
#include "quire/model/layer_grouping.h"

namespace quire::bench {
namespace {

constexpr std::int32_t kBlockSize = 16, kChunk = 512;

/// Of 18 layers each sixth is full; one KV head of 256.
model::ModelConfig gemma_270m() {
  model::ModelConfig config;
  config.num_layers = 18;
  for (std::int64_t i = 1; i <= config.num_layers; ++i) config.layers.push_back({.window = i % 6 == 0 ? 0 : 512});
  return config;
}
constexpr std::int64_t kLayerTokenBytes = 2 * 256 * 2;  ///< K and V in f16

struct Held {
  std::int64_t at_end = 0, at_most = 0;  ///< bytes
};

Held held_bytes(model::KvArrangement arrangement, std::int64_t num_tokens) {
  const model::LayerGrouping grouping = model::group_layers(gemma_270m(), arrangement);
  std::vector<LayerGroup> groups;
  for (std::int64_t window : grouping.windows) groups.push_back({static_cast<std::int32_t>(window)});
  const GroupGeometry geometry(kBlockSize, groups, kChunk);
  PagedKvManager manager(static_cast<std::int32_t>(geometry.blocks_for(num_tokens)), geometry);
  const std::int64_t block_bytes = kBlockSize * grouping.layers_per_group * kLayerTokenBytes;
  const std::vector<TokenId> tokens(static_cast<std::size_t>(num_tokens));
  const SequenceId sequence{1};
  KeyChain chain;
  Held held;
  for (std::int64_t end = 0; end < num_tokens;) {
    end = std::min<std::int64_t>(num_tokens, end + kChunk);
    KvChanges changes;
    std::vector<KvReservation> reservations;
    manager.begin_plan();
    QUIRE_CHECK(manager.plan_reserve(sequence, end), "no room at ", end);
    manager.commit_plan(changes, reservations);
    held.at_most = std::max(held.at_most, manager.capacity().used_blocks() * block_bytes);
    manager.publish(sequence, chain, std::span(tokens).first(static_cast<std::size_t>(end)));
    held.at_end = manager.capacity().used_blocks() * block_bytes;
  }
  return held;
}

}  // namespace

Result<void> layer_group_memory(const Options&, report::Report& report) {
  constexpr double kMB = 1e6;
  for (const std::int64_t num_tokens : {1024, 4096, 16384}) {
    const Held grouped = held_bytes(model::KvArrangement::grouped, num_tokens);
    const Held uniform = held_bytes(model::KvArrangement::uniform, num_tokens);
    report.rows.push_back(report::make_row({cat("gemma 3 270m, f16, context ", num_tokens, ": KV held"), "MB"},
                                           {static_cast<double>(grouped.at_end) / kMB}, "uniform layout",
                                           {static_cast<double>(uniform.at_end) / kMB}));
    report.rows.push_back(report::make_row({cat("gemma 3 270m, f16, context ", num_tokens, ": most in prefill"), "MB"},
                                           {static_cast<double>(grouped.at_most) / kMB}, "uniform layout",
                                           {static_cast<double>(uniform.at_most) / kMB}));
  }
  return {};
}

}  // namespace quire::bench
