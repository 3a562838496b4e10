#pragma once
// A chart as the JSON that the page's script draws. Internal to html: use page.h.
//
// How much is too much for a page, and how it is thinned:
//   lines    a series of more than kMaxPoints points is cut into runs of equally many; of each run the points with the
//            lowest and the highest y stay, and so do the first and the last point of all. Stacked series keep the same
//            points, chosen by their sum
//   Gantt    with more than kMaxGanttSpans spans every k-th request stays, with the smallest k that fits
//   films    of more than kMaxFilmBlocks blocks every k-th one stays, with the smallest k that fits; with more than
//   kMaxFilmRuns runs each block is looked at in so many equally spaced moments that they fit
// The object then has a "note" that says what was left out; the table and the CSV are of what stayed.

#include <string>

#include "quire/base/result.h"
#include "quire/html/chart.h"

namespace quire::html {

inline constexpr std::size_t kMaxPoints = 8'000;
inline constexpr std::size_t kMaxGanttSpans = 200'000;
inline constexpr std::size_t kMaxFilmBlocks = 4096;
inline constexpr std::size_t kMaxFilmRuns = 100'000;

/// Appends one JSON object. An error names the chart, the series and the place.
Result<void> append_chart(std::string& out, const Chart& chart);

}  // namespace quire::html
