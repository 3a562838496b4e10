// Matrix products: Gop/s (two operations a weight and token) and GB/s of packed weights, for each format and number of
// tokens, on one CPU tier.
//
//   QUIRE_CPU=avx2 build/qgemm_bench --benchmark_filter='Q4_1/.*' [--threads=2] [--rows=4096] [--cols=2048]
//
// With few tokens a matrix larger than the caches measures memory, one of 576 x 576 the kernel.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "quire/base/cpu.h"
#include "quire/ops/matmul.h"
#include "quire/quant/random_weights.h"

namespace {

using namespace quire;

struct Options {
  std::int64_t rows = 8192, cols = 2048;
  int threads = 1;
  CpuTier tier = CpuTier::scalar;
};

void multiply(benchmark::State& state, const Options& options, DType dtype, std::int64_t tokens) {
  auto source = quant::random_weights(dtype, options.rows, options.cols, quant::ScaleKind::usual, 1);
  auto weights = quant::PackedMatrix::pack(dtype, options.rows, options.cols, source.data());
  auto x = quant::random_activations(tokens, options.cols, 2);
  quant::QuantizedRows quantized(tokens, options.cols);
  quantized.reshape(tokens, options.cols);
  for (std::int64_t t = 0; t < tokens; ++t) quant::quantize_row(options.tier, &x[t * options.cols], t, quantized);
  std::vector<float> out(tokens * options.rows);
  ops::MatmulInput input{x.data(), options.cols, &quantized, tokens};
  ops::MatmulOutput output{&weights, nullptr, out.data(), options.rows};
  ThreadPool pool(options.threads);
  for (auto _ : state) {
    pool.run([&](Worker& worker) { ops::matmul(worker, options.tier, input, {&output, 1}); });
    benchmark::DoNotOptimize(out.data());
  }
  auto calls = static_cast<double>(state.iterations());
  auto operations = 2.0 * static_cast<double>(options.rows * options.cols * tokens);
  state.counters["Gop/s"] = benchmark::Counter(operations * calls * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(weights.bytes()) * calls * 1e-9, benchmark::Counter::kIsRate);
}

void quantize_activations(benchmark::State& state, const Options& options) {
  auto x = quant::random_activations(1, options.cols, 2);
  quant::QuantizedRows quantized(1, options.cols);
  quantized.reshape(1, options.cols);
  for (auto _ : state) benchmark::DoNotOptimize(quant::quantize_row(options.tier, x.data(), 0, quantized));
  state.counters["Gvalues/s"] =
      benchmark::Counter(static_cast<double>(options.cols * state.iterations()) * 1e-9, benchmark::Counter::kIsRate);
}

/// Takes --rows=, --cols= and --threads= out of the arguments; the rest is Google Benchmark's.
bool take_option(const std::string& argument, Options& options) {
  auto number = [&](std::string_view name) {
    return argument.rfind(name, 0) == 0 ? std::atoll(argument.c_str() + name.size()) : 0;
  };
  if (auto rows = number("--rows=")) return options.rows = rows, true;
  if (auto cols = number("--cols=")) return options.cols = cols, true;
  if (auto threads = number("--threads=")) return options.threads = static_cast<int>(threads), true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (!take_option(argv[i], options)) argv[kept++] = argv[i];
  }
  argc = kept;
  const char* forced = std::getenv("QUIRE_CPU");
  auto choice = choose_cpu_tier(forced != nullptr ? forced : "");
  if (!choice.ok()) {
    std::fprintf(stderr, "%s\n", choice.error().message.c_str());
    return 1;
  }
  options.tier = choice->tier;
  for (DType dtype : kAllDTypes) {
    for (std::int64_t tokens : {1, 2, 4, 8, 32, 512}) {
      std::string name = cat(info(dtype).name, "/", tokens, "/", to_string(options.tier));
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) { multiply(state, options, dtype, tokens); })
          ->Unit(benchmark::kMicrosecond)
          ->UseRealTime();
    }
  }
  benchmark::RegisterBenchmark("quantize_row", [=](benchmark::State& state) { quantize_activations(state, options); });
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
