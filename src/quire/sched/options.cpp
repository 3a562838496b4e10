#include "quire/sched/options.h"

#include "quire/kv/paged_kv_manager.h"
#include "quire/sched/policy.h"
#include "quire/sched/preemption.h"

namespace quire {
namespace {

Result<void> check_at_least_one(const char* name, std::int32_t value) {
  if (value < 1) return fail("option ", name, " is ", value, "; at least 1 is needed");
  return {};
}

/// About 400 MB of bookkeeping; a bound for logs and flags, far above any pool.
constexpr std::int32_t kMaxBlocks = 1 << 24;
constexpr std::int32_t kMaxFrames = 1 << 22;

Result<void> check_tiers(const CoreOptions& options) {
  if (options.kv_ram_frames < 0 || options.kv_ram_frames > kMaxFrames)
    return fail("option kv_ram_frames is ", options.kv_ram_frames, "; it must be 0 to ", kMaxFrames);
  if (options.kv_ram_frames > 0 && !options.prefix_cache)
    return fail("option kv_ram_frames is ", options.kv_ram_frames, "; a RAM tier needs prefix_cache");
  if (options.kv_files && options.kv_ram_frames == 0) return fail("option kv_files is set; it needs kv_ram_frames");
  if (options.copy_block_ns < 0 || options.compute_token_ns < 0)
    return fail("options copy_block_ns and compute_token_ns are ", options.copy_block_ns, " and ",
                options.compute_token_ns, "; they must be at least 0");
  QUIRE_TRY(const PreemptionMode mode, parse_preemption(options.preemption));
  if (mode == PreemptionMode::swap && options.kv_ram_frames == 0)
    return fail("option preemption is swap; it needs kv_ram_frames");
  return {};
}

}  // namespace

Result<void> check_options(const CoreOptions& options) {
  if (!is_block_size(options.block_size))
    return fail("option block_size is ", options.block_size, "; it must be 8, 16, 32, 64 or 128");
  QUIRE_TRY_VOID(check_at_least_one("num_blocks", options.num_blocks));
  if (options.num_blocks > kMaxBlocks)
    return fail("option num_blocks is ", options.num_blocks, "; at most ", kMaxBlocks, " are supported");
  QUIRE_TRY_VOID(check_at_least_one("context_tokens", options.context_tokens));
  QUIRE_TRY_VOID(check_at_least_one("token_budget", options.token_budget));
  QUIRE_TRY_VOID(check_at_least_one("max_rows", options.max_rows));
  if (options.watermark_blocks < -1)
    return fail("option watermark_blocks is ", options.watermark_blocks, "; it must be -1 (default) or at least 0");
  QUIRE_TRY_VOID(check_at_least_one("ageing_steps", options.ageing_steps));
  if (auto policy = make_queue_policy(options.queue_policy); !policy) return fail("option ", policy.error().message);
  if (auto policy = make_victim_policy(options.victim_policy); !policy) return fail("option ", policy.error().message);
  return check_tiers(options);
}

}  // namespace quire
