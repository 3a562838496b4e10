#include "quire/planning/requests.h"

#include <algorithm>

#include "quire/core/engine_core.h"

namespace quire::planning {
namespace {

/// Blocks that the load's requests hold on average once `share` of their answers is there.
double mean_blocks(const KvManager& kv, const Load& load, double share) {
  double sum = 0;
  for (const RequestSpec& request : load.requests)
    sum += static_cast<double>(
        kv.blocks_for(request.prompt_tokens + static_cast<std::int64_t>(share * request.output_tokens)));
  return sum / static_cast<double>(load.requests.size());
}

}  // namespace

Result<AtOnce> count_requests(const CoreOptions& core, const Load& load) {
  QUIRE_TRY(const auto engine, EngineCore::create(core));
  const KvManager& kv = engine->kv();
  const double pool = core.num_blocks;
  AtOnce out;
  out.at_full_length = static_cast<std::int64_t>(pool / mean_blocks(kv, load, 1));
  out.growing = static_cast<std::int64_t>(pool / mean_blocks(kv, load, 0.5));
  out.full_context = core.num_blocks / std::max<std::int64_t>(1, kv.blocks_for(core.context_tokens));
  out.rows = std::min(core.max_rows, core.token_budget);
  out.largest_context = core.pool_tokens();
  out.context = core.context_tokens;
  return out;
}

}  // namespace quire::planning
