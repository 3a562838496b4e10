#pragma once
// What `quire bench serve` and `quire bench compare` print.

#include <CLI/CLI.hpp>
#include <string>

#include "commands.h"
#include "quire/loadgen/summary.h"

namespace quire::cli {

void add_bench_serve(CLI::App& bench, Action& chosen);

std::string load_as_text(const std::string& url, const std::string& model, const loadgen::Summary& summary);
std::string comparison_as_text(const loadgen::Comparison& comparison);

}  // namespace quire::cli
