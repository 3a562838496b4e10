#include "quire/html/run_charts.h"

#include <algorithm>

#include "quire/html/request_times.h"

namespace quire::html {
namespace {

const Axis kTime{"time", "s"};
constexpr std::size_t kBudgetBars = 48;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

std::uint64_t end_of(const RunEvents& run) {
  std::uint64_t end = run.steps.empty() ? 0 : run.steps.back().end_ns;
  for (const RequestEvent& event : run.requests) end = std::max({end, event.ns, event.end_ns});
  for (const BlockRun& block : run.blocks) end = std::max(end, block.end_ns);
  return end;
}

/// A series of a number of each step, at its begin.
template <class Of>
Series over_steps(const RunEvents& run, std::string name, Draw draw, Of of) {
  Series series{std::move(name), draw, {}, {}};
  for (const StepEvent& step : run.steps) {
    series.x.push_back(seconds(step.begin_ns));
    series.y.push_back(static_cast<double>(of(step)));
  }
  if (!run.steps.empty()) {  // the last value holds until its step's end
    series.x.push_back(seconds(run.steps.back().end_ns));
    series.y.push_back(series.y.back());
  }
  return series;
}

bool has_values(const Series& series) {
  return std::any_of(series.y.begin(), series.y.end(), [](double y) { return y != 0; });
}

Marks preemptions(const RunEvents& run) {
  Marks marks{"preemption", {}};
  for (const RequestEvent& event : run.requests) {
    if (event.kind == RequestEventKind::preempted) marks.x.push_back(seconds(event.ns));
  }
  std::sort(marks.x.begin(), marks.x.end());
  return marks;
}

/// A histogram over the steps, weighted by how long they took, of a share of slots in per cent.
template <class Part, class Whole>
Chart share_histogram(const RunEvents& run, std::string title, std::string summary, Part part, Whole whole) {
  std::vector<double> values, weights;
  for (const StepEvent& step : run.steps) {
    const auto of = static_cast<double>(whole(step));
    if (of <= 0) continue;
    values.push_back(100 * static_cast<double>(part(step)) / of);
    weights.push_back(static_cast<double>(step.end_ns - step.begin_ns));
  }
  HistogramSpec spec{.x = {title, "%"}, .name = "share of the time", .low = 0, .high = 100, .num_bins = 20};
  BarChart chart = histogram(spec, values, weights);
  chart.y = {"share of the time", "%"};
  return {std::move(title), std::move(summary), std::move(chart)};
}

std::string quantile_text(std::vector<double> values, double share) {
  if (values.empty()) return "";
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  const double us = values[rank] * 1e6;
  return cat(static_cast<double>(static_cast<std::uint64_t>(us + 0.5)) / 1000);
}

Table quantile_table(const std::vector<std::pair<std::string, const std::vector<double>*>>& times) {
  Table table{"Quantiles of the latencies, ms", {"time", "requests", "p50", "p90", "p95", "p99", "max"}, {}};
  for (const auto& [name, values] : times) {
    if (values->empty()) continue;
    table.rows.push_back({name, cat(values->size()), quantile_text(*values, 0.5), quantile_text(*values, 0.9),
                          quantile_text(*values, 0.95), quantile_text(*values, 0.99), quantile_text(*values, 1)});
  }
  return table;
}

std::string bar_name(std::uint64_t begin_ns, std::uint64_t width_ns) {
  const std::uint64_t unit = width_ns >= 1'000'000'000 ? 100'000'000 : width_ns >= 10'000'000 ? 10'000'000 : 1'000;
  return cat(static_cast<double>(begin_ns / unit) / (1e9 / static_cast<double>(unit)));
}

}  // namespace

LineChart memory_over_time(const RunEvents& run) {
  LineChart chart{.x = kTime, .y = {"KV memory", "slots"}, .arrangement = Arrangement::stacked};
  chart.series.push_back(over_steps(run, "written", Draw::area, [](const StepEvent& s) { return s.slots.written; }));
  const std::vector<Series> others = {
      over_steps(run, "reserved", Draw::area, [](const StepEvent& s) { return s.slots.reserved; }),
      over_steps(run, "held, unused", Draw::area, [](const StepEvent& s) { return s.slots.unused; }),
      over_steps(run, "rounding", Draw::area, [](const StepEvent& s) { return s.slots.rounding; }),
      over_steps(run, "cached", Draw::area, [](const StepEvent& s) { return s.slots.cached; })};
  for (const Series& series : others) {
    if (has_values(series)) chart.series.push_back(series);
  }
  if (run.header.total_slots > 0) chart.limits = {{"pool", static_cast<double>(run.header.total_slots)}};
  if (Marks marks = preemptions(run); !marks.x.empty()) chart.marks = {std::move(marks)};
  return chart;
}

LineChart requests_over_time(const RunEvents& run) {
  LineChart chart{.x = kTime, .y = {"requests", ""}};
  chart.series.push_back(over_steps(run, "running", Draw::steps, [](const StepEvent& s) { return s.running; }));
  chart.series.push_back(over_steps(run, "waiting", Draw::steps, [](const StepEvent& s) { return s.waiting; }));
  return chart;
}

BarChart step_budget(const RunEvents& run) {
  struct Sum {
    double prefill = 0, decode = 0, steps = 0;
  };
  const std::uint64_t end_ns = run.steps.empty() ? 0 : run.steps.back().end_ns;
  const std::uint64_t width_ns = end_ns / kBudgetBars + 1;
  std::vector<Sum> sums(static_cast<std::size_t>(end_ns / width_ns + 1));
  for (const StepEvent& step : run.steps) {
    Sum& sum = sums[static_cast<std::size_t>(step.begin_ns / width_ns)];
    sum.prefill += static_cast<double>(step.prefill_tokens);
    sum.decode += static_cast<double>(step.decode_tokens);
    sum.steps += 1;
  }
  BarChart chart{.x = {"from", "s"}, .y = {"tokens a step", "tokens"}};
  chart.series = {{"decode", {}}, {"prefill", {}}, {"budget left", {}, Tone::muted}};
  const auto budget = static_cast<double>(run.header.max_step_tokens);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double steps = std::max(sums[i].steps, 1.0);
    const double decode = sums[i].decode / steps, prefill = sums[i].prefill / steps;
    chart.categories.push_back(bar_name(i * width_ns, width_ns));
    chart.series[0].values.push_back(decode);
    chart.series[1].values.push_back(prefill);
    chart.series[2].values.push_back(sums[i].steps > 0 ? std::max(0.0, budget - decode - prefill) : 0);
  }
  if (budget == 0) chart.series.pop_back();
  return chart;
}

GanttChart request_gantt(const RunEvents& run) {
  GanttChart chart;
  std::vector<RequestHistory> histories = request_histories(run);
  std::stable_sort(histories.begin(), histories.end(), [](const RequestHistory& a, const RequestHistory& b) {
    return a.events.front()->ns < b.events.front()->ns;
  });
  for (const RequestHistory& history : histories) {
    chart.rows.push_back({cat(history.request), history.phases(end_of(run))});
  }
  return chart;
}

BlockFilm block_film(const RunEvents& run) {
  BlockFilm film{.end_ns = end_of(run), .runs = run.blocks};
  if (run.header.block_size > 0) {
    film.num_blocks = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(run.header.total_slots / run.header.block_size, UINT32_MAX - 1));
  }
  for (const BlockRun& block : run.blocks) film.num_blocks = std::max(film.num_blocks, block.block + 1);
  return film;
}

Section memory_section(const RunEvents& run) {
  Section section{.heading = "KV memory and steps"};
  if (run.steps.empty()) return section;
  section.charts.push_back({"KV memory over time",
                            "Slots of the pool by what they are used for; triangles mark preemptions.",
                            memory_over_time(run)});
  section.charts.push_back(
      {"Requests over time", "Requests that run, and requests that wait.", requests_over_time(run)});
  section.charts.push_back({"Tokens of a step",
                            "Mean tokens that a step decodes and prefills, over equal parts of the run.",
                            step_budget(run)});
  if (run.header.total_slots > 0) {
    section.charts.push_back(share_histogram(
        run, "Memory utilisation", "How much of the time so much of the pool held K and V.",
        [](const StepEvent& s) { return s.slots.written; }, [&](const StepEvent&) { return run.header.total_slots; }));
  }
  section.charts.push_back(share_histogram(
      run, "Internal fragmentation", "How much of the time so much of the memory that requests held was not written.",
      [](const StepEvent& s) { return s.slots.held() - s.slots.written; },
      [](const StepEvent& s) { return s.slots.held(); }));
  return section;
}

Section latency_section(const RunEvents& run) {
  Section section{.heading = "Latencies"};
  const LatencySamples times = latencies(request_histories(run));
  if (times.first_token.empty()) return section;
  LineChart chart{.x = {"time", "s", Scale::logarithmic}, .y = {"requests", "%"}};
  chart.series.push_back(cdf("first token", times.first_token));
  if (!times.between_tokens.empty()) chart.series.push_back(cdf("between tokens", times.between_tokens));
  if (!times.end_to_end.empty()) chart.series.push_back(cdf("end to end", times.end_to_end));
  // A logarithmic axis shows milliseconds beside minutes, but has no place for 0.
  for (const Series& series : chart.series) {
    if (series.x.front() <= 0) chart.x.scale = Scale::linear;
  }
  section.tables.push_back(quantile_table({{"first token", &times.first_token},
                                           {"between tokens (a request's mean)", &times.between_tokens},
                                           {"end to end", &times.end_to_end}}));
  section.charts.push_back(
      {"Latencies", "The share of requests whose time was at most so long, from arrival on.", std::move(chart)});
  return section;
}

Section request_section(const RunEvents& run) {
  Section section{.heading = "Requests"};
  if (run.requests.empty()) return section;
  section.charts.push_back({"Requests one by one",
                            "A row for each request: how long it was queued, prefilled, decoded, preempted, restored.",
                            request_gantt(run)});
  return section;
}

Section block_section(const RunEvents& run) {
  Section section{.heading = "Blocks"};
  if (run.blocks.empty()) return section;
  section.charts.push_back(
      {"Block map", "Every physical block over time, and all of them at one moment.", block_film(run)});
  return section;
}

std::vector<Section> run_sections(const RunEvents& run) {
  std::vector<Section> sections = {memory_section(run), latency_section(run), request_section(run), block_section(run)};
  sections.erase(std::remove_if(sections.begin(), sections.end(), [](const Section& s) { return s.charts.empty(); }),
                 sections.end());
  return sections;
}

Page run_page(std::string title, const RunEvents& run) {
  Page page{.title = std::move(title),
            .command = run.header.command,
            .version = run.header.version,
            .seed = run.header.seed,
            .sections = run_sections(run)};
  for (const auto& [name, value] : run.header.options) page.facts.push_back({name, value});
  return page;
}

}  // namespace quire::html
