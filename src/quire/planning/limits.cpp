#include "quire/planning/limits.h"

#include <algorithm>

#include "quire/base/check.h"
#include "quire/workload/numbers.h"

namespace quire::planning {
namespace {

struct NamedMetric {
  std::string_view name;
  Metric metric;
  Histogram SimulationResult::*times;
};
constexpr NamedMetric kMetrics[] = {{"ttft", Metric::ttft, &SimulationResult::ttft_ns},
                                    {"itl", Metric::itl, &SimulationResult::inter_token_ns},
                                    {"e2e", Metric::e2e, &SimulationResult::end_to_end_ns},
                                    {"queue", Metric::queue, &SimulationResult::queue_ns},
                                    {"normalized", Metric::normalized, &SimulationResult::normalized_ns}};

struct Unit {
  std::string_view name;
  double ns;
};
constexpr Unit kUnits[] = {{"us", 1e3}, {"ms", 1e6}, {"min", 60e9}, {"s", 1e9}};

const NamedMetric& row_of(Metric metric) {
  for (const NamedMetric& row : kMetrics)
    if (row.metric == metric) return row;
  QUIRE_CHECK(false, "unknown metric");
}

std::optional<std::uint32_t> parse_which(std::string_view text) {
  if (text == "mean") return Limit::kMean;
  if (text == "max") return 1000;
  if (!text.starts_with('p')) return std::nullopt;
  const auto percent = parse_number(text.substr(1));
  if (!percent) return std::nullopt;
  const auto per_mille = static_cast<std::int64_t>(*percent * 10 + 0.5);
  const double off = *percent * 10 - static_cast<double>(per_mille);
  if (per_mille < 10 || per_mille > 999 || off > 1e-6 || off < -1e-6) return std::nullopt;
  return static_cast<std::uint32_t>(per_mille);
}

std::optional<std::uint64_t> parse_ns(std::string_view text) {
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    const auto number = parse_number(text.substr(0, text.size() - unit.name.size()));
    if (!number) return std::nullopt;
    const double ns = *number * unit.ns;
    if (!(ns >= 1 && ns <= 1e15)) return std::nullopt;
    return static_cast<std::uint64_t>(ns + 0.5);
  }
  return std::nullopt;
}

Result<Limit> parse_limit(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::size_t line = text.substr(0, equals).rfind('_');
  const NamedMetric* metric = nullptr;
  if (equals != std::string_view::npos && line != std::string_view::npos)
    for (const NamedMetric& row : kMetrics)
      if (row.name == text.substr(0, line)) metric = &row;
  if (metric == nullptr)
    return fail("found '", text,
                "', wanted METRIC_WHICH=TIME with metric ttft, itl, e2e, queue or normalized, as in "
                "ttft_p95=1s");
  const std::string_view which = text.substr(line + 1, equals - line - 1);
  const auto per_mille = parse_which(which);
  if (!per_mille) return fail("found '", which, "' in '", text, "', wanted p1 to p99.9, mean or max");
  const auto ns = parse_ns(text.substr(equals + 1));
  if (!ns)
    return fail("found '", text.substr(equals + 1), "' in '", text,
                "', wanted a time above 0 with its unit us, ms, s or min, as in 100ms");
  return Limit{metric->metric, *per_mille, *ns};
}

/// As short as it is exact: 1s, 1500ms, 250us.
std::string time_text(std::uint64_t ns) {
  for (const Unit& unit : {kUnits[3], kUnits[1], kUnits[0]}) {
    const auto size = static_cast<std::uint64_t>(unit.ns);
    if (ns % size == 0) return cat(ns / size, unit.name);
  }
  return cat(static_cast<double>(ns) / 1e3, "us");
}

}  // namespace

Result<std::vector<Limit>> parse_limits(std::string_view text) {
  std::vector<Limit> limits;
  for (const std::string_view part : split(text, ',')) {
    QUIRE_TRY(const Limit limit, parse_limit(part));
    for (const Limit& other : limits)
      if (other.metric == limit.metric && other.per_mille == limit.per_mille)
        return fail("found ", name_of(limit), " twice in '", text, "', wanted each limit once");
    limits.push_back(limit);
  }
  return limits;
}

std::string name_of(const Limit& limit) {
  const std::string_view metric = row_of(limit.metric).name;
  if (limit.per_mille == Limit::kMean) return cat(metric, "_mean");
  if (limit.per_mille == 1000) return cat(metric, "_max");
  const std::string tenth = limit.per_mille % 10 == 0 ? "" : cat(".", limit.per_mille % 10);
  return cat(metric, "_p", limit.per_mille / 10, tenth);
}

std::string to_string(const Limit& limit) { return cat(name_of(limit), "=", time_text(limit.limit_ns)); }

std::string to_string(const std::vector<Limit>& limits) {
  std::string text;
  for (const Limit& limit : limits) text += cat(text.empty() ? "" : ",", to_string(limit));
  return text;
}

const Histogram& times_of(Metric metric, const SimulationResult& result) { return result.*row_of(metric).times; }

std::uint64_t found_ns(const Limit& limit, const SimulationResult& result) {
  const Histogram& times = times_of(limit.metric, result);
  if (limit.per_mille == Limit::kMean) return static_cast<std::uint64_t>(times.mean());
  return times.quantile(limit.per_mille);
}

}  // namespace quire::planning
