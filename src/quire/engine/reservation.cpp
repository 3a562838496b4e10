#include "quire/engine/reservation.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "quire/attention/virtual_kv_store.h"
#include "quire/base/cat.h"
#include "quire/base/cpu.h"
#include "quire/kv/vattention_kv_manager.h"
#include "quire/sched/policy.h"
#include "quire/sched/preemption.h"

namespace quire::engine {
namespace {

/// Of the memory that is free once the weights are loaded, the share that the KV pool takes by default. The rest is for
/// whatever else runs on the machine.
constexpr std::uint64_t kKvShare = 4;

bool is_vattention(const EngineOptions& options) { return options.kv_manager == "vattention"; }

Result<void> check_range(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (low <= value && value <= high) return {};
  return fail(name, " is ", value, "; wanted ", low, " to ", high);
}

/// What does not go together, by the names of the flags.
Result<void> check_tiers(const EngineOptions& options) {
  QUIRE_TRY(const PreemptionMode mode, parse_preemption(options.preemption));
  const bool has_ram = options.kv_ram_bytes > 0;
  if (has_ram && !options.prefix_cache) return fail("--kv-ram-bytes needs the prefix cache; found --prefix-cache off");
  if (!options.kv_swap_dir.empty() && !has_ram) return fail("--kv-swap-dir needs --kv-ram-bytes, which is not given");
  if (!options.kv_swap_dir.empty() && options.kv_swap_bytes == 0) return fail("--kv-swap-bytes is 0; wanted a size");
  if (options.kv_swap_compression && options.kv_swap_dir.empty())
    return fail("--kv-swap-compression needs --kv-swap-dir, which is not given");
  if (mode == PreemptionMode::swap && !has_ram)
    return fail("--preemption swap needs --kv-ram-bytes, which is not given");
  if (has_ram && options.kv_manager != "paged")
    return fail("--kv-ram-bytes cannot be combined with --kv-manager ", options.kv_manager, "; wanted paged");
  return {};
}

/// What vAttention can be combined with.
Result<void> check_vattention(const EngineOptions& options) {
  const std::int64_t bytes = options.kv_page_group;
  if (bytes < 64 << 10 || bytes > 2 << 20 || (bytes & (bytes - 1)) != 0) {
    return fail("page-group is ", bytes, " bytes; wanted a power of two from 64 KiB to 2 MiB");
  }
  QUIRE_TRY_VOID(check_range("KV mappings", options.kv_max_mappings, 1, 1 << 30));
  if (options.kv_type == "int8" && !options.reference_arithmetic) {
    return fail("KV type int8 cannot be combined with the KV manager vattention; wanted f16, bf16 or f32");
  }
  return {};
}

/// What only vAttention heeds.
Result<void> check_no_vattention(const EngineOptions& options) {
  const EngineOptions usual;
  if (options.kv_page_group != usual.kv_page_group)
    return fail("--kv-page-group needs --kv-manager vattention, found ", options.kv_manager);
  if (options.kv_max_mappings != usual.kv_max_mappings)
    return fail("--kv-max-mappings needs --kv-manager vattention, found ", options.kv_manager);
  return {};
}

/// Grouped, where nothing else is said and nothing speaks against it.
Result<model::KvArrangement> choose_arrangement(const EngineOptions& options) {
  const bool is_paged = options.kv_manager == "paged";
  if (options.kv_layout.empty()) return is_paged ? model::KvArrangement::grouped : model::KvArrangement::uniform;
  QUIRE_TRY(const model::KvArrangement arrangement, model::parse_kv_arrangement(options.kv_layout));
  if (!is_paged && arrangement == model::KvArrangement::grouped)
    return fail("KV layout grouped cannot be combined with the KV manager ", options.kv_manager, "; wanted uniform");
  return arrangement;
}

/// The type that most of the weights' bytes have: "Q4_1".
std::string dominant_type(const model::GgufFile& file) {
  std::int64_t bytes[std::size(kAllDTypes)] = {};
  for (const auto& tensor : file.tensors()) bytes[static_cast<int>(tensor.dtype)] += tensor.bytes;
  const auto best = std::max_element(std::begin(bytes), std::end(bytes)) - std::begin(bytes);
  return std::string(info(kAllDTypes[best]).name);
}

std::int64_t count_parameters(const model::GgufFile& file) {
  std::int64_t count = 0;
  for (const auto& tensor : file.tensors()) count += tensor.rows() * tensor.cols();
  return count;
}

std::string gib(std::uint64_t bytes) {
  const auto tenths = static_cast<std::uint64_t>(static_cast<double>(bytes) / (1 << 30) * 10 + 0.5);
  return cat(tenths / 10, '.', tenths % 10, " GiB");
}

/// What the pool is made of: blocks or page-groups.
struct PoolUnit {
  std::string_view name;
  std::int64_t block_bytes;
  std::int64_t most_blocks;
  std::function<std::int64_t(std::int64_t)> blocks_for;  ///< of so many tokens
  std::function<std::int64_t(std::int64_t)> tokens_in;   ///< of one request, in so many blocks
};

PoolUnit blocks_of(const attention::KvLayout& layout, const GroupGeometry& geometry) {
  return {"blocks", layout.block_bytes(), std::int64_t{1} << 30,
          [geometry](std::int64_t tokens) { return geometry.blocks_for(tokens); },
          [geometry](std::int64_t blocks) { return geometry.longest_sequence(blocks); }};
}

PoolUnit page_groups_of(const attention::KvLayout& layout, const EngineOptions& options) {
  VAttentionOptions limits;
  limits.geometry = {attention::VirtualKvStore::tile_bytes(layout), options.kv_page_group, 1};
  limits.num_places = static_cast<std::int32_t>(num_places(options));
  limits.max_mappings = options.kv_max_mappings;
  const PageGroupGeometry geometry = limits.geometry;
  return {"page-groups", options.kv_page_group, std::max<std::int64_t>(0, most_groups(limits)),
          [geometry](std::int64_t tokens) { return geometry.groups_for(tokens); },
          [geometry](std::int64_t groups) { return geometry.tokens_in(groups); }};
}

/// Chooses the pool.
Result<void> reserve_pool(const EngineOptions& options, const PoolUnit& unit, const FreeMemory& free,
                          EngineInfo& info) {
  info.free_memory_bytes = free.bytes;
  const std::int64_t block_bytes = unit.block_bytes;
  const std::int64_t usable = std::min(unit.blocks_for(info.context) * options.max_batch_rows, unit.most_blocks);
  std::uint64_t bytes = options.kv_memory_bytes;
  if (bytes == 0) {
    bytes = free.bytes / kKvShare;
    info.kv_memory_why = cat("a quarter of the ", gib(free.bytes), " free ", free.source);
  } else if (free.bytes != 0 && bytes > free.bytes) {
    return fail("KV memory of ", gib(bytes), " was asked for; ", gib(free.bytes), " are free ", free.source);
  } else {
    info.kv_memory_why = "as asked";
  }
  const auto room = static_cast<std::int64_t>(bytes / static_cast<std::uint64_t>(block_bytes));
  info.num_blocks = std::min({room, usable, std::int64_t{1} << 30});
  if (info.num_blocks == usable && room > usable) {
    info.kv_memory_why =
        usable == unit.most_blocks
            ? cat("all that ", options.kv_max_mappings, " mappings allow; larger page-groups take more")
            : cat("all that ", options.max_batch_rows, " requests of full context can use");
  }
  if (info.num_blocks < 1) {
    return fail("KV memory of ", bytes, " bytes (", info.kv_memory_why, ") is less than one block of ", block_bytes,
                " bytes; give more with --kv-memory");
  }
  info.kv_bytes = static_cast<std::uint64_t>(info.num_blocks * block_bytes);
  info.kv_tokens = unit.tokens_in(info.num_blocks);
  if (info.kv_tokens == 0) {
    return fail("KV memory of ", bytes, " bytes (", info.kv_memory_why, ") is less than ", unit.blocks_for(1), " ",
                unit.name, " of ", block_bytes, " bytes, which the first token needs; give more with --kv-memory");
  }
  // Without an explicit context, no more is promised to a request than the pool holds.
  if (options.context == 0) info.context = std::min(info.context, info.kv_tokens);
  info.blocks_per_request = unit.blocks_for(info.context);
  return {};
}

/// Chooses the RAM tier: as asked.
Result<void> reserve_ram(const EngineOptions& options, std::int64_t block_bytes, EngineInfo& info) {
  info.preemption = options.preemption;
  if (options.kv_ram_bytes == 0) return {};
  constexpr std::uint64_t kMaxBlocks = 1 << 22;
  const std::uint64_t num_blocks = options.kv_ram_bytes / static_cast<std::uint64_t>(block_bytes);
  if (num_blocks < 1)
    return fail("--kv-ram-bytes is ", options.kv_ram_bytes, ", less than one block of ", block_bytes, " bytes");
  if (info.free_memory_bytes != 0 && options.kv_ram_bytes + info.kv_bytes > info.free_memory_bytes)
    return fail("a RAM tier of ", gib(options.kv_ram_bytes), " was asked for, beside a KV pool of ", gib(info.kv_bytes),
                "; ", gib(info.free_memory_bytes), " are free");
  info.kv_ram_blocks = static_cast<std::int64_t>(std::min(num_blocks, kMaxBlocks));
  info.kv_ram_bytes = static_cast<std::uint64_t>(info.kv_ram_blocks * block_bytes);
  if (options.kv_swap_dir.empty()) return {};
  info.kv_swap_dir = options.kv_swap_dir;
  info.kv_swap_bytes = options.kv_swap_bytes;
  return {};
}

/// What holds the K and V of the pool, beside the frames of the RAM tier.
std::uint64_t store_bytes(const attention::KvLayout& layout, const EngineInfo& info) {
  if (info.page_group_bytes > 0) return info.kv_bytes;
  return attention::KvStore::bytes_for(layout, info.num_blocks + 1);
}

void describe_model(const EngineOptions& options, const model::GgufFile& file, const model::ModelConfig& config,
                    EngineInfo& info) {
  info.model_name = config.name.empty() ? config.architecture : config.name;
  info.architecture = config.architecture;
  info.quantization = options.reference_arithmetic ? dominant_type(file) + " as F32" : dominant_type(file);
  info.model_path = options.model_path;
  info.file_bytes = file.file_bytes();
  info.num_parameters = count_parameters(file);
  info.num_layers = config.num_layers;
  info.vocab_size = config.vocab_size;
}

Result<void> check_speculation(const EngineOptions& options) {
  QUIRE_TRY_VOID(check_range("speculative tokens", options.num_speculative_tokens, 0, kMaxSpeculativeTokens));
  const NgramMatch& ngram = options.ngram;
  if (ngram.min_match < 1 || ngram.max_match < ngram.min_match || ngram.max_match > kMaxNgram)
    return fail("n-grams of ", ngram.min_match, " to ", ngram.max_match, " tokens; wanted a range within 1 and ",
                kMaxNgram);
  if (options.num_speculative_tokens > 0 && options.kv_manager != "paged")
    return fail("speculative tokens cannot be combined with the KV manager ", options.kv_manager, "; wanted paged");
  return {};
}

}  // namespace

std::int64_t num_places(const EngineOptions& options) { return 2 * options.max_batch_rows; }

Result<void> check_options(const EngineOptions& options) {
  constexpr std::int64_t kBlockSizes[] = {8, 16, 32, 64, 128};
  if (std::find(std::begin(kBlockSizes), std::end(kBlockSizes), options.block_size) == std::end(kBlockSizes)) {
    return fail("block size is ", options.block_size, "; wanted 8, 16, 32, 64 or 128");
  }
  QUIRE_TRY_VOID(check_range("threads", options.threads, 0, 1024));
  QUIRE_TRY_VOID(check_range("max batch tokens", options.max_batch_tokens, 1, kMaxBatch));
  QUIRE_TRY_VOID(check_range("max batch rows", options.max_batch_rows, 1, kMaxBatch));
  QUIRE_TRY_VOID(check_range("max waiting", options.max_waiting, 1, kMaxWaiting));
  if (is_vattention(options)) {
    QUIRE_TRY_VOID(check_vattention(options));
  } else if (options.kv_manager != "paged" && options.kv_manager != "reserved") {
    return fail("KV manager is '", options.kv_manager, "'; wanted paged, vattention or reserved");
  } else {
    QUIRE_TRY_VOID(check_no_vattention(options));
  }
  if (auto policy = make_queue_policy(options.queue_policy); !policy) return policy.error();
  if (auto policy = make_victim_policy(options.victim_policy); !policy) return policy.error();
  QUIRE_TRY_VOID(check_tiers(options));
  QUIRE_TRY_VOID(check_speculation(options));
  QUIRE_TRY_VOID(check_range("context", options.context, 0, std::int64_t{1} << 30));
  return {};
}

Result<Reservation> reserve_model(const EngineOptions& options, const model::GgufFile& file, EngineInfo& info) {
  QUIRE_TRY(const attention::KvType kv_type, attention::parse_kv_type(options.kv_type));
  QUIRE_TRY(const CpuChoice cpu, choose_cpu_tier(options.cpu_tier));
  QUIRE_TRY(const model::KvArrangement arrangement, choose_arrangement(options));
  Reservation out;
  QUIRE_TRY(out.config, model::read_config(file));
  const model::ModelConfig& config = out.config;
  info.model_context = config.context;
  info.context = options.context == 0 ? config.context : options.context;
  if (info.context > config.context)
    return fail("a context of ", info.context, " tokens was asked for; the model was made for ", config.context);

  out.load = {.tier = cpu.tier,
              .max_context = info.context,
              .max_batch_tokens = options.max_batch_tokens,
              .max_logit_rows = std::min<std::int64_t>(
                  std::max<std::int64_t>(options.max_batch_rows, 1 + options.num_speculative_tokens), 64),
              .f32_weights = options.reference_arithmetic};
  QUIRE_TRY(const model::ModelBytes bytes, model::Model::plan_bytes(file, out.load));
  out.grouping = model::group_layers(config, arrangement);
  for (std::int64_t window : out.grouping.windows) out.layer_groups.push_back({static_cast<std::int32_t>(window)});
  out.layout = {.num_layers = out.grouping.layers_per_group,
                .num_kv_heads = config.num_kv_heads,
                .head_dim = config.head_dim,
                .block_size = is_vattention(options) ? attention::kTileTokens : options.block_size,
                .type = options.reference_arithmetic ? attention::KvType::f32 : kv_type};

  describe_model(options, file, config, info);
  info.threads = options.threads == 0 ? available_cores() : options.threads;
  info.cpu_tier = cpu.tier;
  info.cpu_tier_why = cpu.why;
  info.kv_type = attention::to_string(out.layout.type);
  info.kv_manager = options.kv_manager;
  info.block_size = out.layout.block_size;
  info.page_group_bytes = is_vattention(options) ? options.kv_page_group : 0;
  info.num_layer_groups = out.grouping.num_groups();
  info.layers_per_group = out.grouping.layers_per_group;
  info.kv_layout =
      model::to_string(info.num_layer_groups > 1 ? model::KvArrangement::grouped : model::KvArrangement::uniform);
  info.kv_bytes_per_token = out.layout.block_bytes() * out.grouping.num_groups() / out.layout.block_size;
  info.prefix_cache = options.prefix_cache && options.kv_manager != "reserved";  // which shares nothing
  info.weight_bytes = bytes.weights;
  info.scratch_bytes = bytes.scratch;
  info.max_batch_tokens = options.max_batch_tokens;
  info.max_batch_rows = options.max_batch_rows;
  return out;
}

Result<void> reserve_kv(const EngineOptions& options, const Reservation& reservation, const FreeMemory& free,
                        EngineInfo& info) {
  const attention::KvLayout& layout = reservation.layout;
  const GroupGeometry geometry(static_cast<std::int32_t>(layout.block_size), reservation.layer_groups,
                               static_cast<std::int32_t>(options.max_batch_tokens));
  const PoolUnit unit = is_vattention(options) ? page_groups_of(layout, options) : blocks_of(layout, geometry);
  QUIRE_TRY_VOID(reserve_pool(options, unit, free, info));
  info.kv_store_bytes = store_bytes(layout, info);
  return reserve_ram(options, layout.block_bytes(), info);
}

CoreOptions core_options(const EngineOptions& options, const Reservation& reservation, const EngineInfo& info) {
  return {
      .block_size = static_cast<std::int32_t>(info.block_size),
      .num_blocks = static_cast<std::int32_t>(info.num_blocks),
      .context_tokens = static_cast<std::int32_t>(info.context),
      .token_budget = static_cast<std::int32_t>(info.max_batch_tokens),
      .max_rows = static_cast<std::int32_t>(info.max_batch_rows),
      .watermark_blocks = info.kv_manager == "reserved" ? 0 : -1,  // nobody there ever needs more than it has
      .queue_policy = options.queue_policy,
      .victim_policy = options.victim_policy,
      .prefix_cache = info.prefix_cache,
      .num_speculative_tokens = options.num_speculative_tokens,
      .ngram = options.ngram,
      .kv_manager = info.kv_manager,
      .tile_bytes = is_vattention(options) ? attention::VirtualKvStore::tile_bytes(reservation.layout) : 0,
      .page_group_bytes = info.page_group_bytes,
      .max_mappings = options.kv_max_mappings,
      .num_idle_places = static_cast<std::int32_t>(num_places(options) - info.max_batch_rows),
      .kv_ram_frames = static_cast<std::int32_t>(info.kv_ram_blocks),
      .kv_files = !info.kv_swap_dir.empty(),
      .preemption = options.preemption,
      .layer_groups = reservation.layer_groups,
  };
}
}  // namespace quire::engine
