#pragma once
// The prediction for three workloads beside the real engine: chats at 70 % of what it can take, a burst with too little
// KV memory for it, prompts with shared beginnings. A section calibrates and serves the same requests in turn, --rounds
// times (at most 5), and calibrates once more; all of the calibration makes the prediction. If its first and last parts
// differ by more than 3 %, the run is discarded and, with three rounds or more, tried again, three times in all; what
// the last attempt found is printed in any case, without targets if it was discarded.

#include "bench/bench.h"

namespace quire::bench {

Result<void> fidelity_of_chat(const Options& options, report::Report& report);
Result<void> fidelity_of_a_burst(const Options& options, report::Report& report);
Result<void> fidelity_of_shared_prefixes(const Options& options, report::Report& report);

}  // namespace quire::bench
