#include "quire/sim/systems.h"

#include "quire/kv/paged_kv_manager.h"
#include "quire/kv/reserved_kv_manager.h"
#include "quire/sim/buddy_allocator.h"
#include "quire/sim/engine_system.h"
#include "quire/sim/manager_allocator.h"
#include "quire/sim/reserving_system.h"
#include "quire/sim/static_batch_system.h"

namespace quire {
namespace {

constexpr std::string_view kNames[] = {"quire",      "orca-max",     "orca-pow2",        "orca-oracle",
                                       "contiguous", "paged-static", "fastertransformer"};

std::unique_ptr<System> reserving(std::string name, ReservationRule rule, const SystemOptions& options,
                                  std::unique_ptr<SlotAllocator> memory) {
  return std::make_unique<ReservingSystem>(
      ReservingSystem::Options{std::move(name), rule, options.max_sequence, options.core.max_rows}, std::move(memory));
}

}  // namespace

std::span<const std::string_view> system_names() { return kNames; }

Result<std::unique_ptr<System>> make_system(std::string_view name, const SystemOptions& options) {
  QUIRE_TRY_VOID(check_options(options.core));
  if (name == "quire") {
    QUIRE_TRY(auto system, EngineSystem::create(options.core));
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
