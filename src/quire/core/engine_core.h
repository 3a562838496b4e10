#pragma once
// EngineCore: the deciding half of the engine in one object. It owns the KV bookkeeping and the scheduler and knows
// nothing of models, threads, clocks or sockets. The engine, the simulator and the tests drive the same code:
//
//     auto core = EngineCore::create(options);          // Result: options may be wrong
//     if (auto refusal = core->submit(request)) ...     // refused at once, with the numbers
//     while (core->has_work()) {
//       const BatchPlan& plan = core->plan_step();      // valid until the next plan_step
//       StepResult result = executor.execute(plan);
//       for (const Event& event : core->commit(result)) ...
//       core->cancel(id);                               // commands enter here, between commit and plan_step
//     }
//
// I11, deterministic: the same options and the same sequence of calls give the same plans, on every machine. Every call
// that changes something is a command; a CommandSink receives them as bytes (core/command_log.h), and replay() of those
// bytes gives the same plans.
//
// Invariants (validate, after each call):
//  E1  those of the KV manager; and the sequences that hold memory are exactly those of running requests' branches
//  E2  (I8) every live request is in exactly one of: queue (waiting, preempted), running
//  E3  (I8) a finished request has ended once, with one reason, each of its branches before it, and holds no memory
//  E4  (I7) if has_work(), the next plan has at least one row, or a read from a file is in flight after it
//  E5  (I10) a request is preempted at most kMaxPreemptions times (sched/scheduler.h)
//
// Thread-safety: none; one thread at a time. Commands (all but plan_step and commit) must not come between plan_step
// and commit: whoever runs the steps keeps them until then.
//
// Events come from take_events() (or commit) after any call.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/result.h"
#include "quire/core/executor.h"
#include "quire/kv/kv_manager.h"
#include "quire/sched/batch_plan.h"
#include "quire/sched/counters.h"
#include "quire/sched/events.h"
#include "quire/sched/options.h"
#include "quire/sched/request.h"

namespace quire {

class CommandSink;
class Scheduler;

class EngineCore {
 public:
  /// An error names the option, its value and what is allowed. `sink` (may be null) must outlive the core. `identity`
  /// names the cached blocks if options.prefix_cache is set. It decides nothing as long as its hash does not collide,
  /// so it is not part of the log.
  static Result<std::unique_ptr<EngineCore>> create(const CoreOptions& options, CommandSink* sink = nullptr,
                                                    const CacheIdentity& identity = {});
  ~EngineCore();

  // -- commands --

  /// nullopt: accepted, and its events will come. Otherwise it can never run and leaves no trace.
  [[nodiscard]] std::optional<Refusal> submit(CoreRequest request);

  /// Ends the request as `cancelled`. False if no live request has this id (it may just have finished): no effect.
  bool cancel(RequestId request);

  /// Ends a branch of the request for a reason found outside, such as a stop string: a request without others ends with
  /// it, a beam (by its rank in the last BeamsAdvanced) becomes a finished hypothesis. False if there is no such live
  /// branch; those of a request that has not had its first tokens do not exist.
  bool finish_branch(RequestId request, std::int32_t branch, FinishReason reason = FinishReason::stopped_by_caller);

  /// Block files that were found, before the first request.
  void note_files(const std::vector<BlockKey>& keys);

  /// A write or read of an earlier plan has ended, well or not. Transfers may end in any order; what is not in flight
  /// is ignored.
  void end_transfer(const TransferEnd& end);

  // -- steps --

  /// Decides the next step and takes the memory for it. Has rows if has_work(), but for E4; may be called without
  /// work, to let the executor forget the dropped sequences and to start transfers. Valid until the next call of
  /// plan_step.
  const BatchPlan& plan_step();

  /// The outcome of the plan: result.rows.size() must be plan.rows.size(), and the rows as sched/row_result.h has them.
  /// Returns take_events().
  std::vector<Event> commit(const StepResult& result);

  /// Events since the last call, in order: of commit, of cancel and finish, of preemptions and starts while planning.
  std::vector<Event> take_events();

  // -- state --

  bool has_work() const;             ///< any live request
  std::int32_t num_waiting() const;  ///< in the queue: waiting and preempted
  std::int32_t num_running() const;
  std::int32_t num_preempted() const;  ///< those of num_waiting() that had started
  KvCapacity kv_capacity() const;
  std::int32_t num_reads_in_flight() const;  ///< from files; after a plan without rows, nothing goes on until one ends
  bool has_transfers_to_start() const;       ///< a plan would start one, even without work
  const CoreOptions& options() const;
  const CoreCounters& counters() const;

  /// Generated tokens of a live request so far, of all branches; nullopt if there is none with this id.
  std::optional<std::int32_t> num_generated(RequestId request) const;

  /// The first violated invariant, or nullopt; for tests and debugging.
  std::optional<std::string> validate() const;

  /// The memory manager, for tests and reports.
  const KvManager& kv() const;

 private:
  EngineCore(const CoreOptions& options, CommandSink* sink, const CacheIdentity& identity);

  CommandSink* sink_;
  std::unique_ptr<KvManager> kv_;
  std::unique_ptr<Scheduler> scheduler_;
  BatchPlan plan_;
  bool plan_is_open_ = false;  ///< planned, not committed
};

}  // namespace quire
