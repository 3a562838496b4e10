#pragma once
// Totals since the start, for metrics. They decide nothing.
//
// I9: they are what counting events gives, and a request's prompt is what it found cached and what it computed
// (compared at the end of every run of core/shadow_run.h).

#include <array>
#include <cstdint>

#include "quire/sched/preemption.h"

namespace quire {

struct CoreCounters {
  std::uint64_t steps = 0;
  std::uint64_t submitted = 0;              ///< accepted
  std::uint64_t refused = 0;                ///< not counted in submitted
  std::uint64_t visited_requests = 0;       ///< by planning: one for each look at a running or waiting request
  std::array<std::uint64_t, 5> finished{};  ///< by FinishReason
  std::uint64_t preemptions = 0;
  std::array<std::uint64_t, kNumPreemptionKinds> preemptions_by{};  ///< by PreemptionKind
  std::uint64_t prompt_tokens = 0;                                  ///< of accepted requests
  std::uint64_t computed_tokens = 0;                                ///< tokens of all rows, proposals included
  std::uint64_t proposed_tokens = 0;                                ///< of these: proposals,
  std::uint64_t accepted_tokens = 0;                                ///< and of these: such as came true
  std::uint64_t recomputed_tokens = 0;  ///< of these: positions computed again after a preemption
  std::uint64_t generated_tokens = 0;   ///< emitted; stop tokens are not. What came true behind a stop string is
  std::uint64_t copied_blocks = 0;      ///< copy-on-write, and partly cached blocks
  std::uint64_t short_of_blocks = 0;    ///< steps in which a request of the queue did not start for want of blocks
  std::uint64_t short_of_rows = 0;      ///< for want of rows: as many run as may
  std::uint64_t prefix_queries = 0;     ///< tokens of admitted requests, those after a preemption included
  std::uint64_t prefix_hits = 0;        ///< of these: found in the prefix cache

  std::uint64_t finished_total() const {
    std::uint64_t total = 0;
    for (std::uint64_t count : finished) total += count;
    return total;
  }
};

}  // namespace quire
