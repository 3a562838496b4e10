#pragma once
// Results of simulations as HTML pages.

#include <string>
#include <vector>

#include "quire/html/run_charts.h"
#include "quire/sim/exercise.h"
#include "quire/sim/paper.h"
#include "quire/sim/simulation.h"
#include "sim.h"

namespace quire::cli {

/// Steps and requests that the simulation kept (SimulationOptions::max_samples and max_records), as events.
html::RunEvents run_events(const SimulationResult& found);

/// The film of the blocks, if it was recorded.
html::Section block_section(const SimulationResult& found);

/// Several systems side by side, then each by itself.
html::Page simulations_page(const SimFlags& flags, const std::vector<SimulationResult>& all);

html::Page exercise_page(const SimFlags& flags, const ExerciseReport& found, std::vector<std::string> notes);

html::Page paper_page(const SimFlags& flags, const std::vector<PaperFigure>& figures);

/// Title, version and seed; the command as it was given.
html::Page page_head(const SimFlags& flags, std::string title);

/// Writes the run's events to `path`, as docs/events.md has them.
Result<void> write_text(const std::string& path, const std::string& text);
Result<void> write_sim_events(const SimFlags& flags, const std::string& path, const SimulationResult& found);

/// Writes the page to --html FILE, if that was given.
Result<void> write_sim_page(const SimFlags& flags, const html::Page& page);

}  // namespace quire::cli
