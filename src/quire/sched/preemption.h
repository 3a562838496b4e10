#pragma once
// What becomes of a victim's content, all branches of a request alike.
//
//   swap        blocks that nobody else holds are kept in the RAM tier until the request resumes: nothing is computed
//               again, unless a shared block has been lost meanwhile
//   recompute   nothing is kept for it; what the prefix cache still has when it resumes is found, the rest computed
//
// "auto" swaps where the RAM tier has room, unless computing is cheaper by the rates in the options:
//     blocks * copy_block_ns >= tokens * compute_token_ns
// "swap" swaps where there is room, "recompute" never.

#include <cstdint>
#include <string_view>

#include "quire/base/result.h"
#include "quire/kv/kv_manager.h"

namespace quire {

enum class PreemptionMode : std::uint8_t { automatic, swap, recompute };
/// An error names what was given and the names there are: auto, swap, recompute.
Result<PreemptionMode> parse_preemption(std::string_view name);

/// Swap, or why not.
enum class PreemptionKind : std::uint8_t {
  swap,
  recompute_asked,     ///< the option says so
  recompute_no_tiers,  ///< there is no RAM tier
  recompute_no_room,   ///< it is full of what is kept for others, or being read
  recompute_cheaper,   ///< by the rates
  recompute_refused,   ///< the system refused the memory of a row (sched/scheduler.h); no victim of the policy
};
inline constexpr std::size_t kNumPreemptionKinds = 6;
std::string_view to_string(PreemptionKind kind);

PreemptionKind choose_preemption(PreemptionMode mode, const KeepEstimate& estimate, std::int64_t copy_block_ns,
                                 std::int64_t compute_token_ns);

}  // namespace quire
