#pragma once
// quire sim run --rates: the same workload at several rates of arrival; latency against rate, and its knee.

#include <string>
#include <vector>

#include "quire/html/page.h"
#include "quire/json/json.h"
#include "quire/sim/simulation.h"
#include "sim.h"

namespace quire::cli {

/// All systems at one rate.
struct RatePoint {
  double rate = 0;  ///< requests a second
  std::vector<SimulationResult> systems;
};

// `points`: not empty, by ascending rate, each with the same systems.
std::string rates_as_text(const std::vector<RatePoint>& points);
json::Array rates_as_json(const std::vector<RatePoint>& points);
html::Page rates_page(const SimFlags& flags, const std::vector<RatePoint>& points);

}  // namespace quire::cli
