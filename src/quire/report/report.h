#pragma once
// Report: what a benchmark prints, as a table on the screen and as JSON in a file. Every benchmark of Quire has this
// shape, whichever program measures it (bench/peers/report.py is the same in Python):
//
//   {"name", "machine", "subject", "rows": [{"metric", "value", "unit", "against", "peer", "ratio", "spread", "target",
//   "bound",
//                                 "holds"}]}
//
// A row has a value and may have a peer: the same quantity of something else, measured in the same rounds; `against`
// names it. ratio = value / peer, the median of the ratios within a round, so that a shared machine disturbs both sides
// alike. spread = the interquartile range over the median, of the ratios if there are any, else of the values. The
// target is for the ratio if there is one, else for the value; holds = it is met. What does not exist is null.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/cpu.h"
#include "quire/base/result.h"

namespace quire::report {

enum class Bound { at_least, at_most };

struct Target {
  double value = 0;
  Bound bound = Bound::at_least;
};

inline Target at_least(double value) { return {value, Bound::at_least}; }
inline Target at_most(double value) { return {value, Bound::at_most}; }

struct Row {
  std::string metric;
  double value = 0;
  std::string unit;
  std::string against;  ///< what the peer is; empty without one
  std::optional<double> peer = {}, ratio = {}, spread = {};
  std::optional<Target> target = {};

  std::optional<bool> holds() const;
};

struct Report {
  std::string name;
  std::string machine;
  std::string subject = {};  ///< what was measured, if not Quire at large: the model; may be empty
  std::vector<Row> rows = {};
};

/// Of at least one value.
double median(std::vector<double> values);
/// The interquartile range over the median; nullopt for fewer than three values or a median of 0.
std::optional<double> relative_spread(std::vector<double> values);

struct Metric {
  std::string name;
  std::string unit;
  std::optional<Target> target = {};
};

/// One value a round, at least one.
Row make_row(Metric metric, const std::vector<double>& values);
/// values[i] and peers[i] come from the same round.
Row make_row(Metric metric, const std::vector<double>& values, std::string against, const std::vector<double>& peers);

/// "AMD EPYC 9354", as the system calls it; "unknown CPU" if it does not.
std::string cpu_name();
/// "AMD EPYC 9354, 2 threads, avx512vnni".
std::string describe_machine(CpuTier tier, int threads);

std::string as_json(const Report& report);
std::string as_table(const Report& report);

/// Replaces the file; "-" is the standard output.
Result<void> write_json(const Report& report, const std::string& path);

}  // namespace quire::report
