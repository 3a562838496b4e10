#pragma once
// How the prefills of a step share the tokens that the decodes leave.
//
// All to the first in line would let one long prompt hold up everyone behind it for its whole prefill; equal shares
// would make prompts of equal length all finish late. So: half of the budget is offered to prompts that have less left
// than the first in line, shortest first; whatever they do not need goes down the line in order.
//
// Hence the first in line gets at least half of the budget (or all it needs), and a prompt shorter than it starts in
// the step it is admitted, unless shorter ones fill that half.

#include <cstdint>
#include <span>
#include <vector>

namespace quire {

/// remaining [n]: tokens left of each prefill, >= 1, in the order of the queue. Returns the tokens of each for this
/// step [n], 0 included; their sum is min(budget, sum of remaining).
std::vector<std::int32_t> share_prefill_budget(std::span<const std::int32_t> remaining, std::int32_t budget);

}  // namespace quire
