#pragma once
// Sections about attention in decode; attn_decode runs all, kv those about paging.

#include "bench/bench.h"

namespace quire::bench {

/// GB/s of K and V against plain reading, by number of sequences and context.
Result<void> decode_bandwidth(const Options& options, report::Report& report);
/// Blocks in random order against blocks in order, in the same pool.
Result<void> decode_block_order(const Options& options, report::Report& report);
/// Blocks of 8, 32 and 64 tokens against 16.
Result<void> decode_block_size(const Options& options, report::Report& report);
/// bf16, int8 and f32 against f16: the same tokens, so fewer or more bytes.
Result<void> decode_kv_type(const Options& options, report::Report& report);
/// Time of a step at twice the context against once.
Result<void> decode_growth(const Options& options, report::Report& report);

}  // namespace quire::bench
