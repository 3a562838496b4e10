#include "quire/planning/outside_cost.h"

#include <algorithm>
#include <vector>

#include "quire/planning/served_run.h"
#include "quire/planning/step_log.h"

namespace quire::planning {
namespace {

constexpr std::int32_t kPromptTokens = 4, kManyRows = 16, kOutputTokens = 40;
constexpr std::uint64_t kPauseNs = 40'000'000;  ///< between requests that find the engine idle

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<RequestSpec> requests(std::int32_t count, std::int32_t output_tokens, std::uint64_t apart_ns) {
  std::vector<RequestSpec> specs(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    specs[i].arrival_ns = i * apart_ns;
    specs[i].prompt_tokens = kPromptTokens;
    specs[i].output_tokens = output_tokens;
  }
  return specs;
}

/// From token to token while num_rows requests decode.
Result<double> token_gap_ns(engine::Engine& engine, std::int32_t num_rows) {
  QUIRE_TRY(const ServedRun run, serve(engine, requests(num_rows, kOutputTokens, 0)));
  std::vector<double> gaps;
  const std::vector<std::uint64_t>& tokens = run.token_ns.back();
  for (std::size_t t = 2; t < tokens.size(); ++t) gaps.push_back(static_cast<double>(tokens[t] - tokens[t - 1]));
  return median(std::move(gaps));
}

/// What the executor takes of steps with so many rows: decodes, or prompts of kPromptTokens alone.
Result<double> step_ns(const RecordedRun& run, std::int64_t num_decodes, std::int64_t num_prompts) {
  std::vector<double> times;
  for (const RecordedStep& step : run.steps) {
    const bool is_alike = step.shape.num_decode_rows == num_decodes && step.shape.num_prefill_rows == num_prompts &&
                          step.shape.num_prefill_tokens == num_prompts * kPromptTokens;
    if (is_alike) times.push_back(static_cast<double>(step.elapsed_ns));
  }
  if (times.empty())
    return fail("no step of the engine had ", num_decodes, " decodes and ", num_prompts, " short prompts");
  return median(std::move(times));
}

}  // namespace

Result<OutsideCost> measure_outside(engine::EngineOptions options) {
  const StepLog log;
  options.command_log = log.path();
  options.prefix_cache = false;
  const auto many = static_cast<std::int32_t>(std::min<std::int64_t>(kManyRows, options.max_batch_rows));
  double one_gap = 0, many_gap = 0, first_token = 0;
  {
    QUIRE_TRY(const auto engine, engine::Engine::open(options));
    QUIRE_TRY(one_gap, token_gap_ns(*engine, 1));
    QUIRE_TRY(many_gap, token_gap_ns(*engine, many));
    QUIRE_TRY(const ServedRun run, serve(*engine, requests(kManyRows, 1, kPauseNs)));
    first_token = static_cast<double>(run.ttft_ns.quantile(500));
  }
  QUIRE_TRY(const RecordedRun run, log.read());
  QUIRE_TRY(const double one_step, step_ns(run, 1, 0));
  QUIRE_TRY(const double many_step, step_ns(run, many, 0));
  QUIRE_TRY(const double prompt_step, step_ns(run, 0, 1));
  const double one = std::max(0.0, one_gap - one_step), all = std::max(one, many_gap - many_step);
  OutsideCost cost;
  cost.row = many > 1 ? (all - one) / (many - 1) : 0.0;
  cost.step = std::max(0.0, one - cost.row);
  cost.wake = std::max(0.0, first_token - prompt_step - cost.step - cost.row);
  return cost;
}

}  // namespace quire::planning
