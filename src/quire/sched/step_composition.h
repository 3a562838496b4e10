#pragma once
// What a step is composed of: the third policy beside the queue's order and the victim.
//
//     mixed          decodes first, then prefills share what they leave of the token budget (the default)
//     prefill-first  while there are prefills, running ones or such as can be admitted, a step computes nothing else;
//                    otherwise decodes. As vLLM did before chunked prefill; for comparison
//     static-gate    mixed, but nobody is admitted while anybody runs: request-level batches; for comparison
//
// Under prefill-first a decode waits only while prompts fit beside it: at most until the pool or max_rows is full.

#include <cstdint>
#include <span>
#include <string_view>

#include "quire/base/result.h"

namespace quire {

enum class StepComposition : std::uint8_t { mixed, prefill_first, static_gate };

/// An error names what was given and the names there are.
Result<StepComposition> parse_step_composition(std::string_view name);

/// All names, the default first.
std::span<const std::string_view> step_composition_names();

}  // namespace quire
