#include "quire/planning/calibrate.h"

#include <algorithm>
#include <chrono>

#include "quire/base/cat.h"
#include "quire/base/rng.h"
#include "quire/planning/served_run.h"
#include "quire/planning/step_log.h"
#include "quire/planning/step_timer.h"

namespace quire::planning {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// The shapes that are measured, short ones first.
std::vector<TimedStep> make_grid() {
  std::vector<TimedStep> grid;
  for (std::int32_t tokens : {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14,  15,  16,  17,  18,
                              19, 20, 21, 22, 23, 24, 32, 40, 48, 64, 65, 68, 96, 128, 192, 256, 384, 512})
    grid.push_back(TimedStep().prefill(0, tokens));
  for (std::int32_t tokens : {1, 4, 8, 16, 64}) grid.push_back(TimedStep().prefill(0, tokens, false));
  for (std::int32_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64})
    grid.push_back(TimedStep().decodes(rows, 32));
  for (std::int32_t context : {128, 256, 512, 1024, 2048})
    for (std::int32_t rows : {1, 2, 4, 8, 16, 32})
      if (rows * context <= 16384) grid.push_back(TimedStep().decodes(rows, context));
  for (std::int32_t begin : {256, 512, 1024, 1536})
    for (std::int32_t tokens : {8, 16, 64, 128}) grid.push_back(TimedStep().prefill(begin, tokens));
  for (std::int32_t rows : {4, 16, 32})
    for (std::int32_t tokens : {8, 32, 96, 224})
      grid.push_back(TimedStep().decodes(rows, 300).prefill(0, tokens, false));
  for (std::int32_t chunks : {2, 4, 8}) {
    TimedStep& step = grid.emplace_back();
    for (std::int32_t i = 0; i < chunks; ++i) step.prefill(0, 128 / chunks);
  }
  return grid;
}

double lower_quartile(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 4];
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Times of each shape that there is room for, in turns until the time is over, each at least once.
class Rounds {
 public:
  explicit Rounds(StepTimer& timer) : timer_(timer) {
    for (TimedStep& step : make_grid())
      if (timer.has_room_for(step)) steps_.push_back(std::move(step));
    samples_.resize(steps_.size());
  }

  void run(double seconds, const std::function<void(double)>& progress) {
    const auto start = Clock::now();
    std::vector<std::size_t> order(steps_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    Rng rng(1);
    for (bool is_first = true; is_first || seconds_since(start) < seconds; is_first = false) {
      for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(i) - 1))]);
      for (std::size_t i : order) {
        if (!is_first && seconds_since(start) >= seconds) break;
        time(i, is_first ? 1 : 2);
        if (progress) progress(std::min(1.0, seconds_since(start) / seconds));
      }
    }
  }

  std::vector<CostPoint> points() const {
    std::vector<CostPoint> points;
    for (std::size_t i = 0; i < steps_.size(); ++i)
      points.push_back({timer_.shape_of(steps_[i]), lower_quartile(samples_[i])});
    return points;
  }

 private:
  void time(std::size_t i, int times) {
    for (double ns : timer_.time(steps_[i], times)) samples_[i].push_back(ns);
  }

  StepTimer& timer_;
  std::vector<TimedStep> steps_;
  std::vector<std::vector<double>> samples_;
};

/// Nanoseconds from token to token while num_rows requests decode.
Result<double> token_gap_ns(engine::Engine& engine, std::int32_t num_rows) {
  RequestSpec spec;
  spec.prompt_tokens = 4;
  spec.output_tokens = 40;
  QUIRE_TRY(const ServedRun run, serve(engine, std::vector(static_cast<std::size_t>(num_rows), spec)));
  std::vector<double> gaps;
  const std::vector<std::uint64_t>& tokens = run.token_ns.back();
  for (std::size_t t = 2; t < tokens.size(); ++t) gaps.push_back(static_cast<double>(tokens[t] - tokens[t - 1]));
  return median(std::move(gaps));
}

/// What the executor takes of it.
Result<double> decode_step_ns(const RecordedRun& run, std::int32_t num_rows) {
  std::vector<double> times;
  for (const RecordedStep& step : run.steps)
    if (step.shape.num_prefill_rows == 0 && step.shape.num_decode_rows == num_rows)
      times.push_back(static_cast<double>(step.elapsed_ns));
  if (times.empty()) return fail("no step of the engine had ", num_rows, " decodes");
  return median(std::move(times));
}

/// What a whole engine takes beside its executor.
Result<void> measure_outside(engine::EngineOptions options, CalibratedCost& cost) {
  constexpr std::int32_t kManyRows = 16;
  const StepLog log;
  options.command_log = log.path();
  options.prefix_cache = false;
  const auto many = static_cast<std::int32_t>(std::min<std::int64_t>(kManyRows, options.max_batch_rows));
  double one_gap = 0, many_gap = 0;
  {
    QUIRE_TRY(const auto engine, engine::Engine::open(options));
    QUIRE_TRY(one_gap, token_gap_ns(*engine, 1));
    QUIRE_TRY(many_gap, token_gap_ns(*engine, many));
  }
  QUIRE_TRY(const RecordedRun run, log.read());
  QUIRE_TRY(const double one_step, decode_step_ns(run, 1));
  QUIRE_TRY(const double many_step, decode_step_ns(run, many));
  const double one = std::max(0.0, one_gap - one_step), all = std::max(one, many_gap - many_step);
  cost.outside_row = many > 1 ? (all - one) / (many - 1) : 0.0;
  cost.outside_step = std::max(0.0, one - cost.outside_row);
  return {};
}

}  // namespace

Result<MeasuredCost> calibrate(const CalibrateOptions& options) {
  const auto start = Clock::now();
  MeasuredCost measured;
  QUIRE_TRY(measured.calibration.setting, describe_setting(options.engine));
  {
    QUIRE_TRY(const auto timer, StepTimer::open(options.engine));
    Rounds rounds(*timer);
    rounds.run(options.seconds, options.progress);
    measured.points = rounds.points();
  }
  QUIRE_TRY(FittedSteps fitted, fit_steps(measured.points));
  QUIRE_TRY_VOID(measure_outside(options.engine, fitted.cost));
  measured.calibration.fitted = std::move(fitted.cost);
  measured.calibration.fitted.name = cost_name(measured.calibration.setting);
  measured.calibration.fit = fitted.fit;
  measured.calibration.fit.seconds = seconds_since(start);
  return measured;
}

}  // namespace quire::planning
