#pragma once
// What paging buys: the same load, served by the engine with paged KV memory and with the whole context reserved for
// every request, in the same memory.

#include "bench/bench.h"

namespace quire::bench {

Result<void> paged_against_reserved(const Options& options, report::Report& report);

}  // namespace quire::bench
