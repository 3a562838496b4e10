#include "quire/sim/systems.h"

#include <limits>

#include "quire/kv/paged_kv_manager.h"
#include "quire/kv/reserved_kv_manager.h"
#include "quire/sim/buddy_allocator.h"
#include "quire/sim/engine_system.h"
#include "quire/sim/manager_allocator.h"
#include "quire/sim/reserving_system.h"
#include "quire/sim/static_batch_system.h"

namespace quire {
namespace {

constexpr std::string_view kNames[] = {"quire",       "vattention", "orca-max",     "orca-pow2",
                                       "orca-oracle", "contiguous", "paged-static", "fastertransformer"};

std::unique_ptr<System> reserving(std::string name, ReservationRule rule, const SystemOptions& options,
                                  std::unique_ptr<SlotAllocator> memory) {
  return std::make_unique<ReservingSystem>(ReservingSystem::Options{std::move(name), rule, options.max_sequence,
                                                                    options.core.max_rows, options.core.pool_tokens()},
                                           std::move(memory));
}

/// As many page-groups as the pool's bytes hold, the last tokens' worth of a group left out.
Result<CoreOptions> vattention_options(const SystemOptions& options) {
  CoreOptions core = options.core;
  if (options.page_group_bytes < 1)
    return fail("found page-groups of ", options.page_group_bytes, " bytes, wanted some");
  core.kv_manager = "vattention";
  core.block_size = kKvTileTokens;
  core.tile_bytes = kKvTileTokens * options.token_bytes_per_tensor;
  core.page_group_bytes = options.page_group_bytes;
  core.num_kv_tensors = options.num_kv_tensors;
  core.max_mappings = std::numeric_limits<std::int32_t>::max();
  const std::int64_t groups = options.slots() * options.token_bytes_per_tensor / options.page_group_bytes;
  if (groups < 1 || groups > std::numeric_limits<std::int32_t>::max())
    return fail("found room for ", groups, " page-groups of ", options.page_group_bytes, " bytes, wanted at least 1");
  core.num_blocks = static_cast<std::int32_t>(groups);
  return core;
}

}  // namespace

std::span<const std::string_view> system_names() { return kNames; }

Result<std::unique_ptr<System>> make_system(std::string_view name, const SystemOptions& options) {
  QUIRE_TRY_VOID(check_options(options.core));
  if (name == "quire" || name == "vattention") {
    CoreOptions core = options.core;
    if (name == "vattention") {
      QUIRE_TRY(core, vattention_options(options));
    }
    QUIRE_TRY(auto system, EngineSystem::create(core));
    return std::unique_ptr<System>(std::move(system));
  }
  const std::int64_t slots = options.slots();
  if (options.max_sequence < 1 || options.max_sequence > slots)
    return fail("found a longest sequence of ", options.max_sequence, " tokens, wanted 1 to the pool, ", slots);
  const auto buddies = [&] { return std::make_unique<BuddyAllocator>(slots); };
  const CoreOptions& core = options.core;
  if (name == "orca-max") return reserving("Orca (Max)", ReservationRule::maximum, options, buddies());
  if (name == "orca-pow2") return reserving("Orca (Pow2)", ReservationRule::power_of_two, options, buddies());
  if (name == "orca-oracle") return reserving("Orca (Oracle)", ReservationRule::exact, options, buddies());
  if (name == "contiguous")
    return reserving("contiguous", ReservationRule::maximum, options,
                     std::make_unique<ManagerAllocator>(
                         std::make_unique<ReservedKvManager>(core.num_blocks, core.block_size, options.max_sequence)));
  if (name == "paged-static")
    return reserving(
        "paged, whole length held", ReservationRule::written, options,
        std::make_unique<ManagerAllocator>(std::make_unique<PagedKvManager>(core.num_blocks, core.block_size)));
  if (name == "fastertransformer")
    return std::unique_ptr<System>(std::make_unique<StaticBatchSystem>(
        StaticBatchSystem::Options{"FasterTransformer", slots, options.max_sequence}));
  std::string known;
  for (std::string_view each : kNames) known += cat(known.empty() ? "" : ", ", each);
  return fail("found '", name, "', wanted one of ", known);
}

}  // namespace quire
