// quire bench: the engine timed in process, as its clients see it: sampling and delivery included.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench_serve.h"
#include "commands.h"
#include "flags.h"
#include "quire/planning/engine_timer.h"
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

/// Time to the first token of prompts that are alone.
Result<report::Row> prefill(engine::Engine& engine, const BenchFlags& flags) {
  std::vector<double> ms;
  for (std::int32_t i = 0; i <= flags.repeat; ++i) {
    QUIRE_TRY(const double each, planning::time_prefill(engine, flags.tokens, static_cast<std::uint64_t>(i)));
    if (i > 0) ms.push_back(each);  // the first one warms up
  }
  return make_row(cat("prefill ", flags.tokens), flags.tokens, ms);
}

planning::DecodeLoad load_of(const BenchFlags& flags, std::int32_t batch) {
  return {.batch = batch, .context = flags.context, .steps = flags.steps};
}

Result<report::Row> decode(engine::Engine& engine, const BenchFlags& flags, std::int32_t batch) {
  if (batch > engine.info().max_batch_rows)
    return fail("--batch: found ", batch, ", wanted at most --max-batch-rows, ", engine.info().max_batch_rows);
  QUIRE_TRY(const auto ms, planning::time_decode(engine, load_of(flags, batch)));
  return make_row(cat("decode batch ", batch, " context ", flags.context), batch, ms);
}

/// Unless they are given: no more context and rows than the measurement needs, since KV memory follows from them.
void fit(BenchFlags& flags, std::string_view name) {
  const std::int32_t batch = name == "step" ? *std::max_element(flags.batch.begin(), flags.batch.end()) : 1;
  const std::int64_t needed = name == "step" ? planning::tokens_of_request(load_of(flags, batch)) : flags.tokens + 1;
  if (flags.engine.context == 0) flags.engine.context = needed;
  flags.engine.max_batch_rows = std::min<std::int64_t>(flags.engine.max_batch_rows, batch);
}

int bench(BenchFlags flags, std::string_view name) {
  fit(flags, name);
  auto engine = open_engine(flags.engine);
  if (!engine.ok()) return report(engine.error().message), kFailed;
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
    if (!add(prefill(**engine, flags))) return kFailed;
  } else {
    for (std::int32_t batch : flags.batch) {
      if (!add(decode(**engine, flags, batch))) return kFailed;
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
