#pragma once
// The prediction for three workloads beside the real engine: chats at 70 % of what it can take, a burst with too little
// KV memory for it, prompts with shared beginnings. A section calibrates, serves the same requests --rounds times (at
// most 5) and calibrates again; if the two calibrations differ by more than 3 %, its figures have no target and say so.

#include "bench/bench.h"

namespace quire::bench {

Result<void> fidelity_of_chat(const Options& options, report::Report& report);
Result<void> fidelity_of_a_burst(const Options& options, report::Report& report);
Result<void> fidelity_of_shared_prefixes(const Options& options, report::Report& report);

}  // namespace quire::bench
