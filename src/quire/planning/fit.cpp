#include "quire/planning/fit.h"

#include <algorithm>

#include "quire/base/cat.h"

namespace quire::planning {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// Of a process that has nothing but its program, and of each entry of its vocabulary.
constexpr std::uint64_t kProcessBytes = 48 * kMiB;
constexpr std::uint64_t kBytesPerToken = 256;

std::string mib(std::uint64_t bytes) { return cat((bytes + kMiB - 1) / kMiB, " MiB"); }

std::string kv_words(const engine::EngineInfo& info) {
  const bool is_mapped = info.page_group_bytes > 0;
  const std::string_view limit = info.kv_memory_why;  // "as asked", or why it is less
  return cat(info.num_blocks, is_mapped ? " page-groups of " : " blocks of ",
             is_mapped ? info.page_group_bytes : info.block_size, is_mapped ? " bytes, " : " tokens, ", info.kv_type,
             limit.starts_with("all that") ? ", " : "", limit.starts_with("all that") ? limit : "");
}

/// What there must be at least: everything but the pool, and a pool for one token.
Error too_small(const Fit& fit, std::uint64_t fixed, const std::string& why) {
  return fail(fit.info.model_path, " does not fit into ", mib(fit.memory.bytes), " (", fit.memory.source,
              "): weights take ", mib(fit.info.weight_bytes), ", working memory of steps ", mib(fit.info.scratch_bytes),
              ", the rest of the process ", mib(fixed - fit.info.weight_bytes - fit.info.scratch_bytes), "; ", why,
              "; give more with --memory, or take less with --max-batch-tokens, "
              "--ctx or a smaller model");
}

void list_parts(Fit& fit, std::uint64_t allowance) {
  const engine::EngineInfo& info = fit.info;
  fit.parts = {{"weights", info.weight_bytes, cat(info.quantization, ", packed for the kernels")},
               {"KV pool", info.kv_store_bytes, kv_words(info)},
               {"working memory", info.scratch_bytes,
                cat("activations of ", info.max_batch_tokens, " tokens, logits, rotary tables")}};
  if (info.kv_ram_bytes > 0) fit.parts.push_back({"RAM tier", info.kv_ram_bytes, cat(info.kv_ram_blocks, " blocks")});
  fit.parts.push_back({"rest", allowance, "allowance: program, tokenizer, bookkeeping, connections"});
}

}  // namespace

std::uint64_t Fit::total_bytes() const {
  std::uint64_t total = 0;
  for (const MemoryPart& part : parts) total += part.bytes;
  return total;
}

std::uint64_t allowance_bytes(const engine::EngineInfo& info) {
  return kProcessBytes + kBytesPerToken * static_cast<std::uint64_t>(info.vocab_size);
}

Result<Fit> plan_fit(const engine::EngineOptions& options, const model::GgufFile& file, const Memory& memory) {
  QUIRE_TRY_VOID(engine::check_options(options));
  Fit fit;
  fit.options = options;
  fit.memory = memory;
  QUIRE_TRY(fit.reservation, engine::reserve_model(options, file, fit.info));
  const std::uint64_t allowance = allowance_bytes(fit.info);
  const std::uint64_t fixed = fit.info.weight_bytes + fit.info.scratch_bytes + allowance;
  // A store of no blocks has the null block and padding.
  const std::uint64_t store =
      fit.info.page_group_bytes > 0 ? 0 : attention::KvStore::bytes_for(fit.reservation.layout, 1);
  const std::uint64_t needed = fixed + store + options.kv_ram_bytes;
  if (memory.bytes <= needed) return too_small(fit, fixed, cat("at least ", mib(needed + store), " are needed"));
  const engine::FreeMemory left{memory.bytes - fixed - store, cat("beside the weights, of what is ", memory.source)};
  if (options.kv_memory_bytes == 0) {
    const std::uint64_t room = left.bytes - options.kv_ram_bytes;
    fit.options.kv_memory_bytes = room >= 16 * kMiB ? room / kMiB * kMiB : room;  // a number to remember
  }
  auto reserved = engine::reserve_kv(fit.options, fit.reservation, left, fit.info);
  if (!reserved.ok()) return too_small(fit, fixed, reserved.error().message);
  if (options.kv_memory_bytes == 0 && fit.info.kv_bytes < fit.options.kv_memory_bytes)  // not more than is of use
    fit.options.kv_memory_bytes = std::min(fit.options.kv_memory_bytes, (fit.info.kv_bytes + kMiB - 1) / kMiB * kMiB);
  fit.core = engine::core_options(fit.options, fit.reservation, fit.info);
  QUIRE_TRY_VOID(quire::check_options(fit.core));
  list_parts(fit, allowance);
  return fit;
}

}  // namespace quire::planning
