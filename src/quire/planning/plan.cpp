#include "quire/planning/plan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "quire/base/cat.h"
#include "quire/base/thread_pool.h"

namespace quire::planning {
namespace {

constexpr double kCurve[] = {0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5};  ///< of the knee's rate
/// Rates less apart than this share are the same: the search is no finer, and another seed moves them as much.
constexpr double kSameRate = 0.03;

/// Runs the jobs on all threads, each once; which thread runs which does not matter to what they do.
void run_jobs(ThreadPool& pool, const std::vector<std::function<void()>>& jobs,
              const std::function<void(double)>& progress) {
  std::atomic<std::size_t> done{0};
  pool.run([&](Worker& worker) {
    worker.for_each(static_cast<std::int64_t>(jobs.size()), 1, [&](std::int64_t i) {
      jobs[static_cast<std::size_t>(i)]();
      const std::size_t count = ++done;
      if (worker.index() == 0) progress(static_cast<double>(count) / static_cast<double>(jobs.size()));
    });
  });
}

CurvePoint point_of(const Trial& trial, const std::vector<Limit>& limits) {
  const SimulationResult& found = trial.result;
  CurvePoint point{.rate = trial.rate, .holds = trial.holds};
  point.tokens_per_second =
      found.end_ns == 0 ? 0 : static_cast<double>(found.output_tokens) * 1e9 / static_cast<double>(found.end_ns);
  for (const Limit& limit : limits) point.limits_ns.push_back(found_ns(limit, found));
  point.ttft_p50 = found.ttft_ns.quantile(500);
  point.ttft_p95 = found.ttft_ns.quantile(950);
  point.itl_p50 = found.inter_token_ns.quantile(500);
  point.itl_p99 = found.inter_token_ns.quantile(990);
  return point;
}

std::int64_t longest(const Load& load) {
  std::int64_t most = 0;
  for (const RequestSpec& request : load.requests)
    most = std::max<std::int64_t>(most, std::int64_t{request.prompt_tokens} + request.output_tokens);
  return most;
}

/// Without the tiers and speculation, which are not simulated.
CoreOptions simulated(CoreOptions core) {
  core.kv_ram_frames = 0;
  core.kv_files = false;
  core.preemption = "recompute";
  core.num_speculative_tokens = 0;
  return core;
}

/// What a plan does once there is a cost model.
class Planner {
 public:
  Planner(const PlanInput& input, const model::GgufFile& file, const Plan& plan, const Cost& cost)
      : input_(input), file_(file), plan_(plan), pool_(std::max(1, input.threads)) {
    scenario_.core = simulated(plan.fit.core);
    scenario_.cost = cost.model;
    scenario_.load = &plan.load;
    scenario_.arrivals = input.arrivals;
    scenario_.limits = input.limits;
    scenario_.num_requests = input.num_requests;
    scenario_.seed = input.seed;
    out_.cost = cost.model->description();
    out_.cost_note = cost.note;
  }

  Performance run() {
    tell("one request at a time", 0);
    out_.alone = run_alone(scenario_);
    scenario_.alone_ns = out_.alone.result.end_to_end_ns.max();
    if (!out_.alone.holds) {
      explain_alone();
    } else {
      tell("the rate that holds the limits", 0);
      const double most = saturated_rate(scenario_);
      lengthen_runs(most);
      out_.knee = find_knee(scenario_, 0.8 * most, input_.precision);
    }
    out_.num_requests = scenario_.num_requests;
    if (out_.has_knee()) explore();
    if (input_.rate) out_.replicas = count_replicas(*input_.rate, out_.knee.at.rate);
    return std::move(out_);
  }

 private:
  void tell(std::string_view stage, double fraction) const {
    if (input_.progress) input_.progress(stage, fraction);
  }

  std::vector<std::uint64_t> found_limits(const Trial& trial) const {
    std::vector<std::uint64_t> found;
    for (const Limit& limit : input_.limits) found.push_back(found_ns(limit, trial.result));
    return found;
  }

  /// No rate can hold what a request that is alone breaks: what would make it faster, and which limits it holds.
  void explain_alone() {
    for (const Cause cause : {Cause::prefill_compute, Cause::decode_bandwidth}) {
      const Trial trial = run_alone(relieved(scenario_, cause));
      out_.alone_reliefs.push_back({cause, trial.holds, found_limits(trial)});
    }
    const std::vector<std::uint64_t> found = found_limits(out_.alone);
    const auto excess = [&](const AloneRelief& relief) {
      double most = 0;
      for (std::size_t i = 0; i < found.size(); ++i)
        most =
            std::max(most, static_cast<double>(relief.limits_ns[i]) / static_cast<double>(input_.limits[i].limit_ns));
      return most;
    };
    std::stable_sort(out_.alone_reliefs.begin(), out_.alone_reliefs.end(),
                     [&](const AloneRelief& a, const AloneRelief& b) { return excess(a) < excess(b); });
    out_.limits_alone = input_.limits;
    for (std::size_t i = 0; i < found.size(); ++i) {
      constexpr std::uint64_t kMs = 1'000'000;
      std::uint64_t& limit_ns = out_.limits_alone[i].limit_ns;
      if (found[i] > limit_ns) limit_ns = (found[i] + found[i] / 10) / kMs * kMs + kMs;
    }
  }

  /// In a run that is over before its first requests are, nobody sees the queue grow.
  void lengthen_runs(double rate) {
    const double wanted = kRunLength * static_cast<double>(scenario_.alone_ns) * 1e-9 * rate;
    const std::uint64_t most = kMostRounds * input_.num_requests;
    if (wanted > static_cast<double>(input_.num_requests))
      scenario_.num_requests = wanted < static_cast<double>(most) ? static_cast<std::uint64_t>(wanted) : most;
  }

  /// What binds, the curve, what-ifs: searches that do not depend on each other.
  void explore() {
    const double knee = out_.knee.at.rate;
    std::vector<std::function<void()>> jobs;
    std::vector<Relief> reliefs(std::size(kAllCauses));
    for (std::size_t i = 0; i < reliefs.size(); ++i)
      jobs.push_back([&, i] { reliefs[i] = find_relief(scenario_, kAllCauses[i], out_.knee, input_.precision); });
    const std::vector<WhatIf> changes = what_ifs(input_.options, plan_.fit.info, longest(plan_.load));
    out_.what_ifs.resize(changes.size());
    for (std::size_t i = 0; i < changes.size(); ++i) jobs.push_back([&, i] { out_.what_ifs[i] = try_out(changes[i]); });
    out_.curve.resize(std::size(kCurve));
    Trial evidence;
    for (std::size_t i = 0; i < std::size(kCurve); ++i)
      jobs.push_back([&, i] {
        Trial trial = run_trial(scenario_, kCurve[i] * knee, Completeness::full);
        out_.curve[i] = point_of(trial, input_.limits);
        if (kCurve[i] == kEvidenceFactor) evidence = std::move(trial);
      });
    run_jobs(pool_, jobs, [this](double fraction) { tell("what binds, what to change", fraction); });
    out_.binding = judge(std::move(reliefs), std::move(evidence));
    std::stable_sort(out_.what_ifs.begin(), out_.what_ifs.end(),
                     [](const WhatIfRow& a, const WhatIfRow& b) { return a.rate > b.rate; });
  }

  WhatIfRow try_out(const WhatIf& change) const {
    WhatIfRow row{.setting = change.setting, .flag = change.flag, .change = -1};
    auto fit = plan_fit(change.options, file_, input_.memory);
    if (!fit.ok()) return row.note = fit.error().message, row;
    auto cost = input_.make_cost(*fit);
    if (!cost.ok()) return row.note = cost.error().message, row;
    Load load = plan_.load;
    if (auto dropped = drop_longer(load, std::min<std::int64_t>(fit->core.context_tokens, fit->core.pool_tokens()));
        !dropped.ok())
      return row.note = dropped.error().message, row;
    if (load.requests.size() < plan_.load.requests.size())
      return row.note = cat(plan_.load.requests.size() - load.requests.size(), " of the requests would not fit"), row;
    auto at_once = count_requests(fit->core, load);
    if (!at_once.ok()) return row.note = at_once.error().message, row;
    Scenario scenario = scenario_;
    scenario.core = simulated(fit->core);
    scenario.cost = cost->model;
    row.at_once = at_once->steady();
    row.rate = find_knee_again(scenario, out_.knee, input_.precision);
    row.change = row.rate / out_.knee.at.rate - 1;
    if (std::abs(row.change) < kSameRate) row.change = 0;
    row.note = cost->note == out_.cost_note ? "" : cost->note;
    return row;
  }

  const PlanInput& input_;
  const model::GgufFile& file_;
  const Plan& plan_;
  ThreadPool pool_;
  Scenario scenario_;
  Performance out_;
};

}  // namespace

Replicas count_replicas(double rate, double capacity) {
  Replicas out{.rate = rate};
  if (!(capacity > 0)) return out;
  // A rate that is a whole number of capacities, but for rounding, needs no further one.
  out.count = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(rate / capacity * (1 - 1e-9))));
  out.load = rate / (static_cast<double>(out.count) * capacity);
  return out;
}

Result<Plan> make_plan(const PlanInput& input, const model::GgufFile& file) {
  QUIRE_TRY(const auto arrivals, ArrivalProcess::parse(input.arrivals, 1));
  static_cast<void>(arrivals);
  Plan plan;
  QUIRE_TRY(plan.fit, plan_fit(input.options, file, input.memory));
  plan.load = input.load;
  plan.limits = input.limits;
  QUIRE_TRY_VOID(
      drop_longer(plan.load, std::min<std::int64_t>(plan.fit.core.context_tokens, plan.fit.core.pool_tokens())));
  QUIRE_TRY(plan.at_once, count_requests(plan.fit.core, plan.load));
  if (plan.load.num_left_out > 0)
    plan.notes.push_back(cat(plan.load.num_left_out, " of ", plan.load.num_left_out + plan.load.requests.size(),
                             " requests of the workload are longer than what fits and are left out"));
  if (input.options.kv_ram_bytes > 0)
    plan.notes.push_back("the RAM tier is in the memory, but not simulated: what it finds again is not in the rate");
  if (input.options.num_speculative_tokens > 0)
    plan.notes.push_back("speculation is not simulated: what it gains depends on the text");
  if (!input.make_cost) return plan.no_performance = "no cost model was given", plan;
  auto cost = input.make_cost(plan.fit);
  if (!cost.ok()) return plan.no_performance = cost.error().message, plan;
  plan.performance = Planner(input, file, plan, *cost).run();
  return plan;
}

}  // namespace quire::planning
