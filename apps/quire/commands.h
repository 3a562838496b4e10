#pragma once
// The subcommands of `quire`, one file each. add_x() declares the command and its flags; the chosen command leaves what
// is to be done in `chosen`, and main() runs it.
//
// Exit codes: 0 done; 1 it could not be done (a bad file, no memory, a full disk); 2 the command line is wrong.
// Errors are one line on stderr that starts with "quire: ".

#include <CLI/CLI.hpp>
#include <functional>

namespace quire::cli {

inline constexpr int kDone = 0, kFailed = 1, kUsage = 2;

/// What the chosen command does; returns the exit code.
using Action = std::function<int()>;

void add_serve(CLI::App& app, Action& chosen);
void add_chat(CLI::App& app, Action& chosen);
void add_generate(CLI::App& app, Action& chosen);
void add_inspect(CLI::App& app, Action& chosen);
void add_tokenize(CLI::App& app, Action& chosen);
void add_score(CLI::App& app, Action& chosen);
void add_quantize(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);
void add_sim(CLI::App& app, Action& chosen);
void add_plan(CLI::App& app, Action& chosen);
void add_calibrate(CLI::App& app, Action& chosen);

}  // namespace quire::cli
