#pragma once
// The scheduler's policies: in which order requests wait and are served, and who gives up memory when it runs out. A
// policy is a pure function of what it is shown; it keeps no state, so a recorded run replays under it.
//
// Two rules stand above every policy (scheduler.h): a request that was preempted kMaxPreemptions times comes before all
// others and is no victim any more.

#include <cstdint>
#include <memory>
#include <string_view>

#include "quire/base/ids.h"
#include "quire/base/result.h"

namespace quire {

/// What a policy may look at. Constant while a request waits, so that the queue can be kept in order.
struct RequestView {
  RequestId request;
  std::uint64_t arrival;         ///< 1, 2, 3, ... in the order of submission; different for every request
  std::int32_t priority;         ///< as submitted
  std::int32_t num_preemptions;  ///< so far
  std::int32_t prompt_tokens;
};

/// Which requests are served first: the order of the queue, and of memory and budget among the running.
class QueuePolicy {
 public:
  virtual ~QueuePolicy() = default;
  /// A strict total order.
  virtual bool serves_before(const RequestView& a, const RequestView& b) const = 0;
};

/// Who is preempted first when blocks run out.
class VictimPolicy {
 public:
  virtual ~VictimPolicy() = default;
  /// A strict total order; its first running request that is not exempt is the victim.
  virtual bool yields_before(const RequestView& a, const RequestView& b) const = 0;
};

/// First come, first served: by arrival, whatever the priority. A preempted request keeps its place.
class FcfsQueue final : public QueuePolicy {
 public:
  bool serves_before(const RequestView& a, const RequestView& b) const override { return a.arrival < b.arrival; }
};

/// The latest arrival yields: whoever came first is disturbed least.
class LatestArrivedVictim final : public VictimPolicy {
 public:
  bool yields_before(const RequestView& a, const RequestView& b) const override { return a.arrival > b.arrival; }
};

/// "fcfs".
Result<std::unique_ptr<QueuePolicy>> make_queue_policy(std::string_view name);
/// "latest-arrived".
Result<std::unique_ptr<VictimPolicy>> make_victim_policy(std::string_view name);

}  // namespace quire
