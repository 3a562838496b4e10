#include "quire/sched/options.h"

#include "quire/base/cat.h"
#include "quire/base/checked.h"
#include "quire/kv/paged_kv_manager.h"
#include "quire/sched/policy.h"
#include "quire/sched/preemption.h"
#include "quire/sched/step_composition.h"

namespace quire {
namespace {

Result<void> check_at_least_one(const char* name, std::int32_t value) {
  if (value < 1) return fail("option ", name, " is ", value, "; at least 1 is needed");
  return {};
}

Result<void> check_groups(const std::vector<LayerGroup>& groups) {
  if (groups.empty() || groups.size() > kMaxLayerGroups)
    return fail("option layer_groups has ", groups.size(), " groups; 1 to ", kMaxLayerGroups, " are supported");
  if (groups.front().window != 0)
    return fail("option layer_groups has a window of ", groups.front().window, " in its first group; it must be full");
  for (const LayerGroup& group : groups)
    if (group.window < 0) return fail("option layer_groups has a window of ", group.window, "; it must be at least 0");
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

/// So that no product of tokens and bytes overflows.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 32;

/// Of vattention; some 100 bytes each.
constexpr std::int64_t kMaxPlaces = 1 << 20;

Result<void> check_bytes(const char* name, std::int64_t value) {
  if (value < 1 || value > kMaxBytes) return fail("option ", name, " is ", value, "; 1 to ", kMaxBytes, " are allowed");
  return {};
}

Result<void> check_reserved(const CoreOptions& options) {
  if (options.prefix_cache || options.layer_groups.size() > 1)
    return fail("option kv_manager is reserved; it has neither prefix_cache nor layer_groups");
  if (ceil_div(options.context_tokens, options.block_size) > options.num_blocks)
    return fail("option kv_manager is reserved; num_blocks is ", options.num_blocks, ", and one sequence of ",
                options.context_tokens, " tokens reserves ", ceil_div(options.context_tokens, options.block_size));
  return {};
}

Result<void> check_kv_manager(const CoreOptions& options) {
  if (options.kv_manager == "paged") return {};
  if (options.is_reserved()) return check_reserved(options);
  if (!options.is_vattention())
    return fail("option kv_manager is '", options.kv_manager, "'; it must be paged, vattention or reserved");
  if (options.block_size != kKvTileTokens)
    return fail("option block_size is ", options.block_size, "; with vattention it must be ", kKvTileTokens);
  if (options.layer_groups.size() > 1)
    return fail("option layer_groups has ", options.layer_groups.size(), " groups; vattention has one");
  if (options.kv_ram_frames > 0)
    return fail("option kv_ram_frames is ", options.kv_ram_frames, "; vattention has no tiers: it must be 0");
  QUIRE_TRY_VOID(check_bytes("tile_bytes", options.tile_bytes));
  QUIRE_TRY_VOID(check_bytes("page_group_bytes", options.page_group_bytes));
  QUIRE_TRY_VOID(check_at_least_one("num_kv_tensors", options.num_kv_tensors));
  QUIRE_TRY_VOID(check_at_least_one("max_mappings", options.max_mappings));
  if (options.num_idle_places < 0 || std::int64_t{options.max_rows} + options.num_idle_places > kMaxPlaces)
    return fail("options max_rows and num_idle_places are ", options.max_rows, " and ", options.num_idle_places,
                "; together at most ", kMaxPlaces, " are allowed");
  const std::int64_t most = most_groups(options.vattention());
  if (options.num_blocks > most)
    return fail("option num_blocks is ", options.num_blocks, " page-groups; with ", options.max_mappings,
                " mappings at most ", most, " are possible: take larger page-groups");
  return {};
}

Result<void> check_speculation(const CoreOptions& options) {
  if (options.num_speculative_tokens < 0 || options.num_speculative_tokens > kMaxSpeculativeTokens)
    return fail("option num_speculative_tokens is ", options.num_speculative_tokens, "; it must be 0 to ",
                kMaxSpeculativeTokens);
  const NgramMatch& ngram = options.ngram;
  if (ngram.min_match < 1 || ngram.max_match < ngram.min_match || ngram.max_match > kMaxNgram)
    return fail("option ngram is ", ngram.min_match, " to ", ngram.max_match, "; it must lie within 1 and ", kMaxNgram);
  if (options.num_speculative_tokens > 0 && options.kv_manager != "paged")
    return fail("option num_speculative_tokens is ", options.num_speculative_tokens, "; kv_manager ",
                options.kv_manager, " cannot give back what did not come true: it must be 0, or kv_manager paged");
  return {};
}

}  // namespace

VAttentionOptions CoreOptions::vattention() const {
  return {page_groups(), num_blocks, max_rows + num_idle_places, context_tokens, max_mappings};
}

std::int64_t CoreOptions::pool_tokens() const {
  return is_vattention() ? page_groups().tokens_in(num_blocks) : geometry().longest_sequence(num_blocks);
}

std::string CoreOptions::pool_text() const {
  if (is_vattention()) return cat(num_blocks, " page-groups of ", page_groups().growth_bytes(), " bytes");
  const std::size_t num_groups = layer_groups.size();
  return cat(num_blocks, " blocks of ", block_size, num_groups > 1 ? cat(" for ", num_groups, " layer groups") : "");
}

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
  QUIRE_TRY_VOID(check_groups(options.layer_groups));
  if (auto policy = make_queue_policy(options.queue_policy); !policy) return fail("option ", policy.error().message);
  if (auto policy = make_victim_policy(options.victim_policy); !policy) return fail("option ", policy.error().message);
  if (auto composition = parse_step_composition(options.step_composition); !composition)
    return fail("option ", composition.error().message);
  QUIRE_TRY_VOID(check_kv_manager(options));
  QUIRE_TRY_VOID(check_speculation(options));
  return check_tiers(options);
}

}  // namespace quire
