// A model without the engine: load time, prefill of 512 tokens, decode at context 512 by batch size, in tokens/s.
//
//   build/forward_bench --model=FILE [--threads=2] [--repeat=3]      QUIRE_CPU=avx2 forces a tier
//
// Beside the rate by the clock stands the rate by CPU time of all threads together: with one thread it is what an idle
// core would reach, whatever else runs on the machine.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/cat.h"
#include "quire/base/cpu.h"
#include "quire/base/rng.h"
#include "quire/model/gguf.h"
#include "quire/model/model.h"
#include "quire/model/sequence_runner.h"

namespace {

using namespace quire;
using model::SequenceRunner;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kContext = 512, kDecodeSteps = 32, kMaxBatch = 32;

struct Rate {
  double by_clock = 0, by_cpu = 0;  ///< tokens/s
};

/// Times from construction on.
class Timer {
 public:
  Rate rate(std::int64_t tokens) const {
    double clock = std::chrono::duration<double>(Clock::now() - start_).count();
    double cpu = static_cast<double>(std::clock() - start_cpu_) / CLOCKS_PER_SEC;
    return {static_cast<double>(tokens) / clock, static_cast<double>(tokens) / cpu};
  }

 private:
  Clock::time_point start_ = Clock::now();
  std::clock_t start_cpu_ = std::clock();
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string flag(int argc, char** argv, const char* name, const char* fallback) {
  for (int i = 1; i < argc; ++i) {
    std::size_t length = std::strlen(name);
    if (std::strncmp(argv[i], name, length) == 0 && argv[i][length] == '=') return argv[i] + length + 1;
  }
  return fallback;
}

std::vector<TokenId> random_prompt(std::int64_t vocab, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<TokenId> prompt;
  for (std::int64_t i = 0; i < kContext; ++i) {
    prompt.push_back(TokenId{static_cast<std::int32_t>(rng.between(0, vocab - 1))});
  }
  return prompt;
}

void prefill(SequenceRunner& runner, std::int64_t vocab, std::int64_t batch) {
  runner.reset();
  for (std::int64_t s = 0; s < batch; ++s) {
    auto prompt = random_prompt(vocab, static_cast<std::uint64_t>(s) + 1);
    const SequenceRunner::Piece piece{s, prompt, prompt.size() - 1};
    runner.step({&piece, 1});
  }
}

Rate prefill_rate(SequenceRunner& runner, std::int64_t vocab) {
  Timer timer;
  prefill(runner, vocab, 1);
  return timer.rate(kContext);
}

Rate decode_rate(SequenceRunner& runner, std::int64_t vocab, std::int64_t batch) {
  prefill(runner, vocab, batch);
  std::vector<TokenId> next(static_cast<std::size_t>(batch), TokenId{7});
  Timer timer;
  for (std::int64_t i = 0; i < kDecodeSteps; ++i) {
    std::vector<SequenceRunner::Piece> pieces;
    for (std::int64_t s = 0; s < batch; ++s)
      pieces.push_back({s, std::span(next).subspan(static_cast<std::size_t>(s), 1)});
    runner.step(pieces);
  }
  return timer.rate(batch * kDecodeSteps);
}

template <class Measure>
void report(const std::string& what, int repeat, Measure measure) {
  Rate best;
  for (int i = 0; i < repeat; ++i) {
    Rate rate = measure();
    best.by_clock = std::max(best.by_clock, rate.by_clock);
    best.by_cpu = std::max(best.by_cpu, rate.by_cpu);
  }
  std::printf("%-32s %8.0f tok/s %8.0f tok/s of CPU\n", what.c_str(), best.by_clock, best.by_cpu);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = flag(argc, argv, "--model", "");
  const int threads = std::max(1, std::atoi(flag(argc, argv, "--threads", "2").c_str()));
  const int repeat = std::max(1, std::atoi(flag(argc, argv, "--repeat", "3").c_str()));
  const char* forced = std::getenv("QUIRE_CPU");
  auto tier = choose_cpu_tier(forced == nullptr ? "" : forced);
  if (!tier.ok()) return std::fprintf(stderr, "%s\n", tier.error().message.c_str()), 1;
  ThreadPool pool(threads);
  auto start = Clock::now();
  auto file = model::GgufFile::open(path);
  if (!file.ok()) return std::fprintf(stderr, "%s\n", file.error().message.c_str()), 1;
  double parse_seconds = seconds_since(start);
  model::LoadOptions options;
  options.tier = tier->tier;
  options.max_context = kContext + kDecodeSteps;
  options.max_batch_tokens = kContext;
  options.max_logit_rows = kMaxBatch;
  auto loaded = model::Model::load(*file, pool, options);
  if (!loaded.ok()) return std::fprintf(stderr, "%s\n", loaded.error().message.c_str()), 1;
  model::Model& model = **loaded;
  std::printf("%s, %d threads, %s\n", path.c_str(), threads, std::string(to_string(tier->tier)).c_str());
  std::printf("parse %.3f s, load %.2f s, weights %.1f MB, scratch %.1f MB\n", parse_seconds,
              seconds_since(start) - parse_seconds, static_cast<double>(model.weight_bytes()) * 1e-6,
              static_cast<double>(model.scratch_bytes()) * 1e-6);

  model::RunnerOptions runner_options;
  runner_options.num_blocks = kMaxBatch * (kContext + kDecodeSteps) / 16;
  SequenceRunner runner(model, pool, runner_options);
  const std::int64_t vocab = model.config().vocab_size;
  report("prefill 512", repeat, [&] { return prefill_rate(runner, vocab); });
  for (std::int64_t batch : {1, 8, 32}) {
    report(cat("decode, context 512, batch ", batch), repeat, [&] { return decode_rate(runner, vocab, batch); });
  }
  return 0;
}
