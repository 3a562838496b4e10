// quire sim: exercises, papers and traces on the engine's own core, in virtual time.

#include "sim.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "flags.h"
#include "terminal.h"

namespace quire::cli {

void add_sim_flags(CLI::App& command, SimFlags& flags) {
  command.add_option("--json", flags.json_path, "Write the whole result to this file, as JSON");
  command.add_option("--html", flags.html_path, "Write a page with charts to this file, complete in itself");
  command.add_option("--seed", flags.seed, "Of all random numbers; the same seed gives the same result everywhere")
      ->check(whole_number())
      ->capture_default_str();
  flags.command = &command;
}

std::string command_line(const CLI::App& command) {
  std::string out;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    out = out.empty() ? app->get_name() : cat(app->get_parent() == nullptr ? "quire" : app->get_name(), " ", out);
  }
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "--html" || name == "--json" || name == "--events") continue;
    if (!option->get_positional()) out += " " + name;
    const bool is_list = option->get_delimiter() != '\0';
    bool is_first = true;
    for (const std::string& word : option->results()) {
      if (option->get_expected_max() == 0) continue;
      out += is_list && !is_first ? std::string(1, option->get_delimiter()) : " ";
      out += shell_quoted(word);
      is_first = false;
    }
  }
  return out;
}

json::Object sim_report_head(const SimFlags& flags) {
  return json::Object{{"command", command_line(*flags.command)}, {"version", QUIRE_VERSION}, {"seed", flags.seed}};
}

Result<void> write_sim_json(const SimFlags& flags, const json::Object& report) {
  if (flags.json_path.empty()) return {};
  std::ofstream out(flags.json_path, std::ios::binary);
  out << json::dump(json::Value(report), {.indent = 1}) << '\n';
  out.close();
  if (!out) return fail(flags.json_path, ": ", std::strerror(errno));
  return {};
}

int run_sim(const std::function<Result<void>()>& action) {
  const auto done = action();
  if (done.ok()) return kDone;
  flush_output();
  report("sim: " + done.error().message);
  return kFailed;
}

void add_sim(CLI::App& app, Action& chosen) {
  auto* sim =
      app.add_subcommand("sim", "Simulations in virtual time, on the engine's own scheduler and memory manager");
  sim->require_subcommand(1);
  add_sim_exercise(*sim, chosen);
  add_sim_paper(*sim, chosen);
  add_sim_run(*sim, chosen);
  add_sim_trace(*sim, chosen);
  add_sim_page(*sim, chosen);
  add_sim_record_beams(*sim, chosen);
}

}  // namespace quire::cli
