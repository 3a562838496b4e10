#pragma once
// Results of simulations as tables and as JSON; what a report needs is all in the JSON.

#include <string>

#include "quire/json/json.h"
#include "quire/sim/simulation.h"

namespace quire::cli {

/// {count, mean, p50, p90, p95, p99, max} in seconds.
json::Value times_as_json(const Histogram& ns);

json::Object simulation_as_json(const SimulationResult& found);

/// The table of metrics, several systems side by side.
std::string simulations_as_text(const std::vector<SimulationResult>& all);

}  // namespace quire::cli
