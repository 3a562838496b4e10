#pragma once
// reservation: what opening an engine takes of memory, worked out from the options and the model file's metadata before
// anything is loaded. The engine reserves what these functions say (loading.cpp), and the planner prints it
// (planning/fit.h): there is no second formula. Reads no tensor; works for a file larger than the machine's memory.

#include <cstdint>
#include <vector>

#include "quire/attention/kv_store.h"
#include "quire/base/result.h"
#include "quire/engine/engine.h"
#include "quire/engine/memory.h"
#include "quire/kv/layer_groups.h"
#include "quire/model/config.h"
#include "quire/model/gguf.h"
#include "quire/model/layer_grouping.h"
#include "quire/model/model.h"
#include "quire/sched/options.h"

namespace quire::engine {

/// The first option out of range, or that does not go with another one, by its name and what is allowed.
Result<void> check_options(const EngineOptions& options);

/// Places of vAttention: for requests that run, and as many ended ones whose memory stays mapped.
std::int64_t num_places(const EngineOptions& options);

/// A model as it will be loaded.
struct Reservation {
  model::ModelConfig config;
  model::LoadOptions load;               ///< without repack cache and progress
  model::LayerGrouping grouping;         ///< which layers share a block of the store
  std::vector<LayerGroup> layer_groups;  ///< the same, as the deciding half sees it
  attention::KvLayout layout;            ///< of the store
};

/// All but the KV memory. Fills in `info` what is known before loading; weight_bytes and scratch_bytes are those that
/// loading will take. check_options(options) has passed.
Result<Reservation> reserve_model(const EngineOptions& options, const model::GgufFile& file, EngineInfo& info);

/// The KV pool: as asked, or a share of `free`; never more than the requests that run at once can use. And the RAM
/// tier. `free` is what is left once the weights are loaded; 0 bytes: unknown.
Result<void> reserve_kv(const EngineOptions& options, const Reservation& reservation, const FreeMemory& free,
                        EngineInfo& info);

/// The settings of the deciding half; copy_block_ns and compute_token_ns are left to be measured.
CoreOptions core_options(const EngineOptions& options, const Reservation& reservation, const EngineInfo& info);

}  // namespace quire::engine
