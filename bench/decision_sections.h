#pragma once
// Sections about the deciding half: what a step, a fork and a block cost without a model. sched runs the first ones, kv
// all of them.

#include "bench/bench.h"

namespace quire::bench {

/// A step of 256 requests in decode, with and without a command log.
Result<void> scheduler_step(const Options& options, report::Report& report);
/// The same with 1,000 and 4,096 more requests that wait, against none.
Result<void> scheduler_waiting(const Options& options, report::Report& report);
/// The same with a pool of ten times as many blocks.
Result<void> scheduler_pool(const Options& options, report::Report& report);
/// Giving out and taking back a block, for pools of 1,000 to 1,000,000 blocks.
Result<void> block_allocation(const Options& options, report::Report& report);
/// Forking a sequence of 2,000 tokens.
Result<void> sequence_fork(const Options& options, report::Report& report);
/// A request whose whole prompt is cached, from submit to its end, for each token that was found.
Result<void> prefix_hit(const Options& options, report::Report& report);

}  // namespace quire::bench
