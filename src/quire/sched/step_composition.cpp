#include "quire/sched/step_composition.h"

#include <cstddef>

namespace quire {
namespace {

/// In the order of the enumeration.
constexpr std::string_view kNames[] = {"mixed", "prefill-first", "static-gate"};

}  // namespace

Result<StepComposition> parse_step_composition(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kNames); ++i)
    if (kNames[i] == name) return static_cast<StepComposition>(i);
  return fail("step_composition is '", name, "'; there are: mixed, prefill-first, static-gate");
}

std::span<const std::string_view> step_composition_names() { return kNames; }

}  // namespace quire
