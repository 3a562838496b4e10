// A page with every kind of chart, of a made-up run: what tests/html/render_check.py looks at.
//
//     sample_page OUT.html [--requests N] [--blocks N] [--events FILE]

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "../support/toy_run.h"
#include "quire/html/run_charts.h"

namespace {

using namespace quire::html;

Chart latency_against_rate() {
  LineChart chart{.x = {"rate", "requests/s"}, .y = {"latency", "s/token"}};
  const std::vector<double> rates = {0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5};
  chart.series = {{"paged", Draw::line, rates, {0.041, 0.042, 0.044, 0.047, 0.052, 0.06, 0.075, 0.11, 0.31, 0.92}},
                  {"contiguous", Draw::line, rates, {0.041, 0.046, 0.07, 0.19, 0.5, 0.83, 1.1, 1.4, 1.7, 2.0}}};
  chart.limits = {{"limit 0.2 s/token", 0.2}};
  chart.knee = Knee{4, 0.11, "knee: 4 requests/s"};
  return {"Latency against rate", "Normalised latency over the rate of arrivals; beyond the knee the queue only grows.",
          chart};
}

Chart managers() {
  Comparison comparison{"manager", {"paged", "contiguous", "buddy", "static batches"}, {}};
  comparison.metrics = {{"requests at once", "", Better::higher, {29.1, 10, 14.6, 8}},
                        {"memory utilisation", "%", Better::higher, {95.7, 34.2, 48.1, 22.5}},
                        {"internal fragmentation", "%", Better::lower, {4.3, 65.8, 31.2, 71}},
                        {"KV memory held", "bytes", Better::neither, {187654321, 541165568, 412345678, 601234567}},
                        {"end-to-end p95", "s", Better::lower, {11.2, 31.9, 22.4, 40.8}},
                        {"preemptions", "", Better::neither, {17, 0, 0, 0}}};
  return {"Managers side by side", "The same requests under four ways of managing memory.", comparison};
}

Section compared() {
  Section section{.heading = "Managers", .text = {"Made-up numbers: this page shows what pages look like."}};
  section.verdicts = {{"requests at once, paged / contiguous", "3 to 5", "2.9", "at max length 512", Outcome::fails},
                      {"fragmentation at block size 16", "at most 5 %", "4.3 %", "5 %", Outcome::holds},
                      {"beam sharing", "9.8 %", "", "no recorded forks", Outcome::none}};
  section.charts = {managers(), latency_against_rate()};
  return section;
}

int fail_with(const std::string& message) {
  std::cerr << "sample_page: " << message << '\n';
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A page with every kind of chart, of a made-up run");
  std::string path, events_path;
  quire::test::ToyOptions options;
  app.add_option("OUT", path, "the page")->required();
  app.add_option("--requests", options.num_requests, "requests")->check(CLI::Range(1, 100'000));
  app.add_option("--blocks", options.num_blocks, "blocks of the pool")->check(CLI::Range(64, 100'000));
  app.add_option("--events", events_path, "also the events, as JSON lines");
  CLI11_PARSE(app, argc, argv);

  const RunEvents run = quire::test::ToyRun(options).take();
  if (!events_path.empty()) {
    std::string text;
    append_event(text, run.header);
    for (const auto& step : run.steps) append_event(text, step);
    for (const auto& event : run.requests) append_event(text, event);
    for (const auto& block : run.blocks) append_event(text, block);
    if (!(std::ofstream(events_path, std::ios::binary) << text)) return fail_with(events_path + ": cannot be written");
  }
  Page page = run_page("A sample of Quire's pages", run);
  page.subtitle = "Every kind of chart, of a made-up run with more requests than memory.";
  page.notes = {"Every picture has its table and a CSV; colours follow the reader's light or dark setting."};
  page.sections.insert(page.sections.begin(), compared());
  const auto html = render(page);
  if (!html.ok()) return fail_with(html.error().message);
  if (!(std::ofstream(path, std::ios::binary) << *html)) return fail_with(path + ": cannot be written");
  return 0;
}
