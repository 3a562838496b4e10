// quire: the command line. See commands.h for how commands are added.

#include <algorithm>
#include <exception>
#include <new>
#include <string>

#include "commands.h"
#include "terminal.h"

namespace {

/// CLI11's message as one line, with where to look next.
int refuse_command_line(const CLI::App& app, const CLI::ParseError& error) {
  std::string message = error.what();
  message = message.substr(0, message.find('\n'));
  std::string command = "quire";
  for (const auto* chosen = &app; !chosen->get_subcommands().empty();) {
    chosen = chosen->get_subcommands().front();
    command += " " + chosen->get_name();
  }
  quire::cli::report(message + " (see " + command + " --help)");
  return quire::cli::kUsage;
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
  add_bench(app, chosen);

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
