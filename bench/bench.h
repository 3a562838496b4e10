#pragma once
// What a benchmark program is: NAME_bench.cpp defines sections(), bench_main.cpp does the rest: flags, the report as a
// table and as JSON. The first line of NAME_bench.cpp, a comment, is what `./dev bench` says about it.
//
// A section measures one thing by the rounds of measure.h and adds rows to the report. --only NAME runs the sections
// whose name begins with NAME.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/cpu.h"
#include "quire/base/result.h"
#include "quire/report/report.h"

namespace quire::bench {

struct Options {
  int threads = 1;
  int rounds = 7;
  double seconds = 0.05;  ///< at least, for one figure of one round
  CpuTier tier = CpuTier::scalar;
  std::string model;  ///< a GGUF file, for the sections that run one; empty: none given
  std::string json;   ///< a file for the report; "-": standard output, without a table; empty: none
  std::vector<std::string> only;

  bool wants(std::string_view name) const;
};

struct Section {
  std::string_view name;
  Result<void> (*run)(const Options& options, report::Report& report);
};

std::span<const Section> sections();

}  // namespace quire::bench
