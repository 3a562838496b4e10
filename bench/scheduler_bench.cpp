// What a step of the deciding half costs at 256 running sequences in decode: planning, and committing the results.
// The model's time is not in it; every row samples token 1.

#include <benchmark/benchmark.h>

#include "quire/core/command_log.h"
#include "quire/core/engine_core.h"

namespace quire {
namespace {

class DiscardingSink final : public CommandSink {
 public:
  void append(std::span<const std::byte> bytes) override { benchmark::DoNotOptimize(bytes.data()); }
};

std::unique_ptr<EngineCore> core_in_decode(std::int32_t num_running, CommandSink* sink) {
  CoreOptions options;
  options.num_blocks = 1 << 20;
  options.context_tokens = 1 << 24;
  auto core = *EngineCore::create(options, sink);
  for (std::int32_t i = 1; i <= num_running; ++i)
    static_cast<void>(core->submit({.id = RequestId{static_cast<std::uint64_t>(i)}, .prompt = {TokenId{7}}}));
  return core;
}

/// range(0): running sequences; range(1): 1 with a command log.
void BM_Step(benchmark::State& state) {
  DiscardingSink sink;
  const auto core = core_in_decode(static_cast<std::int32_t>(state.range(0)), state.range(1) ? &sink : nullptr);
  StepResult result;
  for (auto _ : state) {
    result.rows.assign(core->plan_step().rows.size(), {TokenId{1}, false});
    benchmark::DoNotOptimize(core->commit(result));
  }
  state.counters["rows"] = static_cast<double>(result.rows.size());
}
BENCHMARK(BM_Step)->ArgsProduct({{1, 32, 256}, {0, 1}})->Iterations(2000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
