#pragma once
// The scheduler's policies: in which order requests wait and are served, and who gives up memory when it runs out. A
// policy is a pure function of what it is shown; it keeps no state and knows no clock, so a recorded run replays under
// it.
//
// Three rules stand above every policy (scheduler.h): a request that was preempted kMaxPreemptions times comes before
// all others and is no victim any more; next come, first come first, those that have aged; and whoever is first in the
// queue is not overtaken because it needs more memory.
//
// Queue policies; of two that are equal the one that was preempted comes first, then the earlier arrival:
//     fcfs                    by arrival; the priority is ignored
//     priority                the lower value first
//     shortest-prompt         the shorter prompt first, as submitted
//     longest-cached-prefix   the longer prefix in the prefix cache first, as last looked up; without a cache, fcfs
// So a preempted request keeps its place under fcfs and, under the others, at least its place among equals: one that
// has never started does not come between. Under longest-cached-prefix what it computed counts, as far as the cache
// still has it.
//
// Victim policies; of two that are equal the later arrival yields:
//     latest-arrived    whoever came first is disturbed least
//     oldest            the earliest arrival
//     lowest-priority   the highest value
//     most-blocks       the most memory, shared blocks included: the fewest requests are disturbed
//     least-progress    the fewest generated tokens, then the fewest computed positions: the least work is lost
//
// Costs. A comparison is O(1). Inserting or taking out one of n waiting requests is O(log n), and no step sorts or
// walks the queue: a step visits those that it admits or passes over, and at most kMaxAgedPerStep that age and
// kMaxLookedUp whose cached prefix is looked up again. Choosing a victim visits the running requests.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "quire/base/ids.h"
#include "quire/base/result.h"

namespace quire {

/// What a queue policy may look at. Constant while a request is in the queue, or in the running list, so that these
/// stay in order: whoever changes it takes the request out and puts it back.
struct RequestView {
  RequestId request;
  std::uint64_t arrival;           ///< 1, 2, 3, ... in the order of submission; different for every request
  std::int32_t priority;           ///< as submitted; lower is more urgent
  std::int32_t num_preemptions;    ///< so far
  std::int32_t prompt_tokens;      ///< >= 1
  std::int32_t cached_tokens = 0;  ///< of its tokens: in the prefix cache when last looked up (scheduler.h says when)
};

/// What a victim policy may look at: a running request, as it is when the step is planned.
struct RunningView {
  RequestView request;
  std::int64_t num_blocks = 0;     ///< that it holds, shared ones included
  std::int32_t num_generated = 0;  ///< tokens
  std::int32_t num_computed = 0;   ///< positions, found ones included
};

/// Which requests are served first: the order of the queue, and of memory and budget among the running.
class QueuePolicy {
 public:
  virtual ~QueuePolicy() = default;
  /// A strict total order.
  virtual bool serves_before(const RequestView& a, const RequestView& b) const = 0;
  /// True if it looks at cached_tokens: then the scheduler looks them up.
  virtual bool reads_cached_tokens() const { return false; }
};

/// Who is preempted first when blocks run out.
class VictimPolicy {
 public:
  virtual ~VictimPolicy() = default;
  /// A strict total order; its first running request that is not exempt is the victim.
  virtual bool yields_before(const RunningView& a, const RunningView& b) const = 0;
};

/// An error names what was given and the names there are.
Result<std::unique_ptr<QueuePolicy>> make_queue_policy(std::string_view name);
Result<std::unique_ptr<VictimPolicy>> make_victim_policy(std::string_view name);

/// All names, the default first.
std::span<const std::string_view> queue_policy_names();
std::span<const std::string_view> victim_policy_names();

}  // namespace quire
