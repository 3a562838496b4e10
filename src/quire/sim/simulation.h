#pragma once
// A simulation: a System, a CostModel, a source of requests and a virtual clock in integer nanoseconds. Requests are
// handed to the system at the first step boundary at or after their arrival; a step takes what the cost model says; a
// token appears at the end of its step. Nothing else moves the clock, so equal inputs give equal results everywhere.
//
// Memory is bounded by the requests alive at a time: times go into histograms, steps into samples that are thinned out
// as they become too many.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "quire/sim/histogram.h"
#include "quire/sim/system.h"

namespace quire {

/// Work on one request, in nanoseconds of virtual time since the start.
struct WorkSpan {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::int32_t tokens = 0;
  friend bool operator==(const WorkSpan&, const WorkSpan&) = default;
};

/// Times of one request, nanoseconds of virtual time since the start.
struct RequestRecord {
  RequestId id;
  std::int32_t prompt_tokens = 0, output_tokens = 0, num_preemptions = 0;
  std::int32_t cached_tokens = 0;  ///< of its prompt, found and not computed
  std::uint64_t arrival_ns = 0, start_ns = 0, first_token_ns = 0, finish_ns = 0;
  std::vector<WorkSpan> chunks;             ///< steps that computed of its prompt; none from systems that never cut it
  bool restores_by_reading = false;         ///< what a preemption took was kept elsewhere; false: it is computed again
  std::vector<std::uint64_t> preempted_ns;  ///< when it lost its memory, each time
  std::vector<WorkSpan> restored;           ///< as often: from the first step that computed of it again to the last

  /// A step that computed of it again.
  void add_restored(const WorkSpan& step);
};

/// The state during one step.
struct StepSample {
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::int32_t num_running = 0, num_waiting = 0;
  std::int64_t prefill_tokens = 0, decode_tokens = 0;
  MemoryUse memory;
};

struct SimulationResult;

struct SimulationOptions {
  std::uint64_t max_steps = ~std::uint64_t{0};
  std::size_t max_samples = 4096;             ///< kept; when there are more, every second one goes
  std::size_t max_records = 0;                ///< requests, the first that end, kept one by one for reports
  bool records_blocks = false;                ///< SimulationResult::film
  bool digests_plans = false;                 ///< SimulationResult::digest covers every plan, not only times
  std::uint64_t begin_ns = 0;                 ///< means over steps count from here
  std::uint64_t end_ns = ~std::uint64_t{0};   ///< and to here
  std::uint64_t stop_ns = ~std::uint64_t{0};  ///< no step begins later; what lives then is left unfinished
  /// Stops early once the mean normalised latency must exceed this (s/token), given so many requests; 0: never.
  double hopeless_latency = 0;
  std::uint64_t expected_requests = 0;
  /// Asked every 64 steps: true stops early, with was_hopeless; empty: never.
  std::function<bool(const SimulationResult&)> gives_up;
  /// Called after every step with what it did, for event files and pictures; EngineSystem::plan() is still that step's.
  std::function<void(const StepSample& step, std::span<const RequestChange> changes)> observe;
  std::function<void(std::uint64_t num_finished, std::uint64_t now_ns)> progress;  ///< called every 1,024 steps
};

/// Virtual time ends here, after 292 years.
inline constexpr std::uint64_t kMaxVirtualNs = kLateNs - 1;

/// Sums over steps, weighted by their duration in nanoseconds.
struct WeightedMemory {
  unsigned __int128 pool = 0, written = 0, reserved = 0, unused = 0, rounding = 0;
  unsigned __int128 running = 0, waiting = 0;
  std::uint64_t duration_ns = 0;

  void add(const StepSample& step);
  double share(unsigned __int128 part) const {
    return pool == 0 ? 0 : static_cast<double>(part) / static_cast<double>(pool);
  }
  double free_share() const { return share(pool - written - reserved - unused - rounding); }
  double mean(unsigned __int128 part) const {
    return duration_ns == 0 ? 0 : static_cast<double>(part) / static_cast<double>(duration_ns);
  }
};

struct SimulationResult {
  std::string system, cost;
  std::uint64_t num_requests = 0, num_refused = 0, num_finished = 0, num_preemptions = 0;
  std::string first_refusal;  ///< which request, and why; empty if none was refused
  std::uint64_t num_steps = 0;
  std::uint64_t prompt_tokens = 0;     ///< of requests that ended
  std::uint64_t output_tokens = 0;     ///< of them
  std::uint64_t scheduled_tokens = 0;  ///< tokens of all rows
  std::uint64_t end_ns = 0;            ///< when the last step ended
  std::uint64_t busy_ns = 0;           ///< in steps
  std::int32_t max_running = 0, max_waiting = 0;
  bool was_hopeless = false;     ///< stopped early, see SimulationOptions
  bool ran_out_of_time = false;  ///< stopped, hopeless: a step would end, or a request come, behind kMaxVirtualNs

  Histogram ttft_ns, inter_token_ns, end_to_end_ns, queue_ns;
  Histogram normalized_ns;  ///< end-to-end time over output tokens, nanoseconds a token
  Histogram step_ns;
  Histogram utilisation_per_mille;  ///< written slots of the pool, a step
  WeightedMemory memory;            ///< over the steps in [begin_ns, end_ns) of the options
  std::vector<StepSample> samples;
  std::vector<RequestRecord> records;
  BlockFilm film;                    ///< of systems with blocks, if asked for
  std::int32_t max_step_tokens = 0;  ///< of the system; 0: no limit
  std::uint64_t digest = 0;          ///< of the end of every step, and of the plans if asked for

  /// Mean over requests of the end-to-end time by output tokens, seconds a token.
  double normalized_latency_s() const { return normalized_ns.mean() * 1e-9; }
};

/// Runs until the source is empty and the system idle. Every step takes at least 1 ns.
SimulationResult simulate(System& system, const CostModel& cost, RequestSource& source,
                          const SimulationOptions& options = {});

}  // namespace quire
