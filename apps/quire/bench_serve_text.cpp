#include "bench_serve.h"

#include <cmath>

#include "quire/base/cat.h"
#include "table.h"

namespace quire::cli {
namespace {

/// With as many digits as people compare.
std::string number_text(double number) {
  const bool is_whole = number == std::floor(number);
  return fixed(number, is_whole || number >= 1000 ? 0 : number < 10 ? 2 : 1);
}

void add_times(Table& table, const std::string& name, const loadgen::Distribution& d) {
  if (d.count == 0) return;
  table.add({name, number_text(d.p50), number_text(d.p90), number_text(d.p95), number_text(d.p99), number_text(d.max),
             number_text(d.mean)});
}

std::string share(std::uint64_t part, std::uint64_t all) {
  return all == 0 ? "-" : percent(static_cast<double>(part) / static_cast<double>(all));
}

}  // namespace

std::string load_as_text(const std::string& url, const std::string& model, const loadgen::Summary& s) {
  const std::uint64_t all = s.num_completed + s.num_failed;
  std::string out = cat(url, ", ", model, "\n\n");
  Table rates({"", "total", "per second"});
  const auto rate = [&](const char* name, auto amount) {
    rates.add({name, grouped(static_cast<std::uint64_t>(amount)), fixed(s.per_second(static_cast<double>(amount)), 2)});
  };
  rate("requests completed", s.num_completed);
  rate("prompt tokens", s.prompt_tokens);
  rate("output tokens", s.output_tokens);
  if (s.num_good) rate("requests within the limits", *s.num_good);
  out += rates.text() + "\n";
  Table times({"ms", "p50", "p90", "p95", "p99", "max", "mean"});
  add_times(times, "time to first token", s.ttft);
  add_times(times, "gap between tokens", s.gap);
  add_times(times, "worst gap of an answer", s.worst_gap);
  add_times(times, "time per output token", s.tpot);
  add_times(times, "whole request", s.e2e);
  if (s.ttft.count > 0) out += times.text() + "\n";
  out += cat("in ", fixed(s.duration_s, 2), " s; failed: ", s.num_failed, " of ", all);
  if (s.num_good) out += cat("; goodput: ", share(*s.num_good, all), " of the requests");
  out += "\n";
  for (const auto& [kind, failure] : s.failures) {
    out += cat("  ", failure.count, " x ", kind, failure.example.empty() ? "" : ": ", failure.example, "\n");
  }
  if (s.num_short > 0) out += cat(s.num_short, " answers had fewer tokens than asked for\n");
  constexpr double kLateMs = 10;
  if (s.late.p99 > kLateMs) {
    out += cat("this client was late: 1 % of the requests were sent ", number_text(s.late.p99),
               " ms or more after their time (counted in the times above)\n");
  }
  return out;
}

std::string comparison_as_text(const loadgen::Comparison& comparison) {
  Table table({"metric", "unit", "A", "B", "B / A"});
  for (const auto& row : comparison.rows) {
    table.add({row.metric, row.unit, number_text(row.a), number_text(row.b), row.ratio ? fixed(*row.ratio, 3) : "-"});
  }
  std::string out = table.text(2);
  for (const auto& difference : comparison.differences) out += "differs in " + difference + "\n";
  return out;
}

}  // namespace quire::cli
