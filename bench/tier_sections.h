#pragma once
// Sections about the KV tiers behind the pool.

#include "bench/bench.h"

namespace quire::bench {

/// Computing the KV of 64 to 4,096 tokens again, against swapping it to RAM and back, and against reading its files.
Result<void> swap_against_recompute(const Options& options, report::Report& report);

}  // namespace quire::bench
