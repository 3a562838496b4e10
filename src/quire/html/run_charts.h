#pragma once
// The charts that every run gets, from its events. What has no events gets no chart.

#include <vector>

#include "quire/html/events.h"
#include "quire/html/page.h"

namespace quire::html {

/// KV memory over time (stacked, with the pool's size and the preemptions), requests over time, tokens of steps,
/// histograms of utilisation and internal fragmentation.
Section memory_section(const RunEvents& run);
/// CDFs of the time to the first token, of the end-to-end time and of the mean time between tokens; a table of
/// quantiles.
Section latency_section(const RunEvents& run);
/// A Gantt chart of the requests.
Section request_section(const RunEvents& run);
/// A film of the blocks.
Section block_section(const RunEvents& run);

/// Those of them that have a chart.
std::vector<Section> run_sections(const RunEvents& run);
/// Title, command, version, seed and options from the header, then run_sections().
Page run_page(std::string title, const RunEvents& run);

// The parts, for pages of another order.
LineChart memory_over_time(const RunEvents& run);
LineChart requests_over_time(const RunEvents& run);
BarChart step_budget(const RunEvents& run);
/// In order of arrival.
GanttChart request_gantt(const RunEvents& run);
BlockFilm block_film(const RunEvents& run);

}  // namespace quire::html
