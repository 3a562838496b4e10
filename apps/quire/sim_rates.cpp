#include "sim_rates.h"

#include "quire/base/cat.h"
#include "quire/sim/knee.h"
#include "sim_page.h"
#include "sim_report.h"
#include "table.h"

namespace quire::cli {
namespace {

double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

/// A latency that is drawn against the rate.
struct Latency {
  std::string name, unit;
  double (*of)(const SimulationResult&);
};
const Latency kLatencies[] = {
    {"first token, p95", "s", [](const SimulationResult& r) { return seconds(r.ttft_ns.quantile(950)); }},
    {"between tokens, p99", "s", [](const SimulationResult& r) { return seconds(r.inter_token_ns.quantile(990)); }},
    {"end to end over tokens, mean", "s/token", [](const SimulationResult& r) { return r.normalized_latency_s(); }}};
const Latency& kJudged = kLatencies[2];  ///< the knee in text and JSON is this one's

std::string system_name(const SimulationResult& found) { return found.system.substr(0, found.system.find(':')); }

std::vector<double> rates_of(const std::vector<RatePoint>& points) {
  std::vector<double> rates;
  for (const RatePoint& point : points) rates.push_back(point.rate);
  return rates;
}

std::vector<double> values_of(const std::vector<RatePoint>& points, std::size_t system, const Latency& latency) {
  std::vector<double> values;
  for (const RatePoint& point : points) values.push_back(latency.of(point.systems[system]));
  return values;
}

std::string knee_text(const std::vector<RatePoint>& points, std::size_t system, const Latency& latency) {
  const auto knee = find_knee(rates_of(points), values_of(points, system, latency));
  return knee ? cat(fixed(points[*knee].rate, 2), "/s") : "none";
}

html::Chart latency_chart(const std::vector<RatePoint>& points, const Latency& latency) {
  html::LineChart chart{.x = {"rate", "requests/s"}, .y = {latency.name, latency.unit, html::Scale::logarithmic}};
  for (std::size_t i = 0; i < points.front().systems.size(); ++i) {
    const std::vector<double> rates = rates_of(points), values = values_of(points, i, latency);
    for (const double value : values) {
      if (value <= 0) chart.y.scale = html::Scale::linear;
    }
    if (i == 0) {
      if (const auto knee = find_knee(rates, values))
        chart.knee = html::Knee{rates[*knee], values[*knee], cat("knee, ", fixed(rates[*knee], 2), "/s")};
    }
    chart.series.push_back({system_name(points.front().systems[i]), html::Draw::line, rates, values});
  }
  return {cat("Latency against rate: ", latency.name),
          cat("Each rate is a run of its own. The knee, of ", chart.series.front().name,
              ", is the point farthest below the straight line from the first rate to the last."),
          std::move(chart)};
}

html::Table rate_table(const std::vector<RatePoint>& points) {
  html::Table table{"Rates",
                    {"requests/s", "system", "first token p95, s", "between tokens p99, s", "s/token, mean",
                     "output tokens/s", "at once, mean", "preemptions"},
                    {}};
  for (const RatePoint& point : points) {
    for (const SimulationResult& found : point.systems) {
      std::vector<std::string> row = {fixed(point.rate, 2), system_name(found)};
      for (const Latency& latency : kLatencies) row.push_back(fixed(latency.of(found), 4));
      row.push_back(fixed(found.end_ns == 0 ? 0 : static_cast<double>(found.output_tokens) / seconds(found.end_ns), 1));
      row.push_back(fixed(found.memory.mean(found.memory.running), 2));
      row.push_back(grouped(found.num_preemptions));
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace

std::string rates_as_text(const std::vector<RatePoint>& points) {
  const html::Table rows = rate_table(points);
  Table table(rows.columns);
  for (const auto& row : rows.rows) table.add(row);
  std::string out = table.text(2);
  for (std::size_t i = 0; i < points.front().systems.size(); ++i)
    out += cat("knee of ", system_name(points.front().systems[i]), ", ", kJudged.name, ": ",
               knee_text(points, i, kJudged), "\n");
  return out;
}

json::Array rates_as_json(const std::vector<RatePoint>& points) {
  json::Array out;
  for (const RatePoint& point : points) {
    json::Array systems;
    for (const SimulationResult& found : point.systems) systems.push_back(simulation_as_json(found));
    out.push_back(json::Object{{"rate", point.rate}, {"systems", std::move(systems)}});
  }
  return out;
}

html::Page rates_page(const SimFlags& flags, const std::vector<RatePoint>& points) {
  html::Page page = page_head(flags, "Quire simulation: rates");
  page.subtitle =
      cat(grouped(points.front().systems.front().num_requests), " requests at each of ", points.size(),
          " rates; knee of ", system_name(points.front().systems.front()), " at ", knee_text(points, 0, kJudged));
  page.facts.push_back({"cost", points.front().systems.front().cost});
  html::Section section{.heading = "Latency against rate", .tables = {rate_table(points)}};
  for (const Latency& latency : kLatencies) section.charts.push_back(latency_chart(points, latency));
  page.sections.push_back(std::move(section));
  return page;
}

}  // namespace quire::cli
