#include "quire/planning/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "quire/base/rng.h"
#include "quire/report/report.h"

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
    for (std::int32_t rows : {1, 2, 3, 4, 5, 6, 8, 9, 11, 13, 16, 21, 32})
      if (rows * context <= 16384) grid.push_back(TimedStep().uneven_decodes(rows, context));
  for (std::int32_t rows : {2, 3, 4, 5, 8, 11, 16, 32}) grid.push_back(TimedStep().uneven_decodes(rows, 64, 512));
  for (std::int32_t rows : {4, 7, 16}) grid.push_back(TimedStep().uneven_decodes(rows, 128, 1024));
  for (std::int32_t begin : {256, 512, 1024, 1536})
    for (std::int32_t tokens : {8, 16, 64, 128}) grid.push_back(TimedStep().prefill(begin, tokens));
  for (std::int32_t rows : {4, 16, 32})
    for (std::int32_t tokens : {8, 32, 96, 224})
      grid.push_back(TimedStep().uneven_decodes(rows, 300).prefill(0, tokens, false));
  for (std::int32_t chunks : {2, 4, 8}) {
    TimedStep& step = grid.emplace_back();
    for (std::int32_t i = 0; i < chunks; ++i) step.prefill(0, 128 / chunks);
  }
  return grid;
}

/// Short steps are repeated more often: single ones differ by a tenth, and most steps that are served are short.
constexpr double kRepeatedNs = 1.5e7;
constexpr double kMostRepeats = 8;
int num_repeats(double typical_ns) { return static_cast<int>(std::clamp(kRepeatedNs / typical_ns, 1.0, kMostRepeats)); }

/// To be interrupted is typical of longer steps.
constexpr double kLongStepNs = 2e7;

/// Repeated steps that took visibly longer than typical ones of their kind were interrupted. Long steps do not count.
class InterruptionCount {
 public:
  void add(const std::vector<double>& values, double typical) {
    if (typical > kLongStepNs) return;
    for (double value : values) {
      computed_ns_ += typical;
      if (value > kInterrupted * typical) lengths_.push_back(value - typical);
    }
  }

  Interruptions summary() {
    Interruptions found;
    if (lengths_.empty()) return found;
    std::sort(lengths_.begin(), lengths_.end());
    found.per_second = static_cast<double>(lengths_.size()) / (computed_ns_ * 1e-9);
    for (std::size_t i = 0; i < kNumLengths; ++i)
      found.lengths_ns.push_back(lengths_[(2 * i + 1) * lengths_.size() / (2 * kNumLengths)]);
    return found;
  }

 private:
  static constexpr double kInterrupted = 1.25;
  static constexpr std::size_t kNumLengths = 32;
  double computed_ns_ = 0;
  std::vector<double> lengths_;
};

/// How far single short steps are from the typical one of their shape.
class Deviation {
 public:
  void add(const std::vector<double>& values, double typical) {
    if (typical > kLongStepNs || values.size() < kFewest) return;
    for (double value : values) deviations_.push_back(std::abs(value / typical - 1));
  }
  double median() const { return deviations_.empty() ? 0 : report::median(deviations_); }

 private:
  static constexpr std::size_t kFewest = 4;  ///< the median of fewer is too near to each of them
  std::vector<double> deviations_;
};

}  // namespace

Result<std::unique_ptr<Calibrator>> Calibrator::open(const engine::EngineOptions& options) {
  QUIRE_TRY(CalibrationSetting setting, describe_setting(options));
  QUIRE_TRY(const OutsideCost outside, measure_outside(options));
  QUIRE_TRY(auto timer, StepTimer::open(options));
  return std::unique_ptr<Calibrator>(new Calibrator(std::move(setting), std::move(timer), outside));
}

Calibrator::Calibrator(CalibrationSetting setting, std::unique_ptr<StepTimer> timer, OutsideCost outside)
    : setting_(std::move(setting)), timer_(std::move(timer)), outside_(outside) {
  for (TimedStep& step : make_grid())
    if (timer_->has_room_for(step)) steps_.push_back(std::move(step));
  samples_.resize(steps_.size());
}

void Calibrator::measure(double seconds, const Progress& progress) {
  const auto start = Clock::now();
  const std::size_t slice = num_slices_++;
  std::vector<std::size_t> order(steps_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  Rng rng(slice + 1);
  for (bool is_first = true; is_first || seconds_since(start) < seconds; is_first = false) {
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(i) - 1))]);
    for (std::size_t i : order) {
      if (!is_first && seconds_since(start) >= seconds) break;
      const int times = samples_[i].empty() ? 1 : num_repeats(samples_[i].front().ns);
      for (double ns : timer_->time(steps_[i], times)) samples_[i].push_back({slice, ns});
      if (progress) progress(std::min(1.0, seconds_since(start) / seconds));
    }
  }
  seconds_ += seconds_since(start);
}

Result<MeasuredCost> Calibrator::fit(std::size_t begin, std::size_t end) const {
  MeasuredCost measured;
  InterruptionCount count;
  Deviation deviation;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    std::vector<double> values;
    for (const Sample& sample : samples_[i])
      if (sample.slice >= begin && sample.slice < end) values.push_back(sample.ns);
    const double typical = report::median(values);
    measured.points.push_back({timer_->shape_of(steps_[i]), typical});
    count.add(values, typical);
    deviation.add(values, typical);
  }
  const Interruptions interruptions = count.summary();
  for (CostPoint& point : measured.points)
    if (point.ns > kLongStepNs) point.ns /= 1 + interruptions.share();
  QUIRE_TRY(FittedSteps fitted, fit_steps(measured.points));
  measured.calibration.setting = setting_;
  CalibratedCost& cost = measured.calibration.fitted = std::move(fitted.cost);
  cost.name = cost_name(setting_);
  cost.outside_step = outside_.step;
  cost.outside_row = outside_.row;
  cost.wake = outside_.wake;
  cost.interruptions = interruptions;
  measured.calibration.fit = fitted.fit;
  measured.calibration.fit.repeat_deviation = deviation.median();
  measured.calibration.fit.seconds = seconds_;
  return measured;
}

Result<MeasuredCost> calibrate(const CalibrateOptions& options) {
  QUIRE_TRY(const auto calibrator, Calibrator::open(options.engine));
  calibrator->measure(options.seconds, options.progress);
  return calibrator->fit(0, calibrator->num_slices());
}

}  // namespace quire::planning
