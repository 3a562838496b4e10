#pragma once
// The subcommands of `quire sim`, one file each, and what they share.

#include <string>

#include "commands.h"
#include "quire/base/result.h"
#include "quire/json/json.h"

namespace quire::cli {

/// Flags that every simulation takes.
struct SimFlags {
  std::string json_path;
  std::uint64_t seed = 42;
};
void add_sim_flags(CLI::App& command, SimFlags& flags);

/// The first members of every report: the command, Quire's version, the seed.
json::Object sim_report_head(const std::string& command, const SimFlags& flags);

/// Writes the report to --json FILE, if that was given.
Result<void> write_sim_json(const SimFlags& flags, const json::Object& report);

/// Runs `action`; prints its error as "sim: ...".
int run_sim(const std::function<Result<void>()>& action);

void add_sim_exercise(CLI::App& sim, Action& chosen);

}  // namespace quire::cli
