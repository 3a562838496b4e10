#include "bench/fidelity_sections.h"

#include <algorithm>
#include <cstdio>

#include "quire/base/cat.h"
#include "quire/planning/calibrate.h"
#include "quire/planning/fidelity.h"
#include "quire/planning/step_log.h"
#include "quire/workload/synthetic.h"

namespace quire::bench {
namespace {

using planning::Figure;
using planning::StepKind;

constexpr int kMaxRounds = 5;
constexpr int kFewRounds = 3, kMostAttempts = 3;     ///< from so many rounds on a discarded run is tried again
constexpr double kOuterSlice = 12, kInnerSlice = 4;  ///< seconds of calibration: before and after; between rounds
constexpr double kMostDrift = 0.03, kMostError = 0.05;
constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::int64_t kContext = 2048;

struct Workload {
  std::string name;
  std::string_view prompts, answers;  ///< distributions of lengths
  std::uint64_t num_requests;
  double load;  ///< of the rate that the engine can take at most
  std::int32_t shared_prefix_tokens = 0;
  std::uint64_t kv_memory_bytes = 512 * kMiB;
};

/// The same requests at every rate, and in every round.
Result<std::vector<RequestSpec>> make_requests(const Workload& workload, double rate) {
  QUIRE_TRY(const LengthDistribution prompts, LengthDistribution::parse(workload.prompts));
  QUIRE_TRY(const LengthDistribution answers, LengthDistribution::parse(workload.answers));
  const IndependentLengths lengths(prompts, answers, kContext - workload.shared_prefix_tokens);
  SyntheticSource source(
      {.num_requests = workload.num_requests, .seed = 7, .shared_prefix_tokens = workload.shared_prefix_tokens},
      ArrivalProcess::poisson(rate), lengths);
  std::vector<RequestSpec> requests;
  while (std::optional<RequestSpec> request = source.next()) requests.push_back(std::move(*request));
  return requests;
}

engine::EngineOptions engine_options(const Options& options, std::uint64_t kv_memory_bytes) {
  engine::EngineOptions engine;
  engine.model_path = options.model;
  engine.threads = options.threads;
  engine.cpu_tier = std::string(to_string(options.tier));
  engine.context = kContext;
  engine.kv_memory_bytes = kv_memory_bytes;
  return engine;
}

struct RecordedServing {
  planning::ServedRun served;
  RecordedRun recorded;
};

/// An engine of its own for each run. The log is replayed by the core and by the simulator; both must decide alike.
Result<RecordedServing> serve_once(engine::EngineOptions engine_options, const std::vector<RequestSpec>& requests) {
  const planning::StepLog log;
  engine_options.command_log = log.path();
  RecordedServing run;
  {
    QUIRE_TRY(const auto engine, engine::Engine::open(engine_options));
    if (!requests.empty()) {
      QUIRE_TRY(run.served, planning::serve(*engine, requests));
    }
  }
  QUIRE_TRY(const std::vector<std::byte> bytes, log.bytes());
  QUIRE_TRY(const Replay replayed, replay(bytes));
  if (replayed.first_difference)
    return fail("the core decides otherwise in step ", *replayed.first_difference, " of its own log");
  QUIRE_TRY(run.recorded, replay_in_simulator(bytes));
  if (run.recorded.difference) return fail("the simulator decides otherwise: ", describe(*run.recorded.difference));
  return run;
}

/// Adds the rows of one workload.
class FidelityRows {
 public:
  FidelityRows(const Workload& workload, bool is_discarded, report::Report& report)
      : workload_(workload), is_discarded_(is_discarded), report_(report) {}

  /// value and its target, whether the run counts or not.
  void add_always(std::string_view metric, std::string unit, double value, report::Target target) {
    report_.rows.push_back(report::make_row({cat(workload_.name, ": ", metric), std::move(unit), target}, {value}));
  }

  /// value and, if the run counts, its target.
  void add(std::string metric, std::string unit, double value, std::optional<report::Target> target = {}) {
    report_.rows.push_back(report::make_row({name(metric), std::move(unit), kept(target)}, {value}));
  }

  /// The prediction beside the engine's median and spread: within the larger of 5 % and the spread, on either side.
  void add_figure(const Figure& predicted, const std::vector<double>& engine) {
    report::Row row = report::make_row({name(predicted.name), std::string(predicted.unit)},
                                       std::vector<double>(engine.size(), predicted.value), "engine", engine);
    row.ratio = predicted.value / *row.peer;
    row.spread = report::relative_spread(engine);
    const double tolerance = std::max(kMostError, row.spread.value_or(0));
    row.target = kept(*row.ratio > 1 ? report::at_most(1 + tolerance) : report::at_least(1 - tolerance));
    report_.rows.push_back(std::move(row));
  }

 private:
  std::string name(std::string_view metric) const {
    return cat(workload_.name, ": ", metric, is_discarded_ ? " (discarded)" : "");
  }
  std::optional<report::Target> kept(std::optional<report::Target> target) const {
    return is_discarded_ ? std::nullopt : target;
  }

  const Workload& workload_;
  const bool is_discarded_;
  report::Report& report_;
};

void add_steps(const std::vector<RecordedServing>& runs, const CalibratedCost& cost, FidelityRows& rows) {
  std::vector<RecordedStep> steps;
  for (const RecordedServing& run : runs)
    steps.insert(steps.end(), run.recorded.steps.begin(), run.recorded.steps.end());
  const auto count = static_cast<double>(steps.size());
  rows.add("steps whose plans are equal, replayed", "%", 100, report::at_least(100));  // else the run has failed
  rows.add("steps recorded", "", count);
  const auto all = planning::step_errors(cost, steps);
  rows.add("step time, median error", "%", 100 * all.median, report::at_most(100 * kMostError));
  rows.add("step time, 95 % of errors within", "%", 100 * all.p95);
  rows.add("decode steps, median error", "%", 100 * planning::step_errors(cost, steps, StepKind::decodes).median);
  rows.add("steps with prompts, median error", "%", 100 * planning::step_errors(cost, steps, StepKind::prompts).median);
  rows.add("time of all steps, predicted to recorded", "", all.total_ratio);
}

struct Comparison {
  planning::MeasuredCost cost;  ///< of all slices
  double drift = 0;
  double rate = 0;  ///< of arrivals
  SimulationResult predicted;
  std::vector<RecordedServing> runs;

  bool is_discarded() const { return drift > kMostDrift; }
};

/// Calibrates, serves, calibrates, serves, ... and calibrates, so that what else the machine does hits both alike.
Result<Comparison> run_once(const Workload& workload, const Options& options) {
  const engine::EngineOptions engine = engine_options(options, workload.kv_memory_bytes);
  QUIRE_TRY(const auto calibrator, planning::Calibrator::open(engine_options(options, 1024 * kMiB)));
  calibrator->measure(kOuterSlice);
  QUIRE_TRY(const planning::MeasuredCost before, calibrator->fit(0, 1));
  QUIRE_TRY(const RecordedServing idle, serve_once(engine, {}));
  const CoreOptions& core = idle.recorded.options;
  Comparison found;
  QUIRE_TRY(std::vector<RequestSpec> requests, make_requests(workload, 1));
  QUIRE_TRY(const double capacity, planning::predict_capacity(core, before.calibration.fitted, requests));
  found.rate = workload.load * capacity;
  QUIRE_TRY(requests, make_requests(workload, found.rate));
  const int rounds = std::min(options.rounds, kMaxRounds);
  for (int round = 0; round < rounds; ++round) {
    QUIRE_TRY(RecordedServing run, serve_once(engine, requests));
    found.runs.push_back(std::move(run));
    calibrator->measure(round + 1 < rounds ? kInnerSlice : kOuterSlice);
  }
  const std::size_t slices = calibrator->num_slices();
  QUIRE_TRY(const planning::MeasuredCost after, calibrator->fit(slices - 1, slices));
  QUIRE_TRY(found.cost, calibrator->fit(0, slices));
  found.drift = planning::drift(before.calibration.fitted, after.calibration.fitted, found.runs.front().recorded.steps);
  QUIRE_TRY(found.predicted, planning::predict(core, found.cost.calibration.fitted, requests));
  return found;
}

void add_rows(const Workload& workload, const Comparison& found, report::Report& report) {
  FidelityRows rows(workload, found.is_discarded(), report);
  rows.add_always("calibrations before and after apart", "%", 100 * found.drift, report::at_most(100 * kMostDrift));
  rows.add("calibration, mean over median of repeated steps", "", 1 + found.cost.calibration.fit.disturbance);
  add_steps(found.runs, found.cost.calibration.fitted, rows);
  std::vector<std::vector<double>> engine_figures;
  for (const RecordedServing& run : found.runs) {
    const std::vector<Figure> figures = planning::figures_of(run.served);
    engine_figures.resize(figures.size());
    for (std::size_t i = 0; i < figures.size(); ++i) engine_figures[i].push_back(figures[i].value);
  }
  const std::vector<Figure> figures = planning::figures_of(found.predicted);
  for (std::size_t i = 0; i < figures.size(); ++i) rows.add_figure(figures[i], engine_figures[i]);
  std::vector<double> preemptions;
  for (const RecordedServing& run : found.runs)
    preemptions.push_back(static_cast<double>(run.recorded.num_preemptions));
  if (found.predicted.num_preemptions > 0 || report::median(preemptions) > 0)
    rows.add_figure({"preemptions", "", static_cast<double>(found.predicted.num_preemptions)}, preemptions);
  rows.add("arrivals", "1/s", found.rate);
}

Result<void> compare(const Workload& workload, const Options& options, report::Report& report) {
  if (options.model.empty()) return fail("wants a model: --model FILE");
  const int most_attempts = options.rounds >= kFewRounds ? kMostAttempts : 1;
  for (int attempt = 1;; ++attempt) {
    QUIRE_TRY(const Comparison found, run_once(workload, options));
    if (found.is_discarded() && attempt < most_attempts) {
      std::fprintf(stderr, "%s: discarded, the calibrations before and after are %.1f %% apart; again (%d of %d)\n",
                   workload.name.c_str(), 100 * found.drift, attempt + 1, most_attempts);
      continue;
    }
    report.rows.push_back(report::make_row({cat(workload.name, ": attempts"), ""}, {static_cast<double>(attempt)}));
    add_rows(workload, found, report);
    return {};
  }
}

}  // namespace

Result<void> fidelity_of_chat(const Options& options, report::Report& report) {
  return compare({.name = "chat",
                  .prompts = "lognormal:4.2,0.9@4-512",
                  .answers = "exponential:60@4-256",
                  .num_requests = 48,
                  .load = 0.7},
                 options, report);
}

/// About 40 % of the KV memory that these requests would need if they ran at once.
Result<void> fidelity_of_a_burst(const Options& options, report::Report& report) {
  return compare({.name = "burst",
                  .prompts = "uniform:16,128",
                  .answers = "uniform:40,160",
                  .num_requests = 32,
                  .load = 5,
                  .kv_memory_bytes = 50 * kMiB},
                 options, report);
}

Result<void> fidelity_of_shared_prefixes(const Options& options, report::Report& report) {
  return compare({.name = "shared",
                  .prompts = "uniform:16,64",
                  .answers = "exponential:50@4-160",
                  .num_requests = 40,
                  .load = 0.7,
                  .shared_prefix_tokens = 512},
                 options, report);
}

}  // namespace quire::bench
