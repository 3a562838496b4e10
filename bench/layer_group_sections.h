#pragma once
// Sections about layer groups: what a context costs in the grouped and in the uniform layout. The deciding half alone,
// with the layers of Gemma 3 270M; no model is needed, and nothing is timed.

#include "bench/bench.h"

namespace quire::bench {

/// KV bytes that one sequence of 1k, 4k and 16k tokens holds, and the most while it was prefilled in chunks of 512.
Result<void> layer_group_memory(const Options& options, report::Report& report);

}  // namespace quire::bench
