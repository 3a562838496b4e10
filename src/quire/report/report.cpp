#include "quire/report/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/json/json.h"

namespace quire::report {
namespace {

/// Between the two neighbours, in proportion.
double quantile(std::span<const double> sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

std::string_view symbol(Bound bound) { return bound == Bound::at_least ? ">=" : "<="; }

json::Value number_or_null(std::optional<double> number) {
  return number && std::isfinite(*number) ? json::Value(*number) : json::Value();
}

/// Four significant digits, large numbers as integers.
std::string figure(double value) {
  char text[40];
  const double size = std::fabs(value);
  const int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 || size == 0 ? 3 : 5;
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string with_suffix(std::optional<double> value, const char* format) {
  if (!value) return "";
  char text[40];
  std::snprintf(text, sizeof text, format, *value);
  return text;
}

constexpr std::size_t kColumns = 8;
using Cells = std::array<std::string, kColumns>;

Cells cells_of(const Row& row) {
  const std::optional<bool> holds = row.holds();
  char target[48] = "";
  if (row.target) {
    std::snprintf(target, sizeof target, "%s %g%s", std::string(symbol(row.target->bound)).c_str(), row.target->value,
                  row.ratio ? "x" : "");
  }
  return {row.metric,
          figure(row.value),
          row.unit,
          row.peer ? cat(figure(*row.peer), " ", row.against) : "",
          with_suffix(row.ratio, "%.3fx"),
          row.spread ? with_suffix(*row.spread * 100, "%.1f %%") : "",
          target,
          !holds   ? ""
          : *holds ? "holds"
                   : "MISSED"};
}

}  // namespace

std::optional<bool> Row::holds() const {
  if (!target) return std::nullopt;
  const double judged = ratio.value_or(value);
  return target->bound == Bound::at_least ? judged >= target->value : judged <= target->value;
}

double median(std::vector<double> values) {
  QUIRE_CHECK(!values.empty(), "the median of nothing");
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

std::optional<double> relative_spread(std::vector<double> values) {
  if (values.size() < 3) return std::nullopt;
  std::sort(values.begin(), values.end());
  const double middle = quantile(values, 0.5);
  if (middle == 0) return std::nullopt;
  return (quantile(values, 0.75) - quantile(values, 0.25)) / std::fabs(middle);
}

Row make_row(Metric metric, const std::vector<double>& values) {
  return {.metric = std::move(metric.name),
          .value = median(values),
          .unit = std::move(metric.unit),
          .against = "",
          .spread = relative_spread(values),
          .target = metric.target};
}

Row make_row(Metric metric, const std::vector<double>& values, std::string against, const std::vector<double>& peers) {
  QUIRE_CHECK(values.size() == peers.size(), values.size(), " values, ", peers.size(), " peers");
  std::vector<double> ratios;
  for (std::size_t i = 0; i < values.size(); ++i) ratios.push_back(values[i] / peers[i]);
  Row row = make_row(std::move(metric), values);
  row.against = std::move(against);
  row.peer = median(peers);
  row.ratio = median(ratios);
  row.spread = relative_spread(ratios);
  return row;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::string describe_machine(CpuTier tier, int threads) {
  return cat(cpu_name(), ", ", threads, threads == 1 ? " thread, " : " threads, ", to_string(tier));
}

std::string as_json(const Report& report) {
  json::Array rows;
  for (const Row& row : report.rows) {
    const std::optional<bool> holds = row.holds();
    rows.emplace_back(json::Object{
        {"metric", row.metric},
        {"value", number_or_null(row.value)},
        {"unit", row.unit},
        {"against", row.against.empty() ? json::Value() : json::Value(row.against)},
        {"peer", number_or_null(row.peer)},
        {"ratio", number_or_null(row.ratio)},
        {"spread", number_or_null(row.spread)},
        {"target", row.target ? json::Value(row.target->value) : json::Value()},
        {"bound", row.target ? json::Value(symbol(row.target->bound)) : json::Value()},
        {"holds", holds ? json::Value(*holds) : json::Value()},
    });
  }
  return json::dump(json::Object{{"name", report.name},
                                 {"machine", report.machine},
                                 {"subject", report.subject.empty() ? json::Value() : json::Value(report.subject)},
                                 {"rows", std::move(rows)}}) +
         "\n";
}

std::string as_table(const Report& report) {
  std::vector<Cells> lines = {{"metric", "value", "unit", "peer", "ratio", "spread", "target", ""}};
  for (const Row& row : report.rows) lines.push_back(cells_of(row));
  std::array<std::size_t, kColumns> widths{};
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out =
      cat(report.name, " on ", report.machine, report.subject.empty() ? "" : "; ", report.subject, "\n\n");
  for (const Cells& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < kColumns; ++i) {
      const std::string padding(widths[i] - line[i].size(), ' ');
      const bool is_number = i == 1 || i == 4 || i == 5;
      text += is_number ? padding + line[i] : line[i] + padding;
      if (i + 1 < kColumns && widths[i] > 0) text += "  ";
    }
    text.resize(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

Result<void> write_json(const Report& report, const std::string& path) {
  const std::string text = as_json(report);
  if (path == "-") {
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return fail("cannot write standard output");
    return {};
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return fail("cannot write ", path);
  return {};
}

}  // namespace quire::report
