#pragma once
// Thinning of long series, by the rule in chart_json.h. Internal to html.

#include <vector>

#include "quire/html/chart.h"

namespace quire::html {

/// Each series by itself, to at most `max_points` (>= 4). Returns the longest run that two points stand for; 1 if
/// nothing was left out.
std::size_t thin_each(std::vector<Series>& series, std::size_t max_points);
/// The same points of all, which have as many, chosen by the sum of their y.
std::size_t thin_stacked(std::vector<Series>& series, std::size_t max_points);

}  // namespace quire::html
