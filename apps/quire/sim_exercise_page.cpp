// The page of `quire sim exercise`.

#include <cmath>

#include "quire/base/cat.h"
#include "sim_page.h"
#include "table.h"

namespace quire::cli {
namespace {

using html::Better;
using html::Chart;
using html::Draw;

double two_digits(double number) { return std::round(number * 100) / 100; }
double in_percent(double share) { return two_digits(100 * share); }

std::string name_of(const ExerciseSetting& setting) { return cat(setting.max_len, ", ", to_string(setting.mode)); }

/// The settings of the first maximum length: static, then growing.
std::vector<const ExerciseSetting*> first_settings(const ExerciseReport& found) {
  std::vector<const ExerciseSetting*> out;
  for (const auto& setting : found.settings) {
    if (setting.max_len == found.options.max_lens.front()) out.push_back(&setting);
  }
  return out;
}

Chart side_by_side(const ExerciseReport& found) {
  html::Comparison comparison{"memory", {}, {}};
  std::vector<const ExerciseSide*> sides;
  for (const ExerciseSetting* setting : first_settings(found)) {
    comparison.contenders.push_back(cat("paged, ", to_string(setting->mode)));
    comparison.contenders.push_back(cat("arrays, ", to_string(setting->mode)));
    sides.insert(sides.end(), {&setting->paged, &setting->contiguous});
  }
  const auto metric = [&](std::string name, std::string unit, Better better, auto of) {
    html::Metric& added = comparison.metrics.emplace_back(html::Metric{std::move(name), std::move(unit), better, {}});
    for (const ExerciseSide* side : sides) added.values.push_back(of(*side));
  };
  using S = const ExerciseSide&;
  metric("requests at once, mean", "", Better::higher, [](S s) { return two_digits(s.requests_at_once_mean); });
  metric("memory utilisation", "%", Better::higher, [](S s) { return in_percent(s.utilisation); });
  metric("internal fragmentation", "%", Better::lower, [](S s) { return in_percent(s.internal_fragmentation); });
  metric("external fragmentation", "%", Better::lower, [](S s) { return in_percent(s.external_fragmentation); });
  metric("virtual time", "s", Better::lower, [](S s) { return two_digits(static_cast<double>(s.virtual_ns) / 1e9); });
  metric("preemptions", "", Better::neither, [](S s) { return static_cast<double>(s.preemptions); });
  metric("written to the file", "bytes", Better::neither, [](S s) { return static_cast<double>(s.bytes_written); });
  return {"Paged memory beside arrays",
          cat("Maximum length ", found.options.max_lens.front(), "; means are over the steps in which requests wait."),
          comparison};
}

Chart ratios(const ExerciseReport& found) {
  html::LineChart chart{.x = {"maximum length", "tokens"}, .y = {"requests at once, paged / arrays", ""}};
  for (const LengthMode mode : {LengthMode::growing, LengthMode::static_length}) {
    html::Series ratio{cat(to_string(mode)), Draw::line, {}, {}};
    html::Series bound{cat(to_string(mode), ", bound by step"), Draw::line, {}, {}};
    for (const auto& setting : found.settings) {
      if (setting.mode != mode) continue;
      ratio.x.push_back(setting.max_len);
      ratio.y.push_back(two_digits(setting.concurrency_ratio));
      bound.x.push_back(setting.max_len);
      bound.y.push_back(two_digits(setting.concurrency_bound_by_step));
    }
    chart.series.insert(chart.series.end(), {ratio, bound});
  }
  return {
      "Requests at once: the ratio and its bound",
      "The bound: how many requests fit that hold the mean of all steps, rounded to blocks, over the arrays that fit.",
      chart};
}

Chart utilisation_histogram(const ExerciseSetting& setting) {
  html::BarChart chart{.x = {"memory utilisation", "%"}, .y = {"steps", ""}};
  chart.arrangement = html::Arrangement::side_by_side;
  chart.series = {{"paged", {}}, {"arrays", {}}};
  for (std::size_t i = 0; i < kUtilisationBuckets; ++i) {
    chart.categories.push_back(cat(100 * i / kUtilisationBuckets, "–", 100 * (i + 1) / kUtilisationBuckets));
    chart.series[0].values.push_back(static_cast<double>(setting.paged.utilisation_histogram[i]));
    chart.series[1].values.push_back(static_cast<double>(setting.contiguous.utilisation_histogram[i]));
  }
  return {cat("Memory utilisation, ", name_of(setting)), "Steps by how much of the pool they had filled.", chart};
}

Chart utilisation_by_step(const ExerciseSetting& setting) {
  html::LineChart chart{.x = {"step", ""}, .y = {"memory utilisation", "%"}};
  const auto add = [&](std::string name, const ExerciseSide& side) {
    html::Series series{std::move(name), Draw::steps, {}, {}};
    for (std::size_t i = 0; i < side.utilisation_by_step.size(); ++i) {
      series.x.push_back(static_cast<double>(i));
      series.y.push_back(in_percent(side.utilisation_by_step[i]));
    }
    chart.series.push_back(std::move(series));
  };
  add("paged", setting.paged);
  add("arrays", setting.contiguous);
  return {cat("Memory utilisation over time, ", name_of(setting)), "Filled slots of the pool, step by step.", chart};
}

Chart block_sizes(const ExerciseReport& found, std::string title, std::string summary, double ExerciseSide::*of) {
  html::LineChart chart{.x = {"block size", "tokens", html::Scale::logarithmic}, .y = {"share", "%"}};
  for (const LengthMode mode : {LengthMode::static_length, LengthMode::growing}) {
    html::Series series{cat(to_string(mode)), Draw::line, {}, {}};
    for (const auto& setting : found.sweep) {
      if (setting.mode != mode) continue;
      series.x.push_back(setting.block_size);
      series.y.push_back(in_percent(setting.paged.*of));
    }
    chart.series.push_back(std::move(series));
  }
  return {std::move(title), std::move(summary), std::move(chart)};
}

html::Table settings_table(const ExerciseReport& found) {
  html::Table table{"All settings",
                    {"max length", "mode", "memory", "blocks", "at once, mean", "max", "utilisation", "internal fragm.",
                     "external fragm.", "failures", "preemptions", "bytes written", "bytes read", "virtual s"},
                    {}};
  const auto add = [&](const ExerciseSetting& setting, std::string memory, const ExerciseSide& side) {
    table.rows.push_back({cat(setting.max_len), std::string(to_string(setting.mode)), std::move(memory),
                          fixed(side.blocks_occupied, 0), fixed(side.requests_at_once_mean, 1),
                          cat(side.requests_at_once_max), percent(side.utilisation),
                          percent(side.internal_fragmentation), percent(side.external_fragmentation),
                          grouped(side.allocation_failures), grouped(side.preemptions), grouped(side.bytes_written),
                          grouped(side.bytes_read), fixed(static_cast<double>(side.virtual_ns) / 1e9, 1)});
  };
  for (const auto& setting : found.settings) {
    add(setting, "paged", setting.paged);
    add(setting, "arrays", setting.contiguous);
  }
  return table;
}

std::vector<html::Verdict> verdicts(const ExerciseReport& found) {
  std::vector<html::Verdict> out;
  for (const ExerciseSetting* setting : first_settings(found)) {
    const double share = setting->paged.internal_fragmentation;
    out.push_back({cat("internal fragmentation, ", name_of(*setting), ", block size ", setting->block_size),
                   setting->block_size == 16 ? "at most 5 %" : "", percent(share), "at block size 16",
                   setting->block_size != 16 ? html::Outcome::none
                   : share <= 0.05           ? html::Outcome::holds
                                             : html::Outcome::fails});
  }
  for (const auto& setting : found.settings) {
    // Of means: where requests wait while others are short, the ratio passes it, and nothing has failed.
    const bool holds = setting.concurrency_ratio <= setting.concurrency_bound_by_step;
    out.push_back({cat("requests at once, paged / arrays, ", name_of(setting)),
                   cat("about ", fixed(setting.concurrency_bound_by_step, 2), " at most"),
                   fixed(setting.concurrency_ratio, 2), "the bound by step",
                   holds ? html::Outcome::holds : html::Outcome::none});
  }
  return out;
}

/// The growing setting step by step.
void append_growing(html::Page& page, const ExerciseReport& found) {
  const html::RunEvents run = run_events(found.growing);
  html::Section memory = html::memory_section(run);
  html::Section requests = html::request_section(run);
  html::Section blocks = block_section(found.growing);
  const std::string name = cat("growing, maximum length ", found.options.max_lens.front());
  memory.heading = cat("Step by step: ", name);
  requests.heading = cat("Requests: ", name);
  blocks.heading = cat("Blocks: ", name);
  for (html::Section* section : {&memory, &requests, &blocks}) {
    if (!section->charts.empty()) page.sections.push_back(std::move(*section));
  }
}

}  // namespace

html::Page exercise_page(const SimFlags& flags, const ExerciseReport& found, std::vector<std::string> notes) {
  const ExerciseOptions& options = found.options;
  html::Page page = page_head(flags, "The exercise: paged KV memory beside arrays");
  page.subtitle = cat(options.num_requests, " requests of ", options.shortest, " to ", options.longest, " tokens on ",
                      options.num_blocks, " blocks of ", options.block_size, " tokens, all there at step 0");
  page.facts = {{"cost", found.cost}, {"blocks read back and compared", grouped(found.blocks_restored)}};
  page.notes = std::move(notes);
  page.sections.push_back(
      {.heading = "Paging against arrays",
       .text = {cat("Without a limit, whole lengths: ", grouped(static_cast<std::uint64_t>(found.unlimited_blocks)),
                    " blocks paged; as arrays of ", options.max_lens.front(), ", ",
                    grouped(static_cast<std::uint64_t>(found.unlimited_arrays)), " blocks' worth.")},
       .verdicts = verdicts(found),
       .charts = {side_by_side(found), ratios(found)}});
  html::Section utilisation{.heading = "Memory utilisation"};
  for (const ExerciseSetting* setting : first_settings(found)) {
    utilisation.charts.push_back(utilisation_histogram(*setting));
    utilisation.charts.push_back(utilisation_by_step(*setting));
  }
  page.sections.push_back(std::move(utilisation));
  append_growing(page, found);
  page.sections.push_back(
      {.heading = "Block sizes",
       .text = {cat("Maximum length ", options.max_lens.front(), ", the same pool, in blocks that fill it.")},
       .charts = {block_sizes(found, "Internal fragmentation by block size", "Held and unfilled slots, of held ones.",
                              &ExerciseSide::internal_fragmentation),
                  block_sizes(found, "Memory utilisation by block size", "Filled slots of the pool.",
                              &ExerciseSide::utilisation)}});
  page.sections.push_back({.heading = "All numbers", .tables = {settings_table(found)}});
  return page;
}

}  // namespace quire::cli
