#include "quire/planning/outside_cost.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "quire/planning/served_run.h"
#include "quire/planning/step_log.h"
#include "quire/report/report.h"

namespace quire::planning {
namespace {

constexpr std::int32_t kPromptTokens = 4, kManyRows = 16, kOutputTokens = 40;
constexpr std::size_t kSingleRequests = 16;
constexpr std::uint64_t kPauseNs = 40'000'000;  ///< between requests that find the engine idle

/// Of one token each, far enough apart to find the engine idle.
std::vector<RequestSpec> single_requests() {
  std::vector<RequestSpec> specs(kSingleRequests);
  for (std::size_t i = 0; i < specs.size(); ++i)
    specs[i] = {.arrival_ns = i * kPauseNs, .prompt_tokens = kPromptTokens};
  return specs;
}

/// When the tokens of a request's first branch came, on the engine's thread.
struct Tokens {
  std::vector<double> ns;
  std::promise<std::string> ended;  ///< with what went wrong, if anything did
};

/// From token to token while num_rows answers are decoded. They are branches of one request: however busy the machine
/// is, they start together and end together.
Result<double> token_gap_ns(engine::Engine& engine, std::int32_t num_rows) {
  engine::GenerateRequest request;
  request.prompt.assign(kPromptTokens, TokenId{0});
  request.max_tokens = kOutputTokens;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  request.num_branches = num_rows;
  const auto tokens = std::make_shared<Tokens>();
  const auto submitted = engine.submit(std::move(request), [tokens](const engine::Delta& delta) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    if (delta.branch == 0)
      tokens->ns.insert(tokens->ns.end(), delta.tokens.size(), std::chrono::nanoseconds(now).count());
    if (delta.ends_request) tokens->ended.set_value(delta.finish->message);
  });
  if (!submitted.id) return fail("a request of ", num_rows, " answers was refused: ", submitted.refusal.message);
  const std::string fault = tokens->ended.get_future().get();
  if (tokens->ns.size() != kOutputTokens) return fail("a request ended before its length: ", fault);
  std::vector<double> gaps;
  for (std::size_t t = 2; t < tokens->ns.size(); ++t) gaps.push_back(tokens->ns[t] - tokens->ns[t - 1]);
  return report::median(std::move(gaps));
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
  return report::median(std::move(times));
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
    QUIRE_TRY(const ServedRun run, serve(*engine, single_requests()));
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
