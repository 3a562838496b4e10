#include "quire/sched/preemption.h"

namespace quire {

Result<PreemptionMode> parse_preemption(std::string_view name) {
  if (name == "auto") return PreemptionMode::automatic;
  if (name == "swap") return PreemptionMode::swap;
  if (name == "recompute") return PreemptionMode::recompute;
  return fail("preemption '", name, "' is not known; there are: auto, swap, recompute");
}

std::string_view to_string(PreemptionKind kind) {
  switch (kind) {
    case PreemptionKind::swap:
      return "swap";
    case PreemptionKind::recompute_asked:
      return "recompute_asked";
    case PreemptionKind::recompute_no_tiers:
      return "recompute_no_tiers";
    case PreemptionKind::recompute_no_room:
      return "recompute_no_room";
    case PreemptionKind::recompute_cheaper:
      return "recompute_cheaper";
    case PreemptionKind::recompute_refused:
      return "recompute_refused";
  }
  return "unknown";
}

PreemptionKind choose_preemption(PreemptionMode mode, const KeepEstimate& estimate, std::int64_t copy_block_ns,
                                 std::int64_t compute_token_ns) {
  if (mode == PreemptionMode::recompute) return PreemptionKind::recompute_asked;
  if (!estimate.has_tiers) return PreemptionKind::recompute_no_tiers;
  if (!estimate.fits) return PreemptionKind::recompute_no_room;
  const bool rates_are_known = copy_block_ns > 0 && compute_token_ns > 0;
  const bool is_dearer = estimate.num_blocks * copy_block_ns >= estimate.num_tokens * compute_token_ns;
  if (mode == PreemptionMode::automatic && rates_are_known && estimate.num_blocks > 0 && is_dearer)
    return PreemptionKind::recompute_cheaper;
  return PreemptionKind::swap;
}

}  // namespace quire
