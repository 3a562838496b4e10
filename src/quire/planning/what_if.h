#pragma once
// What-if: the same load on an engine with one setting changed, searched anew. The memory is planned anew too: a KV
// type of half the bytes has a pool of twice the tokens.

#include <functional>
#include <string>
#include <vector>

#include "quire/planning/fit.h"

namespace quire::planning {

struct WhatIf {
  std::string setting;  ///< "KV type": rows of one setting stand together
  std::string flag;     ///< "--kv-type int8"
  engine::EngineOptions options;
};

/// Settings beside the planned ones, those that go together with them: block size, KV type, layout, chunk, rows, prefix
/// cache, queue policy, victim policy, manager, context. `longest` is the load's longest request: contexts that are
/// tried hold it.
std::vector<WhatIf> what_ifs(const engine::EngineOptions& planned, const engine::EngineInfo& info,
                             std::int64_t longest);

struct WhatIfRow {
  std::string setting, flag;
  double rate = 0;
  double change = 0;         ///< of the rate over the planned one's: -0.1 is a tenth less
  std::int64_t at_once = 0;  ///< requests, AtOnce::steady
  std::string note;          ///< why there is no rate, or what to know about it
};

}  // namespace quire::planning
