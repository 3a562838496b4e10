#pragma once
// Plan: the answers of `quire plan`, in their order: what fits, how many at once, the rate that holds the limits, what
// binds, what to change first, how many replicas. Everything after the first two comes from simulations of the engine's
// own core with a cost model (trial.h); without one the plan ends there.
//
// Deterministic: equal inputs give an equal plan, on any number of threads. Nothing here reads a clock.
//
// Limits. The cost model says how long steps take, so a plan is as good as that; requests end where the load says;
// tiers behind the pool (RAM, files) are not simulated; what clients and network add is not in the latencies. A rate
// found is one at which a run of num_requests holds the limits, for this seed: another seed may differ by some per
// cent.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/planning/binding.h"
#include "quire/planning/fit.h"
#include "quire/planning/load.h"
#include "quire/planning/requests.h"
#include "quire/planning/trial.h"
#include "quire/planning/what_if.h"

namespace quire::planning {

struct Cost {
  std::shared_ptr<const CostModel> model;
  std::string note;  ///< what to know about it; may be empty
};
/// The cost model of an engine that is planned so; an error says why there is none.
using MakeCost = std::function<Result<Cost>(const Fit&)>;

struct PlanInput {
  engine::EngineOptions options;
  Memory memory;
  Load load;
  std::string arrivals = "poisson";
  std::vector<Limit> limits;
  std::optional<double> rate;        ///< that replicas are counted for, requests/s
  MakeCost make_cost;                ///< empty: nothing is simulated
  std::uint64_t num_requests = 600;  ///< of each run; up to kMostRounds times as many if a run would be over too soon
  std::uint64_t seed = 42;
  double precision = 0.03;  ///< of rates, relative
  int threads = 1;
  std::function<void(std::string_view stage, double fraction)> progress;  ///< from the calling thread; may be empty
};

/// Runs are to take so many times as long as the longest request alone.
inline constexpr double kRunLength = 10;
inline constexpr std::uint64_t kMostRounds = 4;

/// A point of the curve of latency against rate, of a run to its end.
struct CurvePoint {
  double rate = 0;
  bool holds = false;
  double tokens_per_second = 0;          ///< of answers
  std::vector<std::uint64_t> limits_ns;  ///< found, for each limit of the input
  std::uint64_t ttft_p50 = 0, ttft_p95 = 0, itl_p50 = 0, itl_p99 = 0;
};

struct Replicas {
  double rate = 0;
  std::int64_t count = 0;  ///< 0: no number of them holds the limits
  double load = 0;         ///< of each: its share of what it could take
};

/// One request at a time with a resource relieved, where a limit breaks even so.
struct AloneRelief {
  Cause cause = Cause::prefill_compute;
  bool holds = false;
  std::vector<std::uint64_t> limits_ns;  ///< found, for each limit of the input
};

struct Performance {
  std::string cost, cost_note;
  std::uint64_t num_requests = 0;  ///< of each run
  Trial alone;
  std::vector<AloneRelief> alone_reliefs;  ///< what helps most first; empty if a request that is alone holds the limits
  std::vector<Limit> limits_alone;         ///< that it would hold, with a tenth to spare; likewise
  Knee knee;
  std::vector<CurvePoint> curve;    ///< by rate; empty without a knee
  std::optional<Binding> binding;   ///< with a knee
  std::vector<WhatIfRow> what_ifs;  ///< likewise, the largest change first
  std::optional<Replicas> replicas;

  bool has_knee() const { return knee.at.rate > 0; }
};

struct Plan {
  Fit fit;
  AtOnce at_once;
  Load load;  ///< what of it fits
  std::vector<Limit> limits;
  std::optional<Performance> performance;
  std::string no_performance;  ///< why there is none
  std::vector<std::string> notes;
};

/// An error: it does not fit, or nothing of the load does.
Result<Plan> make_plan(const PlanInput& input, const model::GgufFile& file);

/// How many servers hold the limits if each holds them up to `capacity` requests/s.
Replicas count_replicas(double rate, double capacity);

}  // namespace quire::planning
