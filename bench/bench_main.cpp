// main() of every benchmark program.
//
//   build/NAME_bench [--json FILE] [--only SECTION]... [--threads N] [--rounds N] [--seconds S] [--model FILE]
//
// QUIRE_CPU forces a CPU tier.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "bench/bench.h"
#include "quire/base/cat.h"
#include "quire/engine/memory.h"

namespace quire::bench {
namespace {

Result<void> run_sections(const Options& options, report::Report& report) {
  for (const Section& section : sections()) {
    if (!options.wants(section.name)) continue;
    std::fprintf(stderr, "%s: %s ...\n", report.name.c_str(), std::string(section.name).c_str());
    if (auto done = section.run(options, report); !done.ok()) return fail(section.name, ": ", done.error().message);
  }
  if (!report.rows.empty()) return {};
  std::string names;
  for (const Section& section : sections()) names += cat(names.empty() ? "" : ", ", section.name);
  return fail("--only matches no section; there are: ", names);
}

Result<void> run(const Options& options, report::Report& report) {
  const char* forced = std::getenv("QUIRE_CPU");
  QUIRE_TRY(CpuChoice choice, choose_cpu_tier(forced == nullptr ? "" : forced));
  Options with_tier = options;
  with_tier.tier = choice.tier;
  report.machine = report::describe_machine(choice.tier, options.threads);
  QUIRE_TRY_VOID(run_sections(with_tier, report));
  if (options.json != "-") std::fputs(report::as_table(report).c_str(), stdout);
  if (!options.json.empty()) return report::write_json(report, options.json);
  return {};
}

std::string program_name(const char* path) {
  std::string name = std::filesystem::path(path).stem().string();
  return name.ends_with("_bench") ? name.substr(0, name.size() - 6) : name;
}

}  // namespace

bool Options::wants(std::string_view name) const {
  if (only.empty()) return true;
  for (const std::string& part : only) {
    if (name.starts_with(part)) return true;
  }
  return false;
}

}  // namespace quire::bench

int main(int argc, char** argv) {
  using namespace quire::bench;
  Options options;
  options.threads = std::max(1, quire::engine::available_cores());
  CLI::App app;
  app.add_option("--json", options.json, "Also write the rows to this file; -: only JSON, to the standard output");
  app.add_option("--only", options.only, "Only sections whose name begins like this");
  app.add_option("--threads", options.threads, "Threads that compute")->check(CLI::Range(1, 1024));
  app.add_option("--rounds", options.rounds, "Rounds; every figure is a median over them")->check(CLI::Range(1, 10000));
  app.add_option("--seconds", options.seconds, "Time for one figure of one round, at least")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--model", options.model, "A model in GGUF format, for the sections that run one");
  CLI11_PARSE(app, argc, argv);
  quire::report::Report report{.name = program_name(argv[0]), .machine = ""};
  if (auto done = run(options, report); !done.ok()) {
    return std::fprintf(stderr, "%s: %s\n", report.name.c_str(), done.error().message.c_str()), 1;
  }
  return 0;
}
