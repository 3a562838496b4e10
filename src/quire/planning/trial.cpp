#include "quire/planning/trial.h"

#include <algorithm>
#include <utility>

#include "quire/base/check.h"
#include "quire/planning/cost_parts.h"
#include "quire/sim/capacity.h"
#include "quire/sim/engine_system.h"

namespace quire::planning {
namespace {

constexpr double kKeepsUp = 0.1;  ///< of the time of arrivals
constexpr std::uint64_t kArrivalStream = 3;

/// Durations of steps by what the core counted in them.
class StepMeter {
 public:
  StepMeter(const EngineCore& core, std::int64_t budget) : core_(core), budget_(budget) {}

  void see(const StepSample& step) {
    const CoreCounters& now = core_.counters();
    const auto ns = static_cast<double>(step.end_ns - step.begin_ns);
    if (now.short_of_blocks > blocks_ || now.preemptions > preemptions_) short_of_blocks_ += ns;
    if (now.short_of_rows > rows_) short_of_rows_ += ns;
    if (step.prefill_tokens > 0 && step.prefill_tokens + step.decode_tokens >= budget_) full_budget_ += ns;
    if (step.num_waiting > 0) waiting_ += ns;
    blocks_ = now.short_of_blocks;
    rows_ = now.short_of_rows;
    preemptions_ = now.preemptions;
  }

  StepShares shares(const SimulationResult& result, const MeteredCost& cost) const {
    const auto busy = static_cast<double>(std::max<std::uint64_t>(1, result.busy_ns));
    return {.busy = busy / static_cast<double>(std::max<std::uint64_t>(1, result.end_ns)),
            .short_of_blocks = short_of_blocks_ / busy,
            .short_of_rows = short_of_rows_ / busy,
            .full_budget = full_budget_ / busy,
            .prefill = cost.prefill_ns() / busy,
            .decode = cost.decode_ns() / busy,
            .waiting = waiting_ / busy};
  }

 private:
  const EngineCore& core_;
  const std::int64_t budget_;
  std::uint64_t blocks_ = 0, rows_ = 0, preemptions_ = 0;
  double short_of_blocks_ = 0, short_of_rows_ = 0, full_budget_ = 0, waiting_ = 0;
};

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// Values of the metric that a whole run has.
std::uint64_t num_values(Metric metric, const Scenario& scenario) {
  if (metric != Metric::itl) return scenario.num_requests;
  std::uint64_t count = 0;
  for (std::uint64_t i = 0; i < scenario.num_requests; ++i)
    count += static_cast<std::uint64_t>(
                 scenario.load->requests[static_cast<std::size_t>(i % scenario.load->requests.size())].output_tokens) -
             1;
  return count;
}

/// Stops a run once more values lie above a limit than the whole run may have.
std::function<bool(const SimulationResult&)> stop_when_broken(const Scenario& scenario) {
  struct Allowed {
    Limit limit;
    std::uint64_t above;
  };
  std::vector<Allowed> all;
  for (const Limit& limit : scenario.limits)
    if (limit.per_mille != Limit::kMean)
      all.push_back({limit, num_values(limit.metric, scenario) * (1000 - limit.per_mille) / 1000});
  return [all](const SimulationResult& result) {
    return std::any_of(all.begin(), all.end(), [&](const Allowed& one) {
      return times_of(one.limit.metric, result).count_above(one.limit.limit_ns) > one.above;
    });
  };
}

std::string find_broken(const Scenario& scenario, const Trial& trial) {
  for (const Limit& limit : scenario.limits)
    if (found_ns(limit, trial.result) > limit.limit_ns) return name_of(limit);
  if (trial.result.was_hopeless) return "stopped early";
  const std::uint64_t drained = trial.result.end_ns - std::min(trial.result.end_ns, trial.last_arrival_ns);
  const auto slack = static_cast<std::uint64_t>(kKeepsUp * static_cast<double>(trial.last_arrival_ns));
  const std::uint64_t twice = std::min(scenario.alone_ns, ~std::uint64_t{0} / 2) * 2;
  return drained > std::max(slack, twice) ? "falls behind" : "";
}

Trial run(const Scenario& scenario, ArrivalProcess arrivals, Completeness completeness) {
  auto system = EngineSystem::create(scenario.core);
  QUIRE_CHECK(system.ok(), system.error().message);  // the fit has checked the options
  const MeteredCost cost(*scenario.cost);
  LoadSource source(*scenario.load, scenario.num_requests, std::move(arrivals),
                    random_at(scenario.seed, kArrivalStream));
  StepMeter meter((*system)->core(), scenario.core.token_budget);
  SimulationOptions options{.max_samples = 0};
  options.observe = [&meter](const StepSample& step, std::span<const RequestChange>) { meter.see(step); };
  if (completeness == Completeness::stops_when_broken) options.gives_up = stop_when_broken(scenario);
  Trial trial;
  trial.result = simulate(**system, cost, source, options);
  trial.last_arrival_ns = source.last_arrival_ns();
  trial.shares = meter.shares(trial.result, cost);
  const CoreCounters& counters = (*system)->core().counters();
  trial.preemptions = share(counters.preemptions, trial.result.num_requests);
  trial.recomputed = share(counters.recomputed_tokens, counters.computed_tokens);
  trial.cached = share(counters.prefix_hits, counters.prefix_queries);
  return trial;
}

}  // namespace

Trial run_trial(const Scenario& scenario, double rate, Completeness completeness) {
  auto arrivals = ArrivalProcess::parse(scenario.arrivals, rate);
  // Whoever made the scenario has parsed the text: it is the rate that is out of range.
  if (!arrivals.ok()) return {.rate = rate, .broken = "what rates are simulated, 0.000001 to 1e9 a second,"};
  Trial trial = run(scenario, *std::move(arrivals), completeness);
  trial.rate = rate;
  trial.broken = find_broken(scenario, trial);
  trial.holds = trial.broken.empty();
  return trial;
}

Trial run_alone(const Scenario& scenario) {
  constexpr std::uint64_t kMost = 100;
  constexpr double kRate = 1e-6;  // one in twelve days
  Scenario alone = scenario;
  alone.num_requests = std::min(alone.num_requests, kMost);
  alone.arrivals = "even";
  alone.alone_ns = ~std::uint64_t{0};
  return run_trial(alone, kRate, Completeness::full);
}

double saturated_rate(const Scenario& scenario) {
  Scenario all = scenario;
  all.num_requests = std::min<std::uint64_t>(all.num_requests, 200);
  all.arrivals = "at-once";
  const Trial trial = run_trial(all, 1, Completeness::full);
  return static_cast<double>(all.num_requests) / (static_cast<double>(trial.result.end_ns) * 1e-9);
}

Knee find_knee(const Scenario& scenario, double first_rate, double precision) {
  Knee knee;
  const auto is_good = [&](double rate) {
    knee.tried.push_back(rate);
    Trial trial = run_trial(scenario, rate, Completeness::stops_when_broken);
    const bool holds = trial.holds;
    if (holds && rate > knee.at.rate) knee.at = std::move(trial);
    if (!holds && (knee.above.rate == 0 || rate < knee.above.rate)) knee.above = std::move(trial);
    return holds;
  };
  find_highest_rate(is_good, first_rate, precision);
  return knee;
}

double find_knee_again(const Scenario& scenario, const Knee& known, double precision) {
  const auto is_same = [&](const Trial& trial) {
    return run_trial(scenario, trial.rate, Completeness::stops_when_broken).result.digest == trial.result.digest;
  };
  if (known.above.rate > 0 && is_same(known.above) && is_same(known.at)) return known.at.rate;
  return find_knee(scenario, known.at.rate, precision).at.rate;
}

}  // namespace quire::planning
