#include "quire/planning/fidelity.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "quire/report/report.h"
#include "quire/sim/engine_system.h"

namespace quire::planning {
namespace {

bool is_of(StepKind kind, const StepShape& shape) {
  return kind == StepKind::any || (kind == StepKind::prompts) == (shape.num_prefill_rows > 0);
}

/// Of predicted to recorded time, by the number of decode rows and whether there are prompts.
using RatiosByKind = std::map<std::pair<std::int64_t, bool>, std::vector<double>>;

double scatter_of(const RatiosByKind& ratios) {
  std::vector<double> left;
  for (const auto& [kind, of_kind] : ratios) {
    const double typical = report::median(of_kind);
    for (double ratio : of_kind) left.push_back(std::abs(ratio / typical - 1));
  }
  return report::median(std::move(left));
}

std::vector<Figure> make_figures(const Histogram& ttft, const Histogram& between, const Histogram& end_to_end,
                                 double tokens_per_second) {
  std::vector<Figure> figures;
  const auto add = [&](std::string_view p50, std::string_view p95, const Histogram& histogram) {
    figures.push_back({p50, "ms", static_cast<double>(histogram.quantile(500)) * 1e-6});
    figures.push_back({p95, "ms", static_cast<double>(histogram.quantile(950)) * 1e-6});
  };
  add("first token, p50", "first token, p95", ttft);
  add("between tokens, p50", "between tokens, p95", between);
  add("whole answer, p50", "whole answer, p95", end_to_end);
  figures.push_back({"output tokens", "1/s", tokens_per_second});
  return figures;
}

double per_second(std::uint64_t count, std::uint64_t ns) {
  return ns == 0 ? 0 : static_cast<double>(count) * 1e9 / static_cast<double>(ns);
}

}  // namespace

StepErrors step_errors(const CalibratedCost& cost, std::span<const RecordedStep> steps, StepKind kind) {
  std::vector<double> errors;
  RatiosByKind ratios;
  double predicted_sum = 0, recorded_sum = 0;
  for (const RecordedStep& step : steps) {
    if (step.shape.empty() || step.elapsed_ns == 0 || !is_of(kind, step.shape)) continue;
    const auto predicted = static_cast<double>(cost.execute_ns(step.shape));
    const auto recorded = static_cast<double>(step.elapsed_ns);
    errors.push_back(std::abs(predicted / recorded - 1));
    ratios[{step.shape.num_decode_rows, step.shape.num_prefill_rows > 0}].push_back(predicted / recorded);
    predicted_sum += predicted;
    recorded_sum += recorded;
  }
  if (errors.empty()) return {};
  std::sort(errors.begin(), errors.end());
  return {errors.size(), errors[errors.size() / 2], errors[errors.size() * 95 / 100], scatter_of(ratios),
          predicted_sum / recorded_sum};
}

double drift(const CalibratedCost& before, const CalibratedCost& after, std::span<const RecordedStep> steps) {
  double sum_before = 0, sum_after = 0;
  for (const RecordedStep& step : steps) {
    sum_before += static_cast<double>(before.execute_ns(step.shape));
    sum_after += static_cast<double>(after.execute_ns(step.shape));
  }
  return sum_before > 0 ? std::abs(sum_after / sum_before - 1) : 0;
}

std::vector<Figure> figures_of(const ServedRun& run) {
  return make_figures(run.ttft_ns, run.inter_token_ns, run.end_to_end_ns, per_second(run.output_tokens, run.end_ns));
}

std::vector<Figure> figures_of(const SimulationResult& run) {
  return make_figures(run.ttft_ns, run.inter_token_ns, run.end_to_end_ns, per_second(run.output_tokens, run.end_ns));
}

Result<SimulationResult> predict(const CoreOptions& options, const CostModel& cost,
                                 const std::vector<RequestSpec>& requests) {
  QUIRE_TRY(const auto system, EngineSystem::create(options));
  ListSource source(requests);
  SimulationResult result = simulate(*system, cost, source);
  if (result.num_refused > 0) return fail(result.num_refused, " of ", requests.size(), " requests could never run");
  return result;
}

Result<double> predict_capacity(const CoreOptions& options, const CostModel& cost, std::vector<RequestSpec> requests) {
  for (RequestSpec& request : requests) request.arrival_ns = 0;
  QUIRE_TRY(const SimulationResult result, predict(options, cost, requests));
  return per_second(result.num_finished, result.end_ns);
}

}  // namespace quire::planning
