#include "sim_page.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "flags.h"
#include "quire/base/cat.h"
#include "table.h"

namespace quire::cli {
namespace {

/// What stands before the details of a system's description, if that tells them apart: "Quire".
std::vector<std::string> short_names(const std::vector<SimulationResult>& all) {
  std::vector<std::string> names;
  for (const SimulationResult& found : all) {
    const std::string name = found.system.substr(0, found.system.find(':'));
    const bool is_taken = std::find(names.begin(), names.end(), name) != names.end();
    names.push_back(is_taken ? found.system : name);
  }
  return names;
}

double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }
double two_digits(double number) { return std::round(number * 100) / 100; }

html::StepEvent as_event(const StepSample& sample) {
  const auto count = [](std::int64_t number) { return static_cast<std::uint64_t>(std::max<std::int64_t>(number, 0)); };
  html::StepEvent step{.begin_ns = sample.begin_ns, .end_ns = sample.end_ns};
  step.prefill_tokens = count(sample.prefill_tokens);
  step.decode_tokens = count(sample.decode_tokens);
  step.running = count(sample.num_running);
  step.waiting = count(sample.num_waiting);
  step.slots = {.written = count(sample.memory.written_slots),
                .reserved = count(sample.memory.reserved_slots),
                .unused = count(sample.memory.unused_slots),
                .rounding = count(sample.memory.rounding_slots),
                .cached = count(sample.memory.cached_slots)};
  return step;
}

void append_request(std::vector<html::RequestEvent>& events, const RequestRecord& record) {
  using Kind = html::RequestEventKind;
  const auto first = static_cast<std::ptrdiff_t>(events.size());
  const auto tell = [&](Kind kind, const WorkSpan& span, std::string detail = {}) {
    events.push_back({.kind = kind,
                      .request = record.id,
                      .ns = span.begin_ns,
                      .end_ns = span.end_ns,
                      .tokens = static_cast<std::uint64_t>(span.tokens),
                      .detail = std::move(detail)});
  };
  tell(Kind::queued, {record.arrival_ns, 0, record.prompt_tokens});
  tell(Kind::started, {record.start_ns, 0, record.cached_tokens});
  for (const WorkSpan& chunk : record.chunks) tell(Kind::chunk, chunk);
  for (const std::uint64_t ns : record.preempted_ns)
    tell(Kind::preempted, {ns, 0, 0}, record.restores_by_reading ? "swap" : "recompute");
  for (const WorkSpan& span : record.restored) tell(Kind::restored, {span.begin_ns, span.end_ns, 0});
  tell(Kind::first_token, {record.first_token_ns, 0, 0});
  tell(Kind::finished, {record.finish_ns, 0, record.output_tokens}, "length");
  std::stable_sort(events.begin() + first, events.end(),
                   [](const html::RequestEvent& a, const html::RequestEvent& b) { return a.ns < b.ns; });
}

html::BlockState state_of(BlockUse use) {
  return use == BlockUse::cached   ? html::BlockState::cached
         : use == BlockUse::shared ? html::BlockState::shared
                                   : html::BlockState::used;
}

/// Of a histogram of nanoseconds: a point for each per mille.
html::Series cdf_of(std::string name, const Histogram& ns) {
  html::Series series{std::move(name), html::Draw::steps, {}, {}};
  if (ns.count() == 0) return series;
  for (std::uint32_t per_mille = 1; per_mille <= 1000; ++per_mille) {
    series.x.push_back(seconds(ns.quantile(per_mille)));
    series.y.push_back(static_cast<double>(per_mille) / 10);
  }
  return series;
}

html::Chart latency_chart(std::string title, std::string summary, const std::vector<SimulationResult>& all,
                          Histogram SimulationResult::*of) {
  html::LineChart chart{.x = {"time", "s", html::Scale::logarithmic}, .y = {"share", "%"}};
  const std::vector<std::string> names = short_names(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    html::Series series = cdf_of(names[i], all[i].*of);
    if (series.x.empty()) continue;
    if (series.x.front() <= 0) chart.x.scale = html::Scale::linear;
    chart.series.push_back(std::move(series));
  }
  return {std::move(title), std::move(summary), std::move(chart)};
}

html::Comparison side_by_side(const std::vector<SimulationResult>& all) {
  html::Comparison comparison{"system", {}, {}};
  const auto metric = [&](std::string name, std::string unit, html::Better better, auto of) {
    html::Metric& added = comparison.metrics.emplace_back(html::Metric{std::move(name), std::move(unit), better, {}});
    for (const SimulationResult& found : all) added.values.push_back(of(found));
  };
  using html::Better;
  using R = const SimulationResult&;
  comparison.contenders = short_names(all);
  metric("output", "tokens/s", Better::higher,
         [](R r) { return r.end_ns == 0 ? 0 : two_digits(static_cast<double>(r.output_tokens) / seconds(r.end_ns)); });
  metric("requests at once, mean", "", Better::higher, [](R r) { return two_digits(r.memory.mean(r.memory.running)); });
  metric("memory written", "%", Better::higher, [](R r) { return two_digits(100 * r.memory.share(r.memory.written)); });
  metric("first token, p95", "s", Better::lower, [](R r) { return seconds(r.ttft_ns.quantile(950)); });
  metric("between tokens, p99", "s", Better::lower, [](R r) { return seconds(r.inter_token_ns.quantile(990)); });
  metric("end to end, p95", "s", Better::lower, [](R r) { return seconds(r.end_to_end_ns.quantile(950)); });
  metric("preemptions", "", Better::neither, [](R r) { return static_cast<double>(r.num_preemptions); });
  metric("refused", "requests", Better::lower, [](R r) { return static_cast<double>(r.num_refused); });
  return comparison;
}

html::Section latencies(const std::vector<SimulationResult>& all) {
  html::Section section{.heading = "Latencies", .text = {"Of all requests, from their arrival on."}};
  section.charts = {
      latency_chart("First token", "Time from arrival to the first token.", all, &SimulationResult::ttft_ns),
      latency_chart("Between tokens", "Time between two tokens of a request.", all, &SimulationResult::inter_token_ns),
      latency_chart("End to end", "Time from arrival to the last token.", all, &SimulationResult::end_to_end_ns)};
  return section;
}

/// name: of one of several; empty for the only one.
void append_sections(html::Page& page, const SimulationResult& found, const std::string& name) {
  const html::RunEvents run = run_events(found);
  for (html::Section section : {html::memory_section(run), html::request_section(run), block_section(found)}) {
    if (section.charts.empty()) continue;
    if (!name.empty()) section.heading = cat(name, ": ", section.heading);
    page.sections.push_back(std::move(section));
  }
}

}  // namespace

html::RunEvents run_events(const SimulationResult& found) {
  html::RunEvents run;
  run.header.name = found.system;
  run.header.max_step_tokens = static_cast<std::uint64_t>(found.max_step_tokens);
  run.header.block_size = static_cast<std::uint64_t>(found.film.block_size);
  for (const StepSample& sample : found.samples) {
    run.steps.push_back(as_event(sample));
    run.header.total_slots = static_cast<std::uint64_t>(std::max<std::int64_t>(sample.memory.pool_slots, 0));
  }
  for (const RequestRecord& record : found.records) append_request(run.requests, record);
  for (const BlockSpan& span : found.film.spans) {
    run.blocks.push_back({static_cast<std::uint32_t>(span.block), state_of(span.cell.use), span.begin_ns, span.end_ns,
                          span.cell.owner.value});
  }
  return run;
}

html::Section block_section(const SimulationResult& found) {
  html::Section section = html::block_section(run_events(found));
  if (section.charts.empty()) return section;
  const BlockFilm& film = found.film;
  std::string text = cat(grouped(static_cast<std::uint64_t>(film.num_blocks)), " blocks of ", film.block_size,
                         " tokens, as they were ");
  text += film.step_stride == 1 ? "in every step." : cat("in one of every ", film.step_stride, " steps.");
  section.text.push_back(std::move(text));
  return section;
}

html::Page simulations_page(const SimFlags& flags, const std::vector<SimulationResult>& all) {
  html::Page page = page_head(flags, "Quire simulation");
  if (all.empty()) return page;
  const SimulationResult& first = all.front();
  page.subtitle = cat(grouped(first.num_requests), " requests in virtual time on ", all.size(),
                      all.size() == 1 ? " system" : " systems");
  page.facts.push_back({"cost", first.cost});
  const std::vector<std::string> names = short_names(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t details = all[i].system.find(": ");
    if (details != std::string::npos) page.facts.push_back({names[i], all[i].system.substr(details + 2)});
  }
  if (all.size() > 1) {
    page.sections.push_back({.heading = "Side by side"});
    page.sections.back().charts.push_back(
        {"Systems side by side", "The same requests, in the same order, on each system.", side_by_side(all)});
  }
  page.sections.push_back(latencies(all));
  for (std::size_t i = 0; i < all.size(); ++i) append_sections(page, all[i], all.size() > 1 ? names[i] : "");
  if (!first.records.empty() && first.records.size() < first.num_finished) {
    page.notes.push_back(cat("Requests one by one are the first ", grouped(first.records.size()), " of ",
                             grouped(first.num_finished), " that ended."));
  }
  return page;
}

html::Page page_head(const SimFlags& flags, std::string title) {
  html::Page page{.title = std::move(title), .version = QUIRE_VERSION, .seed = flags.seed};
  if (flags.command != nullptr) page.command = command_line(*flags.command);
  return page;
}

Result<void> write_sim_events(const SimFlags& flags, const std::string& path, const SimulationResult& found) {
  if (found.end_ns > html::kMaxEventNumber)
    return fail(path, ": found a run of ", found.end_ns, " ns, wanted at most ", html::kMaxEventNumber,
                ", the largest time of an event");
  html::RunEvents run = run_events(found);
  const html::Page head = page_head(flags, {});
  run.header.version = head.version;
  run.header.command = head.command;
  run.header.seed = flags.seed;
  std::string text;
  html::append_event(text, run.header);
  for (const html::StepEvent& step : run.steps) html::append_event(text, step);
  for (const html::RequestEvent& event : run.requests) html::append_event(text, event);
  for (const html::BlockRun& block : run.blocks) html::append_event(text, block);
  return write_text(path, text);
}

Result<void> write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) return fail(path, ": ", std::strerror(errno));
  return {};
}

Result<void> write_sim_page(const SimFlags& flags, const html::Page& page) {
  if (flags.html_path.empty()) return {};
  QUIRE_TRY(const std::string text, html::render(page));
  return write_text(flags.html_path, text);
}

}  // namespace quire::cli
