// A plan as an HTML page.

#include <algorithm>
#include <cmath>

#include "plan.h"
#include "quire/base/cat.h"
#include "sim_page.h"
#include "table.h"

namespace quire::cli {
namespace {

using namespace planning;

double mebibytes(std::uint64_t bytes) { return std::round(static_cast<double>(bytes) / (1 << 20) * 10) / 10; }
double hundredths(double number) { return std::round(number * 100) / 100; }
std::string rate_text(double rate) { return cat(fixed(rate, 2), " requests/s"); }

html::Section memory_section(const Fit& fit) {
  html::Section section{.heading = "What fits"};
  html::BarChart chart{.x = {"memory", ""},
                       .y = {"memory", "MiB"},
                       .categories = {cat(fixed(mebibytes(fit.memory.bytes), 0), " MiB, ", fit.memory.source)},
                       .names = html::Names::all};
  html::Table table{"Memory by part", {"part", "MiB", "what it is"}, {}};
  for (const MemoryPart& part : fit.parts) {
    chart.series.push_back({part.name, {mebibytes(part.bytes)}});
    table.rows.push_back({part.name, fixed(mebibytes(part.bytes), 1), part.what});
  }
  chart.series.push_back({"left", {mebibytes(fit.spare_bytes())}, html::Tone::muted});
  table.rows.push_back({"left", fixed(mebibytes(fit.spare_bytes()), 1), ""});
  section.charts.push_back({"Memory by part", "What the engine takes of the memory, and what is left.", chart});
  section.tables.push_back(std::move(table));
  return section;
}

html::Section requests_section(const Plan& plan) {
  const AtOnce& found = plan.at_once;
  const auto row = [](std::string what, std::int64_t number) {
    return std::vector<std::string>{std::move(what), cat(number)};
  };
  html::Section section{.heading = "Requests at once"};
  section.text.push_back(cat("Requests of ", plan.load.name, " (", plan.load.description, "): prompts of ",
                             fixed(mean_prompt(plan.load), 0), " and answers of ", fixed(mean_output(plan.load), 0),
                             " tokens on average."));
  section.tables.push_back({"How many have room",
                            {"requests", "at once"},
                            {row("of these, all at their full length", found.at_full_length),
                             row("of these, in the middle of their answers", found.growing),
                             row(cat("of the whole context, ", found.context, " tokens"), found.full_context),
                             row("that may run at once", found.rows),
                             row("tokens of the longest that could be alone", found.largest_context)}});
  return section;
}

html::Chart latency_chart(const Performance& found, const Limit& limit, std::size_t index) {
  html::LineChart chart{.x = {"rate", "requests/s"}, .y = {name_of(limit), "s", html::Scale::logarithmic}};
  html::Series series{name_of(limit), html::Draw::line, {}, {}};
  for (const CurvePoint& point : found.curve) {
    const double seconds = static_cast<double>(point.limits_ns[index]) * 1e-9;
    if (seconds <= 0) chart.y.scale = html::Scale::linear;
    series.x.push_back(hundredths(point.rate));
    series.y.push_back(seconds);
  }
  chart.series.push_back(std::move(series));
  chart.limits.push_back({cat("limit ", to_string(limit)), static_cast<double>(limit.limit_ns) * 1e-9});
  const Trial& at = found.knee.at;
  chart.knee = html::Knee{hundredths(at.rate), static_cast<double>(found_ns(limit, at.result)) * 1e-9,
                          cat("knee: ", rate_text(at.rate))};
  return {cat("Latency against rate: ", name_of(limit)),
          "Each point is a simulation to its end; the knee is the highest rate at which all limits hold.",
          std::move(chart)};
}

html::Section rate_section(const Plan& plan, const Performance& found) {
  html::Section section{.heading = "The rate that holds the limits"};
  section.text.push_back(found.has_knee() ? cat(rate_text(found.knee.at.rate), " hold ", to_string(plan.limits), ".")
                                          : cat("No rate holds ", to_string(plan.limits), "."));
  if (!found.alone_reliefs.empty()) {
    html::Table table{"A request alone", {"relieved"}, {}};
    for (const Limit& limit : plan.limits) table.columns.push_back(to_string(limit));
    const auto add = [&](std::string what, const auto& found_of) {
      auto& row = table.rows.emplace_back(std::vector<std::string>{std::move(what)});
      for (std::size_t i = 0; i < plan.limits.size(); ++i) row.push_back(duration(static_cast<double>(found_of(i))));
    };
    add("nothing", [&](std::size_t i) { return found_ns(plan.limits[i], found.alone.result); });
    for (const AloneRelief& relief : found.alone_reliefs)
      add(cat(to_string(relief.cause), ": ", relief_words(relief.cause)),
          [&](std::size_t i) { return relief.limits_ns[i]; });
    section.tables.push_back(std::move(table));
    section.text.push_back(cat("What binds is ", to_string(found.alone_reliefs.front().cause),
                               ". A request that is alone holds ", to_string(found.limits_alone), "."));
  }
  if (!found.has_knee()) return section;
  for (std::size_t i = 0; i < plan.limits.size(); ++i)
    section.charts.push_back(latency_chart(found, plan.limits[i], i));
  return section;
}

html::Section binding_section(const Binding& binding) {
  html::Section section{.heading = cat("What binds: ", to_string(binding.cause))};
  section.text.push_back(
      "Each resource is relieved by itself and the rate is searched again; beside it, what a simulation a tenth above "
      "the knee says.");
  html::BarChart chart{.x = {"relieved", ""}, .y = {"change of the rate", "%"}, .names = html::Names::all};
  html::BarSeries bars{"change", {}};
  html::Table table{"Evidence", {"relieved", "requests/s", "change, %", "a tenth above the knee"}, {}};
  for (const Relief& relief : binding.reliefs) {
    const double percent = std::round(relief.gain * 100);
    chart.categories.emplace_back(to_string(relief.cause));
    bars.values.push_back(percent);
    table.rows.push_back({cat(to_string(relief.cause), ": ", relief_words(relief.cause)), fixed(relief.rate, 2),
                          fixed(percent, 0), evidence_words(relief.cause, binding.evidence)});
  }
  chart.series.push_back(std::move(bars));
  section.charts.push_back({"What relief of each resource gains", "Change of the rate that holds the limits.", chart});
  section.tables.push_back(std::move(table));
  return section;
}

html::Section what_if_section(const Performance& found) {
  html::Section section{.heading = "What to change first"};
  html::BarChart chart{.x = {"change", ""}, .y = {"rate", "requests/s"}, .names = html::Names::all};
  html::BarSeries bars{"rate that holds the limits", {}};
  html::Table table{"Each change by itself", {"change", "requests/s", "change, %", "requests at once", "note"}, {}};
  chart.categories.push_back("as planned");
  bars.values.push_back(hundredths(found.knee.at.rate));
  for (const WhatIfRow& row : found.what_ifs) {
    const bool can_be = row.rate > 0;  // else the note says why not
    table.rows.push_back({row.flag, can_be ? fixed(row.rate, 2) : "-", can_be ? fixed(100 * row.change, 0) : "-",
                          can_be ? cat(row.at_once) : "-", row.note});
    if (!can_be) continue;
    chart.categories.push_back(row.flag);
    bars.values.push_back(hundredths(row.rate));
  }
  chart.series.push_back(std::move(bars));
  section.charts.push_back({"What-ifs", "The rate that holds the limits with one setting changed.", chart});
  section.tables.push_back(std::move(table));
  return section;
}

std::string answer(const Plan& plan) {
  const std::string memory = cat("It fits into ", fixed(mebibytes(plan.fit.memory.bytes), 0), " MiB");
  if (!plan.performance) return memory + ".";
  const Performance& found = *plan.performance;
  if (!found.has_knee()) return memory + "; no rate holds the limits.";
  return cat(memory, "; ", rate_text(found.knee.at.rate), " hold ", to_string(plan.limits), ".");
}

}  // namespace

html::Page plan_page(const PlanFlags& flags, const Plan& plan) {
  const engine::EngineInfo& info = plan.fit.info;
  html::Page page = page_head(flags.common, cat("Plan for ", info.model_name));
  page.subtitle = answer(plan);
  page.facts = {{"model", cat(info.architecture, ", ", info.quantization, ", ", info.num_parameters / 1'000'000,
                              " million parameters")},
                {"workload", cat(plan.load.name, ": ", plan.load.description)},
                {"limits", to_string(plan.limits)},
                {"to serve it", serve_command(plan)}};
  page.sections = {memory_section(plan.fit), requests_section(plan)};
  page.notes = plan.notes;
  if (!plan.performance) {
    page.notes.push_back(plan.no_performance);
    return page;
  }
  const Performance& found = *plan.performance;
  page.facts.push_back({"cost of a step", found.cost});
  if (!found.cost_note.empty()) page.notes.push_back(found.cost_note);
  page.sections.push_back(rate_section(plan, found));
  if (found.binding) page.sections.push_back(binding_section(*found.binding));
  if (!found.what_ifs.empty()) page.sections.push_back(what_if_section(found));
  if (found.replicas)
    page.facts.push_back({"replicas", found.replicas->count == 0
                                          ? std::string("no number of them holds the limits")
                                          : cat(found.replicas->count, " for ", rate_text(found.replicas->rate))});
  return page;
}

}  // namespace quire::cli
