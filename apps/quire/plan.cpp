// quire plan MODEL: what fits, how many requests at once, the rate that holds the limits, what binds, what to change.

#include "plan.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "commands.h"
#include "flags.h"
#include "quire/engine/memory.h"
#include "quire/json/reader.h"
#include "sim_page.h"
#include "terminal.h"

namespace quire::cli {
namespace {

planning::Memory memory_of(const PlanFlags& flags) {
  if (flags.memory_bytes > 0) return {flags.memory_bytes, "given by --memory"};
  const engine::FreeMemory free = engine::free_memory();
  return {free.bytes, cat("free ", free.source)};
}

/// "STAGE 42 %" on stderr, on a terminal only.
std::function<void(std::string_view, double)> progress_of(std::optional<Progress>& line, std::string& shown) {
  return [&line, &shown](std::string_view stage, double fraction) {
    if (shown != stage) {
      shown = stage;
      line.emplace(shown);
    }
    line->show(fraction);
  };
}

Result<planning::PlanInput> read_input(const PlanFlags& flags, std::string& no_cost) {
  if (flags.memory_bytes == 0 && flags.common.command->count("--memory") > 0)
    return fail("--memory: found 0, wanted a size such as 16GiB");
  planning::PlanInput input;
  input.options = flags.engine;
  input.memory = memory_of(flags);
  auto load = planning::open_load(flags.workload, flags.common.seed);
  if (!load.ok()) return fail("--workload: ", load.error().message);
  input.load = *std::move(load);
  if (auto added = planning::add_shared_prefix(input.load, flags.shared_prefix); !added.ok())
    return fail("--shared-prefix: ", added.error().message);
  input.arrivals = flags.arrivals;
  if (auto parsed = ArrivalProcess::parse(flags.arrivals, 1); !parsed.ok())
    return fail("--arrivals: ", parsed.error().message);
  auto limits = planning::parse_limits(flags.limits.empty() ? input.load.default_limits : flags.limits);
  if (!limits.ok()) return fail("--slo: ", limits.error().message);
  input.limits = *std::move(limits);
  if (flags.rate && !(*flags.rate > 0 && *flags.rate <= 1e9))
    return fail("--rate: found ", *flags.rate, ", wanted requests a second, above 0");
  input.rate = flags.rate;
  input.num_requests = flags.num_requests;
  input.seed = flags.common.seed;
  input.threads = engine::available_cores();
  QUIRE_TRY(input.make_cost, choose_cost(flags, no_cost));
  return input;
}

Result<void> run_plan(PlanFlags& flags) {
  QUIRE_TRY_VOID(read_environment(flags.engine));
  std::string no_cost;
  QUIRE_TRY(planning::PlanInput input, read_input(flags, no_cost));
  std::vector<MeasuredPart> measured;
  if (!flags.measured_path.empty()) {
    QUIRE_TRY(measured, read_measured(flags.measured_path));
  }
  QUIRE_TRY(const model::GgufFile file, model::GgufFile::open(flags.engine.model_path));
  std::optional<Progress> line;
  std::string shown;
  input.progress = progress_of(line, shown);
  QUIRE_TRY(planning::Plan plan, planning::make_plan(input, file));
  line.reset();
  if (!input.make_cost) plan.no_performance = no_cost;
  write_output(plan_as_text(plan, measured));
  json::Object out = sim_report_head(flags.common);
  append_plan(out, plan, measured);
  QUIRE_TRY_VOID(write_sim_json(flags.common, out));
  return write_sim_page(flags.common, plan_page(flags, plan));
}

}  // namespace

Result<std::vector<MeasuredPart>> read_measured(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text;
  if (!in || !std::getline(in, text)) return fail(path, ": cannot be read; wanted what `quire serve --json` printed");
  auto value = json::parse(text);
  if (!value.ok()) return fail(path, ": ", value.error().message);
  QUIRE_TRY(const json::Object* object, json::read_object(*value, path));
  json::ObjectReader reader(*object);
  constexpr std::pair<const char*, const char*> kFields[] = {{"weights", "weight_bytes"},
                                                             {"KV pool", "kv_store_bytes"},
                                                             {"working memory", "scratch_bytes"},
                                                             {"RAM tier", "kv_ram_bytes"}};
  std::vector<MeasuredPart> parts;
  for (const auto& [name, field] : kFields) {
    auto bytes = reader.required_int(field, {.min = 0});
    if (!bytes.ok()) return fail(path, ": ", bytes.error().message);
    parts.push_back({name, static_cast<std::uint64_t>(*bytes)});
  }
  return parts;
}

std::string serve_command(const planning::Plan& plan) {
  return cat("quire serve ", shell_quoted(plan.fit.info.model_path), engine_flags_text(plan.fit.options));
}

void add_plan(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<PlanFlags>();
  auto* command = app.add_subcommand(
      "plan", "What fits, how many requests at once, the rate that holds limits on latency, and what to change");
  add_model(*command, flags->engine.model_path);
  add_bytes(*command, "--memory", flags->memory_bytes, "Memory of the machine for all of it, as in 16GiB",
            "what is free here");
  command
      ->add_option("--workload", flags->workload,
                   "chat, conversation, code, batch, PROMPT/ANSWER as in uniform:50,500/fixed:100, or a trace file")
      ->capture_default_str();
  command->add_option("--shared-prefix", flags->shared_prefix, "Tokens that all prompts begin with besides")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--arrivals", flags->arrivals, "How requests come: poisson, gamma:CV, weibull:CV, on-off:ON,OFF")
      ->capture_default_str();
  command->add_option("--slo", flags->limits,
                      "Limits to hold, as in ttft_p95=1s,itl_p99=100ms (default: the workload's)");
  command->add_option("--rate", flags->rate, "Requests a second that replicas are counted for");
  command->add_option("--requests", flags->num_requests, "Requests of each simulation")
      ->check(CLI::Range(50, 100'000))
      ->capture_default_str();
  command->add_option("--measured", flags->measured_path,
                      "A file with the line that `quire serve --json` printed, to stand beside the plan");
  auto* calibration =
      command->add_option("--calibration", flags->calibration_path,
                          "How long steps take, measured by `quire calibrate` (default: this machine's, if there is)");
  auto* cost = command->add_option("--cost", flags->cost_name,
                                   "Instead: opt-13b or yi-34b, published measurements of GPUs, or a profile, "
                                   "FILE[,MODEL[,GPUS]] (docs/simulator.md)");
  command
      ->add_option("--roofline", flags->roofline,
                   "Instead: GB/s, T operations/s and, if wanted, ms that every step takes besides; the rest is the "
                   "model's")
      ->delimiter(',')
      ->expected(2, 3)
      ->excludes(calibration)
      ->excludes(cost);
  cost->excludes(calibration);
  add_engine_flags(*command, flags->engine);
  add_sim_flags(*command, flags->common);
  command->callback([flags, &chosen] {
    chosen = [flags] {
      const auto done = run_plan(*flags);
      if (done.ok()) return kDone;
      flush_output();
      report(done.error().message);
      return kFailed;
    };
  });
}

}  // namespace quire::cli
