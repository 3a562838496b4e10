#include "bench/engine_case.h"

namespace quire::bench {

Result<EngineCase> EngineCase::open(const Options& options, engine::EngineOptions engine_options) {
  if (options.model.empty()) return fail("wants a model: --model FILE");
  QUIRE_TRY(const auto file, model::GgufFile::open(options.model));
  engine_options.model_path = options.model;
  engine_options.threads = options.threads;
  engine_options.cpu_tier = std::string(to_string(options.tier));
  QUIRE_TRY(auto engine, engine::Engine::open(std::move(engine_options)));
  const auto weight_bytes = static_cast<std::int64_t>(engine->info().weight_bytes);
  return EngineCase{std::move(engine), Work(file, weight_bytes)};
}

}  // namespace quire::bench
