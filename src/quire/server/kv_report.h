#pragma once
// What GET /v1/kv shows: the KV memory at the end of the last step, as JSON; docs/http-api.md has the fields.

#include <string>

#include "quire/engine/engine.h"

namespace quire::server {

std::string kv_report(const engine::EngineStats& stats);

}  // namespace quire::server
