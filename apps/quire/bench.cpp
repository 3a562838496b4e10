// quire bench: the engine timed in process, as its clients see it: sampling and delivery included.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "answers.h"
#include "bench_serve.h"
#include "commands.h"
#include "flags.h"
#include "quire/base/rng.h"
#include "quire/report/report.h"
#include "terminal.h"

namespace quire::cli {
namespace {

struct BenchFlags {
  engine::EngineOptions engine;
  std::int32_t context = 512, steps = 64, tokens = 512, repeat = 5;
  std::vector<std::int32_t> batch = {1, 8, 32};
  std::string json;  ///< a file; "-": standard output, without the table; empty: none
};

/// Tokens/s from the milliseconds of steps of so many tokens.
report::Row make_row(std::string metric, std::int32_t tokens, const std::vector<double>& ms) {
  std::vector<double> rates;
  for (double each : ms) rates.push_back(tokens * 1000.0 / each);
  return report::make_row({std::move(metric), "tokens/s"}, rates);
}

using Clock = std::chrono::steady_clock;

struct DecodeRun {
  DeltaQueue queue;
  std::vector<std::vector<Clock::time_point>> arrivals;  ///< [batch] when each token came; the engine's thread writes
};

/// The prompts are computed one or two a step, while those before decode: room for that, then the measured steps.
std::int32_t answer_tokens(const BenchFlags& flags, std::int32_t batch) { return 2 * batch + flags.steps + 4; }

class Bench {
 public:
  Bench(engine::Engine& engine, const BenchFlags& flags) : engine_(engine), flags_(flags) {}

  /// Time to the first token of prompts that are alone.
  Result<report::Row> prefill() {
    std::vector<double> ms;
    for (std::int32_t i = 0; i <= flags_.repeat; ++i) {
      DeltaQueue queue;
      QUIRE_TRY_VOID(submit(request(flags_.tokens, 1), [&queue](engine::Delta d) { queue.push(0, std::move(d)); }));
      engine::Delta delta = queue.pop().delta;
      while (!delta.finish) delta = queue.pop().delta;
      if (i > 0) ms.push_back(static_cast<double>(delta.timings.prefill_ns) / 1e6);  // the first one warms up
    }
    return make_row(cat("prefill ", flags_.tokens), flags_.tokens, ms);
  }

  /// Steps in which `batch` requests decode one token each, all of them with at least flags.context tokens before it.
  Result<report::Row> decode(std::int32_t batch) {
    if (batch > engine_.info().max_batch_rows) {
      return fail("--batch: found ", batch, ", wanted at most --max-batch-rows, ", engine_.info().max_batch_rows);
    }
    // Held by the callbacks too: on an error they outlive this function.
    auto run = std::make_shared<DecodeRun>();
    auto& arrivals = run->arrivals;
    arrivals.resize(static_cast<std::size_t>(batch));
    auto before = engine_.stats();
    const std::int32_t max_tokens = answer_tokens(flags_, batch);
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
      QUIRE_TRY_VOID(submit(request(flags_.context, max_tokens), [run, i](engine::Delta delta) {
        if (!delta.tokens.empty()) run->arrivals[i].push_back(Clock::now());
        run->queue.push(i, std::move(delta));
      }));
    }
    for (std::size_t open = arrivals.size(); open > 0;) {
      if (run->queue.pop().delta.finish) --open;
    }
    if (engine_.stats().preemptions != before.preemptions) {
      return fail("the KV cache is too small for batch ", batch, " at context ", flags_.context,
                  ": requests were preempted; give more --kv-memory");
    }
    // The request that came last has the fewest tokens: from its first token on, everyone decodes.
    std::size_t last = 0;
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
      if (arrivals[i].front() > arrivals[last].front()) last = i;
    }
    auto all_running_until = arrivals[last].back();
    for (const auto& mine : arrivals) all_running_until = std::min(all_running_until, mine.back());
    std::vector<double> ms;
    for (std::size_t i = 1; i < arrivals[last].size() && ms.size() < static_cast<std::size_t>(flags_.steps); ++i) {
      if (arrivals[last][i] > all_running_until + std::chrono::milliseconds(1)) break;
      ms.push_back(std::chrono::duration<double, std::milli>(arrivals[last][i] - arrivals[last][i - 1]).count());
    }
    if (ms.empty()) return fail("no step had all ", batch, " requests decoding; give more --steps");
    return make_row(cat("decode batch ", batch, " context ", flags_.context), batch, ms);
  }

 private:
  engine::GenerateRequest request(std::int32_t prompt_tokens, std::int32_t max_tokens) {
    engine::GenerateRequest request;
    for (std::int32_t i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back(TokenId{static_cast<std::int32_t>(rng_.between(0, engine_.info().vocab_size - 1))});
    }
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    return request;
  }

  Result<void> submit(engine::GenerateRequest request, engine::Engine::Callback callback) {
    auto submitted = engine_.submit(std::move(request), std::move(callback));
    if (!submitted.id) return fail(submitted.refusal.message);
    return {};
  }

  engine::Engine& engine_;
  const BenchFlags& flags_;
  Rng rng_{1};
};

/// Unless they are given: no more context and rows than the measurement needs, since KV memory follows from them.
void fit(BenchFlags& flags, std::string_view name) {
  const std::int32_t batch = name == "step" ? *std::max_element(flags.batch.begin(), flags.batch.end()) : 1;
  const std::int64_t needed = name == "step" ? flags.context + answer_tokens(flags, batch) : flags.tokens + 1;
  if (flags.engine.context == 0) flags.engine.context = needed;
  flags.engine.max_batch_rows = std::min<std::int64_t>(flags.engine.max_batch_rows, batch);
}

int bench(BenchFlags flags, std::string_view name) {
  fit(flags, name);
  auto engine = open_engine(flags.engine);
  if (!engine.ok()) return report(engine.error().message), kFailed;
  Bench bench(**engine, flags);
  const engine::EngineInfo& info = (*engine)->info();
  report::Report result{
      .name = std::string(name),
      .machine = report::describe_machine(info.cpu_tier, info.threads),
      .subject = cat(info.model_name, " ", info.quantization, ", KV ", info.kv_type),
  };
  auto add = [&result](Result<report::Row> row) {
    if (!row.ok()) return report(cat("bench: ", row.error().message)), false;
    result.rows.push_back(std::move(*row));
    return true;
  };
  if (name == "prefill") {
    if (!add(bench.prefill())) return kFailed;
  } else {
    for (std::int32_t batch : flags.batch) {
      if (!add(bench.decode(batch))) return kFailed;
    }
  }
  if (flags.json != "-") write_output(report::as_table(result));
  if (flags.json.empty()) return kDone;
  auto written = report::write_json(result, flags.json);
  if (!written.ok()) report(cat("bench: ", written.error().message));
  return written.ok() ? kDone : kFailed;
}

void add_common(CLI::App& command, BenchFlags& flags) {
  add_model(command, flags.engine.model_path);
  command.add_option("--json", flags.json, "Also write the rows to this file; -: only JSON, to the standard output");
  add_engine_flags(command, flags.engine);
}

}  // namespace

void add_bench(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<BenchFlags>();
  auto* command = app.add_subcommand("bench", "Time the engine in this process, or a server over HTTP");
  command->require_subcommand(1);

  auto* step = command->add_subcommand("step", "Decode steps: every request of a batch gets one token");
  step->add_option("--context", flags->context, "Tokens in front of the measured ones")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  step->add_option("--batch", flags->batch, "Requests that decode together: 1,8,32")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16));
  step->add_option("--steps", flags->steps, "Steps measured for each batch")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_common(*step, *flags);
  step->callback([flags, &chosen] { chosen = [flags] { return bench(*flags, "step"); }; });

  auto* prefill = command->add_subcommand("prefill", "Time to the first token of one prompt");
  prefill->add_option("--tokens", flags->tokens, "Length of the prompt")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  prefill->add_option("--repeat", flags->repeat, "Prompts measured, after one that is not")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_common(*prefill, *flags);
  prefill->callback([flags, &chosen] { chosen = [flags] { return bench(*flags, "prefill"); }; });

  add_bench_serve(*command, chosen);
}

}  // namespace quire::cli
