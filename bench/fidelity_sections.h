#pragma once
// The prediction for three workloads beside the real engine: chats at 70 % of what it can take, a burst with too little
// KV memory for it, prompts with shared beginnings. A section serves the same requests --rounds times (at most 5), each
// run between two slices of calibration that make its prediction. A run whose two slices differ by more than 3 % is
// discarded and another one made, up to twice as many runs as rounds. If none counts, the figures of the discarded ones
// are shown, without targets, and say so.

#include "bench/bench.h"

namespace quire::bench {

Result<void> fidelity_of_chat(const Options& options, report::Report& report);
Result<void> fidelity_of_a_burst(const Options& options, report::Report& report);
Result<void> fidelity_of_shared_prefixes(const Options& options, report::Report& report);

}  // namespace quire::bench
