#include "bench/prompt_sections.h"

#include <future>

#include "bench/measure.h"
#include "quire/base/cat.h"
#include "quire/base/rng.h"
#include "quire/engine/engine.h"

namespace quire::bench {
namespace {

constexpr std::int32_t kPromptTokens = 2000;

Result<std::unique_ptr<engine::Engine>> open_engine(const Options& options) {
  if (options.model.empty()) return fail("wants a model: --model FILE");
  engine::EngineOptions engine_options;
  engine_options.model_path = options.model;
  engine_options.threads = options.threads;
  engine_options.cpu_tier = std::string(to_string(options.tier));
  engine_options.context = 2 * kPromptTokens;
  engine_options.max_batch_rows = 16;
  return engine::Engine::open(std::move(engine_options));
}

std::vector<TokenId> random_prompt(Rng& rng, std::int64_t vocab_size) {
  std::vector<TokenId> prompt;
  for (std::int32_t i = 0; i < kPromptTokens; ++i) {
    prompt.push_back(TokenId{static_cast<std::int32_t>(rng.between(0, vocab_size - 1))});
  }
  return prompt;
}

/// Milliseconds from submit to the only token.
double first_token(engine::Engine& engine, const std::vector<TokenId>& prompt) {
  std::promise<void> done;
  engine::GenerateRequest request;
  request.prompt = prompt;
  request.max_tokens = 1;
  request.ignore_eos = true;
  return 1e3 * seconds_of([&] {
           const auto submitted = engine.submit(std::move(request), [&done](engine::Delta delta) {
             if (delta.finish) done.set_value();
           });
           QUIRE_CHECK(submitted.id, submitted.refusal.message);
           done.get_future().wait();
         });
}

}  // namespace

Result<void> warm_prompt(const Options& options, report::Report& report) {
  QUIRE_TRY(auto engine, open_engine(options));
  Rng rng(1);
  std::vector<TokenId> prompt;
  std::vector<double> cold, warm;
  for (int round = -1; round < options.rounds; ++round) {  // the first one is not counted
    prompt = random_prompt(rng, engine->info().vocab_size);
    const double first = first_token(*engine, prompt), second = first_token(*engine, prompt);
    if (round < 0) continue;
    cold.push_back(first);
    warm.push_back(second);
  }
  report.rows.push_back(report::make_row(
      {cat("first token of a prompt of ", kPromptTokens, ", cold"), "ms", report::at_least(20)}, cold, "warm", warm));
  return {};
}

}  // namespace quire::bench
