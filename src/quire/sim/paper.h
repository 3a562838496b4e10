#pragma once
// Published results, reproduced: each figure is a list of rows with the paper's value, ours, the band that we hold
// ourselves to, and a verdict.
//
// Sources: PagedAttention (Kwon et al., SOSP 2023), Sarathi-Serve (Agrawal et al., OSDI 2024), Mooncake (Qin et al.,
// FAST 2025), vAttention (Prabhu et al., ASPLOS 2025), Jenga (Zhang et al., SOSP 2025). Systems: reserving_system.h and
// static_batch_system.h as the first paper defines its baselines; vLLM is the engine's own core with blocks of 16, the
// latest arrival as victim, recompute, and iterations that are either prompts of up to 2,560 tokens or decodes. Costs
// are the A100-80GB fits of cost_model.h; the papers' OPT-13B ran on 40 GB cards.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/workload/beam_forks.h"
#include "quire/workload/lengths.h"
#include "quire/workload/request_spec.h"

namespace quire {

enum class Verdict { within, outside, none };
std::string_view to_string(Verdict verdict);

struct PaperRow {
  std::string what;
  std::optional<double> paper;  ///< none: the paper gives no number
  double ours = 0;
  std::optional<double> low, high;  ///< the band; none: no verdict
  std::string unit;                 ///< "%", "x", "requests", ...
  std::string note;

  Verdict verdict() const;
};

struct PaperFigure {
  std::string name, title;
  std::vector<PaperRow> rows;
  std::vector<std::string> notes;

  bool is_within() const;  ///< no row is outside
};

/// What the figures need from outside.
struct PaperInputs {
  std::vector<LengthPair> sharegpt;       ///< first turns, unfiltered
  std::vector<RequestSpec> conversation;  ///< Mooncake's
  std::vector<RequestSpec> synthetic;
  std::vector<BeamForks> beam_searches;  ///< recorded; of sets alpaca and sharegpt, widths 2, 4, 6
  std::uint64_t seed = 42;
  bool reduced = false;  ///< a quarter of the simulated time
};

/// "fig2", "fig12", "fig13", "sharing", "prefix", "block-size", "mooncake", "vattention", "sarathi",
/// "jenga".
std::span<const std::string_view> paper_figure_names();

/// name: one of paper_figure_names().
PaperFigure reproduce_figure(std::string_view name, const PaperInputs& inputs);

}  // namespace quire
