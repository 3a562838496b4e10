#pragma once
// The subcommands of `quire sim`, one file each, and what they share.

#include <string>

#include "commands.h"
#include "quire/base/result.h"
#include "quire/json/json.h"

namespace quire::cli {

/// Flags that every simulation takes.
struct SimFlags {
  std::string json_path, html_path;
  std::uint64_t seed = 42;
  const CLI::App* command = nullptr;  ///< to which they were added
};
void add_sim_flags(CLI::App& command, SimFlags& flags);

/// The command and the flags that were given, in the order of --help; not where the results go.
std::string command_line(const CLI::App& command);

/// The first members of every report: the command line that gives it again, Quire's version, the seed.
json::Object sim_report_head(const SimFlags& flags);

/// Writes the report to --json FILE, if that was given.
Result<void> write_sim_json(const SimFlags& flags, const json::Object& report);

/// Runs `action`; prints its error as "sim: ...".
int run_sim(const std::function<Result<void>()>& action);

void add_sim_exercise(CLI::App& sim, Action& chosen);
void add_sim_paper(CLI::App& sim, Action& chosen);
void add_sim_run(CLI::App& sim, Action& chosen);
void add_sim_trace(CLI::App& sim, Action& chosen);
void add_sim_page(CLI::App& sim, Action& chosen);
void add_sim_record_beams(CLI::App& sim, Action& chosen);

}  // namespace quire::cli
