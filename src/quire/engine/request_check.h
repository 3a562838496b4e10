#pragma once
// What a request must satisfy to be taken by an engine at all: values in range, and room for it in context and memory.

#include <optional>

#include "quire/engine/engine.h"
#include "quire/kv/kv_manager.h"

namespace quire::engine {

/// The first thing that is wrong, with what was found and what was wanted.
std::optional<Refusal> find_fault(const GenerateRequest& request, const EngineInfo& info, const KvManager& kv);

}  // namespace quire::engine
