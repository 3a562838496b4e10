#pragma once
// Sections about vAttention, the memory manager without blocks, against paging.

#include "bench/bench.h"

namespace quire::bench {

/// Attention over blocks in random order against the loop over contiguous memory: what paging costs.
Result<void> paged_against_contiguous(const Options& options, report::Report& report);
/// Mapping and unmapping page-groups, by their size.
Result<void> page_group_mapping(const Options& options, report::Report& report);
/// Memory that a hundred sequences hold, by size of page-group, against blocks.
Result<void> page_group_memory(const Options& options, report::Report& report);

}  // namespace quire::bench
