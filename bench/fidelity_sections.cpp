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
constexpr int kRunsPerRound = 2;     ///< at most, discarded ones included
constexpr double kSliceSeconds = 6;  ///< of calibration, before and after each run
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

/// One run of the engine, and what a calibration just before and just after it predicts.
struct Round {
  RecordedServing engine;
  CalibratedCost cost;   ///< of both calibrations
  double drift = 0;      ///< between them
  double deviation = 0;  ///< of single steps from the median of their shape, in both
  SimulationResult predicted;
};

struct Comparison {
  double rate = 0;  ///< of arrivals
  std::vector<Round> kept;
  std::vector<Round> discarded;

  /// If the machine changed during every run, what is shown is what it changed in.
  bool is_discarded() const { return kept.empty(); }
  const std::vector<Round>& rounds() const { return is_discarded() ? discarded : kept; }

  template <class Value>
  std::vector<double> of_each(Value value) const {
    std::vector<double> values;
    for (const Round& round : rounds()) values.push_back(static_cast<double>(value(round)));
    return values;
  }
};

/// Adds the rows of one workload.
class FidelityRows {
 public:
  FidelityRows(const Workload& workload, const Comparison& found, report::Report& report)
      : workload_(workload), found_(found), report_(report) {}

  void add_all() {
    add("rounds that count", "", {static_cast<double>(found_.kept.size())});
    add("runs discarded, since the calibrations before and after differ", "",
        {static_cast<double>(found_.discarded.size())});
    add("calibrations before and after apart", "%", found_.of_each([](const Round& r) { return 100 * r.drift; }),
        report::at_most(100 * kMostDrift));
    add("calibration, interruptions of steps", "%",
        found_.of_each([](const Round& r) { return 100 * r.cost.interruptions.share(); }));
    add("calibration, single steps from the median of their shape", "%",
        found_.of_each([](const Round& r) { return 100 * r.deviation; }));
    add_steps();
    add_figures();
    add("arrivals", "1/s", {found_.rate});
  }

 private:
  /// The median over the rounds and, if they count, its target.
  void add(std::string_view metric, std::string unit, const std::vector<double>& values,
           std::optional<report::Target> target = {}) {
    report_.rows.push_back(report::make_row({name(metric), std::move(unit), kept(target)}, values));
  }

  void add_steps() {
    const auto errors = [&](StepKind kind, auto value) {
      return found_.of_each(
          [&](const Round& r) { return value(planning::step_errors(r.cost, r.engine.recorded.steps, kind)); });
    };
    const auto median = [](const planning::StepErrors& e) { return 100 * e.median; };
    add("steps whose plans are equal, replayed", "%", {100}, report::at_least(100));  // else the run has failed
    add("steps recorded", "", found_.of_each([](const Round& r) { return r.engine.recorded.steps.size(); }));
    add("step time, median error", "%", errors(StepKind::any, median), report::at_most(100 * kMostError));
    add("step time, 95 % of errors within", "%",
        errors(StepKind::any, [](const planning::StepErrors& e) { return 100 * e.p95; }));
    add("step time, left when scaled by what fits best", "%",
        errors(StepKind::any, [](const planning::StepErrors& e) { return 100 * e.scatter; }));
    add("decode steps, median error", "%", errors(StepKind::decodes, median));
    add("steps with prompts, median error", "%", errors(StepKind::prompts, median));
    add("time of all steps, predicted to recorded", "",
        errors(StepKind::any, [](const planning::StepErrors& e) { return e.total_ratio; }));
  }

  void add_figures() {
    std::vector<std::vector<Figure>> predicted, engine;
    for (const Round& round : found_.rounds()) {
      predicted.push_back(planning::figures_of(round.predicted));
      engine.push_back(planning::figures_of(round.engine.served));
    }
    for (std::size_t i = 0; i < predicted.front().size(); ++i) {
      const auto column = [i](const std::vector<std::vector<Figure>>& rounds) {
        std::vector<double> values;
        for (const auto& figures : rounds) values.push_back(figures[i].value);
        return values;
      };
      add_figure(predicted.front()[i], column(predicted), column(engine));
    }
    const auto expected = found_.of_each([](const Round& r) { return r.predicted.num_preemptions; });
    const auto preemptions = found_.of_each([](const Round& r) { return r.engine.recorded.num_preemptions; });
    if (report::median(preemptions) > 0) add_figure({"preemptions", ""}, expected, preemptions);
  }

  /// Each round's prediction beside its run: within the larger of 5 % and the engine's spread, on either side.
  void add_figure(const Figure& figure, const std::vector<double>& predicted, const std::vector<double>& engine) {
    report::Row row = report::make_row({name(figure.name), std::string(figure.unit)}, predicted, "engine", engine);
    row.spread = report::relative_spread(engine);
    const double tolerance = std::max(kMostError, row.spread.value_or(0));
    row.target = kept(*row.ratio > 1 ? report::at_most(1 + tolerance) : report::at_least(1 - tolerance));
    report_.rows.push_back(std::move(row));
  }

  std::string name(std::string_view metric) const {
    return cat(workload_.name, ": ", metric, found_.is_discarded() ? " (discarded)" : "");
  }
  std::optional<report::Target> kept(std::optional<report::Target> target) const {
    return found_.is_discarded() ? std::nullopt : target;
  }

  const Workload& workload_;
  const Comparison& found_;
  report::Report& report_;
};

/// A run between two slices of calibration, the first of which is the last so far.
Result<Round> run_round(const engine::EngineOptions& engine, const std::vector<RequestSpec>& requests,
                        planning::Calibrator& calibrator) {
  Round round;
  QUIRE_TRY(round.engine, serve_once(engine, requests));
  calibrator.measure(kSliceSeconds);
  const std::size_t end = calibrator.num_slices();
  QUIRE_TRY(const planning::MeasuredCost before, calibrator.fit(end - 2, end - 1));
  QUIRE_TRY(const planning::MeasuredCost after, calibrator.fit(end - 1, end));
  QUIRE_TRY(const planning::MeasuredCost both, calibrator.fit(end - 2, end));
  const RecordedRun& recorded = round.engine.recorded;
  round.drift = planning::drift(before.calibration.fitted, after.calibration.fitted, recorded.steps);
  round.cost = both.calibration.fitted;
  round.deviation = both.calibration.fit.repeat_deviation;
  QUIRE_TRY(round.predicted, planning::predict(recorded.options, round.cost, requests));
  return round;
}

Result<Comparison> run_rounds(const Workload& workload, const Options& options) {
  const engine::EngineOptions engine = engine_options(options, workload.kv_memory_bytes);
  QUIRE_TRY(const auto calibrator, planning::Calibrator::open(engine_options(options, 512 * kMiB)));
  calibrator->measure(kSliceSeconds);
  QUIRE_TRY(const planning::MeasuredCost first, calibrator->fit(0, 1));
  QUIRE_TRY(const RecordedServing idle, serve_once(engine, {}));
  QUIRE_TRY(std::vector<RequestSpec> requests, make_requests(workload, 1));
  QUIRE_TRY(const double capacity,
            planning::predict_capacity(idle.recorded.options, first.calibration.fitted, requests));
  Comparison found;
  found.rate = workload.load * capacity;
  QUIRE_TRY(requests, make_requests(workload, found.rate));
  const int rounds = std::min(options.rounds, kMaxRounds);
  for (int run = 0; run < kRunsPerRound * rounds && static_cast<int>(found.kept.size()) < rounds; ++run) {
    QUIRE_TRY(Round round, run_round(engine, requests, *calibrator));
    const bool is_kept = round.drift <= kMostDrift;
    std::fprintf(stderr, "  run %d: calibrations before and after %.1f %% apart%s\n", run + 1, 100 * round.drift,
                 is_kept ? "" : ", discarded");
    (is_kept ? found.kept : found.discarded).push_back(std::move(round));
  }
  return found;
}

Result<void> compare(const Workload& workload, const Options& options, report::Report& report) {
  if (options.model.empty()) return fail("wants a model: --model FILE");
  QUIRE_TRY(const Comparison found, run_rounds(workload, options));
  FidelityRows(workload, found, report).add_all();
  return {};
}

}  // namespace

Result<void> fidelity_of_chat(const Options& options, report::Report& report) {
  return compare({.name = "chat",
                  .prompts = "lognormal:4.2,0.9@4-512",
                  .answers = "exponential:60@4-256",
                  .num_requests = 96,
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
                  .num_requests = 80,
                  .load = 0.7,
                  .shared_prefix_tokens = 512},
                 options, report);
}

}  // namespace quire::bench
