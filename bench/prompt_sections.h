#pragma once
// Sections that serve prompts by the engine with a model.

#include "bench/bench.h"

namespace quire::bench {

/// Time to the first token of a prompt of 2,000 tokens that nobody sent before, against the same one again.
Result<void> warm_prompt(const Options& options, report::Report& report);

}  // namespace quire::bench
