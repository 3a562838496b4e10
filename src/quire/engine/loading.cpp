#include "quire/engine/loading.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "quire/base/checked.h"
#include "quire/engine/cache_domain.h"
#include "quire/engine/memory.h"
#include "quire/engine/tokenizer_data.h"
#include "quire/kv/vattention_kv_manager.h"
#include "quire/sched/policy.h"
#include "quire/sched/preemption.h"

namespace quire::engine {
namespace {

/// Of the memory that is free once the weights are loaded, the share that the KV pool takes by default. The rest is for
/// whatever else runs on the machine.
constexpr std::uint64_t kKvShare = 4;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// For requests that run, and as many ended ones whose memory stays mapped.
std::int64_t num_places(const EngineOptions& options) { return 2 * options.max_batch_rows; }

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

Result<void> check(const EngineOptions& options) {
  constexpr std::int64_t kBlockSizes[] = {8, 16, 32, 64, 128};
  if (std::find(std::begin(kBlockSizes), std::end(kBlockSizes), options.block_size) == std::end(kBlockSizes)) {
    return fail("block size is ", options.block_size, "; wanted 8, 16, 32, 64 or 128");
  }
  QUIRE_TRY_VOID(check_range("threads", options.threads, 0, 1024));
  QUIRE_TRY_VOID(check_range("max batch tokens", options.max_batch_tokens, 1, 65536));
  QUIRE_TRY_VOID(check_range("max batch rows", options.max_batch_rows, 1, 65536));
  QUIRE_TRY_VOID(check_range("max waiting", options.max_waiting, 1, 1'000'000));
  if (options.kv_manager == "vattention") {
    QUIRE_TRY_VOID(check_vattention(options));
  } else if (options.kv_manager != "paged" && options.kv_manager != "reserved") {
    return fail("KV manager is '", options.kv_manager, "'; wanted paged, vattention or reserved");
  }
  if (auto policy = make_queue_policy(options.queue_policy); !policy) return policy.error();
  if (auto policy = make_victim_policy(options.victim_policy); !policy) return policy.error();
  QUIRE_TRY_VOID(check_tiers(options));
  QUIRE_TRY_VOID(check_speculation(options));
  QUIRE_TRY_VOID(check_range("context", options.context, 0, std::int64_t{1} << 30));
  return {};
}

/// Grouped, where nothing else is said and nothing speaks against it.
Result<model::KvArrangement> choose_arrangement(const EngineOptions& options) {
  const bool has_other_manager = options.kv_manager != "paged";
  const bool is_single = has_other_manager || options.kv_ram_bytes > 0;
  if (options.kv_layout.empty()) return is_single ? model::KvArrangement::uniform : model::KvArrangement::grouped;
  QUIRE_TRY(const model::KvArrangement arrangement, model::parse_kv_arrangement(options.kv_layout));
  if (is_single && arrangement == model::KvArrangement::grouped)
    return fail("KV layout grouped cannot be combined with ",
                has_other_manager ? cat("the KV manager ", options.kv_manager) : "a RAM tier (--kv-ram-bytes)",
                "; wanted uniform");
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

/// Chooses the pool: as asked, or a share of what is free; never more than the requests that run at once can use.
Result<void> plan_kv(const EngineOptions& options, const PoolUnit& unit, EngineInfo& info) {
  const FreeMemory free = free_memory();
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

Result<void> make_virtual_store(const attention::KvLayout& layout, const EngineOptions& options, Loaded& loaded) {
  QUIRE_TRY(loaded.virtual_store, attention::VirtualKvStore::create({.layout = layout,
                                                                     .group_bytes = options.kv_page_group,
                                                                     .num_groups = loaded.info.num_blocks,
                                                                     .num_places = num_places(options),
                                                                     .context_tokens = loaded.info.context}));
  loaded.info.page_group_bytes = options.kv_page_group;
  return {};
}

/// Chooses the RAM tier: as asked.
Result<void> plan_ram(const EngineOptions& options, std::int64_t block_bytes, EngineInfo& info) {
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

/// The pool's memory is touched now: a machine that cannot give it fails here, not in the middle of a request.
void touch(ThreadPool& pool, attention::KvStore& store) {
  constexpr std::int64_t kPage = 4096;
  const auto memory = store.memory();
  const auto pages = static_cast<std::int64_t>(memory.size()) / kPage;
  pool.run([&](Worker& worker) {
    worker.for_each(pages, 512, [&](std::int64_t page) {
      *const_cast<volatile std::byte*>(memory.data() + page * kPage) = std::byte{0};
    });
  });
}

}  // namespace

Result<Loaded> load(const EngineOptions& options) {
  const auto started = Clock::now();
  QUIRE_TRY_VOID(check(options));
  QUIRE_TRY(attention::KvType kv_type, attention::parse_kv_type(options.kv_type));
  QUIRE_TRY(CpuChoice cpu, choose_cpu_tier(options.cpu_tier));
  QUIRE_TRY(model::GgufFile file, model::GgufFile::open(options.model_path));

  Loaded loaded;
  QUIRE_TRY(TokenizerData data, tokenizer_data(file));
  QUIRE_TRY(loaded.tokenizer, Tokenizer::create(std::move(data)));
  QUIRE_TRY(std::optional<std::string> source, chat_template_source(file));
  if (source) {
    // A template that cannot be read costs the chat, not the model.
    auto parsed = ChatTemplate::parse(*source);
    if (parsed.ok()) {
      loaded.chat_template = *std::move(parsed);
    } else {
      loaded.info.chat_template_fault = parsed.error().message;
    }
  }
  QUIRE_TRY(model::ModelConfig config, model::read_config(file));
  if (config.vocab_size != loaded.tokenizer->vocab_size()) {
    return fail("the model has ", config.vocab_size, " rows of embeddings, its tokenizer ",
                loaded.tokenizer->vocab_size(), " tokens; wanted the same number");
  }

  EngineInfo& info = loaded.info;
  info.model_context = config.context;
  info.context = options.context == 0 ? config.context : options.context;
  if (info.context > config.context) {
    return fail("a context of ", info.context, " tokens was asked for; the model was made for ", config.context);
  }
  const int threads = options.threads == 0 ? available_cores() : options.threads;
  loaded.pool = std::make_unique<ThreadPool>(threads);
  std::optional<BlockKey> file_digest;
  if (options.prefix_cache || !options.repack_cache_dir.empty()) {
    QUIRE_TRY(loaded.hasher, Sha256Hasher::create());
    file_digest = model_digest(*loaded.hasher, file.image(), *loaded.pool);
  }
  const auto weights_started = Clock::now();
  QUIRE_TRY(
      loaded.model,
      model::Model::load(file, *loaded.pool,
                         {.tier = cpu.tier,
                          .max_context = info.context,
                          .max_batch_tokens = options.max_batch_tokens,
                          .max_logit_rows = std::min<std::int64_t>(
                              std::max<std::int64_t>(options.max_batch_rows, 1 + options.num_speculative_tokens), 64),
                          .f32_weights = options.reference_arithmetic,
                          .repack_cache = {options.repack_cache_dir, file_digest.value_or(BlockKey{}).bytes},
                          .progress = options.progress}));
  info.weights_seconds = seconds_since(weights_started);
  info.repack = loaded.model->repack();

  const bool is_vattention = options.kv_manager == "vattention";
  QUIRE_TRY(const model::KvArrangement arrangement, choose_arrangement(options));
  loaded.grouping = model::group_layers(config, arrangement);
  for (std::int64_t window : loaded.grouping.windows)
    loaded.layer_groups.push_back({static_cast<std::int32_t>(window)});
  const attention::KvLayout layout{
      .num_layers = loaded.grouping.layers_per_group,
      .num_kv_heads = config.num_kv_heads,
      .head_dim = config.head_dim,
      .block_size = is_vattention ? attention::kTileTokens : options.block_size,
      .type = options.reference_arithmetic ? attention::KvType::f32 : kv_type,
  };
  const GroupGeometry geometry(static_cast<std::int32_t>(layout.block_size), loaded.layer_groups,
                               static_cast<std::int32_t>(options.max_batch_tokens));
  info.kv_bytes_per_token = layout.block_bytes() * loaded.grouping.num_groups() / layout.block_size;
  QUIRE_TRY_VOID(plan_kv(options, is_vattention ? page_groups_of(layout, options) : blocks_of(layout, geometry), info));
  QUIRE_TRY_VOID(plan_ram(options, layout.block_bytes(), info));
  if (is_vattention) {
    QUIRE_TRY_VOID(make_virtual_store(layout, options, loaded));
  } else {
    loaded.store = std::make_unique<attention::KvStore>(layout, info.num_blocks + 1);
    touch(*loaded.pool, *loaded.store);
  }
  info.prefix_cache = options.prefix_cache && options.kv_manager != "reserved";  // which shares nothing
  if (info.prefix_cache) {
    loaded.cache_domain =
        domain_digest(*loaded.hasher, {*file_digest, layout, loaded.grouping, options.reference_arithmetic});
  }

  info.model_name = config.name.empty() ? config.architecture : config.name;
  info.architecture = config.architecture;
  info.quantization = options.reference_arithmetic ? dominant_type(file) + " as F32" : dominant_type(file);
  info.model_path = options.model_path;
  info.file_bytes = file.file_bytes();
  info.num_parameters = count_parameters(file);
  info.num_layers = config.num_layers;
  info.vocab_size = config.vocab_size;
  info.threads = threads;
  info.cpu_tier = cpu.tier;
  info.cpu_tier_why = cpu.why;
  info.kv_type = attention::to_string(layout.type);
  info.kv_manager = options.kv_manager;
  info.block_size = layout.block_size;
  info.num_layer_groups = loaded.grouping.num_groups();
  info.layers_per_group = loaded.grouping.layers_per_group;
  info.kv_layout =
      model::to_string(info.num_layer_groups > 1 ? model::KvArrangement::grouped : model::KvArrangement::uniform);
  info.weight_bytes = loaded.model->weight_bytes();
  info.scratch_bytes = loaded.model->scratch_bytes();
  info.max_batch_tokens = options.max_batch_tokens;
  info.max_batch_rows = options.max_batch_rows;
  info.load_seconds = seconds_since(started);
  return loaded;
}

}  // namespace quire::engine
