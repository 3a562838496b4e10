// quire: the command line. See commands.h for how commands are added.

#include <exception>
#include <new>
#include <optional>
#include <string>

#include "commands.h"
#include "flags.h"
#include "quire/base/cat.h"
#include "terminal.h"

namespace {

/// Of "Could not convert: --blocks = 5x": what was found, and what is wanted. Flags that are no words are numbers.
std::string explain_conversion(const std::string& message) {
  constexpr std::string_view kStart = "Could not convert: ", kBetween = " = ";
  const std::size_t between = message.find(kBetween);
  if (!message.starts_with(kStart) || between == std::string::npos) return message;
  const std::string found = message.substr(between + kBetween.size());
  const bool is_whole = found.find_first_not_of("+-0123456789") == std::string::npos;
  return quire::cat(message.substr(kStart.size(), between - kStart.size()), ": found '", found, "', wanted a number",
                    is_whole ? " of fewer digits" : "");
}

/// CLI11's message as one line, with where to look next.
int refuse_command_line(const CLI::App& app, const CLI::ParseError& error) {
  std::string message = error.what();
  message = explain_conversion(message.substr(0, message.find('\n')));
  std::string command = "quire";
  for (const auto* chosen = &app; !chosen->get_subcommands().empty();) {
    chosen = chosen->get_subcommands().front();
    command += " " + chosen->get_name();
  }
  quire::cli::report(message + " (see " + command + " --help)");
  return quire::cli::kUsage;
}

/// The first word if it names no command, which CLI11 would report as a missing one.
std::optional<std::string> unknown_command(CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return std::nullopt;
  std::string names;
  for (const auto* command : app.get_subcommands({})) {
    if (command->get_name() == argv[1]) return std::nullopt;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return quire::cat("'", argv[1], "' is not a command; wanted one of ", names);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace quire::cli;
  keep_standard_streams_open();

  CLI::App app("Quire serves language models; every request's KV cache lies in blocks.", "quire");
  app.set_version_flag("--version", std::string("quire ") + QUIRE_VERSION);
  app.require_subcommand(1);
  Action chosen;
  add_serve(app, chosen);
  add_chat(app, chosen);
  add_generate(app, chosen);
  add_inspect(app, chosen);
  add_tokenize(app, chosen);
  add_score(app, chosen);
  add_quantize(app, chosen);
  add_bench(app, chosen);
  add_sim(app, chosen);
  add_plan(app, chosen);
  add_calibrate(app, chosen);
  check_numbers(app);

  if (auto message = unknown_command(app, argc, argv)) return report(*message), kUsage;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    return refuse_command_line(app, error);
  }
  try {
    int code = chosen();
    return flush_output() ? code : kFailed;
  } catch (const std::bad_alloc&) {
    report("out of memory; a smaller --ctx, --kv-memory or --max-batch-tokens needs less");
  } catch (const std::exception& error) {
    report(error.what());
  }
  return kFailed;
}
