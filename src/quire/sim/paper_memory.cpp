// Figures 2 and 13a of the PagedAttention paper: what KV memory is used for, and how many requests run at once.

#include "quire/sim/paper_systems.h"
#include "quire/sim/simulation.h"
#include "quire/workload/synthetic.h"

namespace quire {
namespace {

constexpr double kNs = 1e9;

/// An hour of Poisson arrivals; means from minute 10 on.
SimulationResult run_hour(std::string_view system_name, double rate, const LengthSampler& lengths,
                          const PaperInputs& inputs) {
  const double seconds = inputs.reduced ? 1500 : 3600;
  const auto end_ns = static_cast<std::uint64_t>(seconds * kNs);
  SyntheticSource source({.num_requests = ~std::uint64_t{0}, .end_ns = end_ns, .seed = inputs.seed},
                         ArrivalProcess::poisson(rate), lengths);
  const auto system = paper_system(system_name, opt_13b_options())();
  SimulationOptions options{.max_samples = 0};
  options.begin_ns = static_cast<std::uint64_t>(600 * kNs);
  options.end_ns = options.stop_ns = end_ns;
  return simulate(*system, opt_13b_cost(), source, options);
}

struct Shares {
  double token, reserved, internal, external;  ///< %
};

/// As the paper counts them: rounding of the buddies is external.
Shares shares_of(const WeightedMemory& memory) {
  return {100 * memory.share(memory.written), 100 * memory.share(memory.reserved), 100 * memory.share(memory.unused),
          100 * (memory.free_share() + memory.share(memory.rounding))};
}

struct System2 {
  std::string_view name, label;
  double band;  ///< points
  Shares paper;
};
constexpr System2 kFig2[] = {
    {"orca-max", "Orca (Max)", 5, {20.4, 13.3, 57.3, 8.9}},
    {"orca-pow2", "Orca (Pow2)", 7, {26.8, 17.9, 13.6, 41.6}},
    {"orca-oracle", "Orca (Oracle)", 5, {38.2, 25.2, 0, 36.6}},
};

PaperRow points(std::string what, double paper, double ours, double band) {
  return {std::move(what), paper, ours, paper - band, paper + band, "%", {}};
}

}  // namespace

PaperFigure reproduce_fig2(const PaperInputs& inputs) {
  PaperFigure figure;
  figure.title = "What KV memory is used for (figure 2): OPT-13B, ShareGPT, 2 requests/s";
  const EmpiricalLengths lengths = filtered_sharegpt(inputs);
  for (const System2& system : kFig2) {
    const Shares ours = shares_of(run_hour(system.name, 2, lengths, inputs).memory);
    const std::string label = cat(system.label, ", ");
    figure.rows.push_back(points(label + "token states", system.paper.token, ours.token, system.band));
    figure.rows.push_back(points(label + "reservation", system.paper.reserved, ours.reserved, system.band));
    figure.rows.push_back(points(label + "internal", system.paper.internal, ours.internal, system.band));
    figure.rows.push_back(points(label + "external and others", system.paper.external, ours.external, system.band));
  }
  const Shares quire = shares_of(run_hour("quire", 2, lengths, inputs).memory);
  figure.rows.push_back(points("vLLM (Quire), token states", 96.3, quire.token, 5));
  figure.notes = {
      "Buddy rounding counts as external, with free memory: only so do the printed bars add up.",
      "Lengths: first turns of ShareGPT-4 conversations, the paper's filter; answers are longer than the paper's."};
  return figure;
}

PaperFigure reproduce_fig13(const PaperInputs& inputs) {
  struct Batch {
    std::string_view name, label;
    double sharegpt, band;
    std::optional<double> alpaca;
  };
  const Batch batches[] = {{"orca-max", "Orca (Max)", 7.00, 0.15, 7.00},
                           {"orca-pow2", "Orca (Pow2)", 9.81, 0.20, std::nullopt},
                           {"orca-oracle", "Orca (Oracle)", 13.62, 0.15, 72.75},
                           {"quire", "vLLM (Quire)", 30.42, 0.15, 132.44}};
  PaperFigure figure;
  figure.title = "Requests at once (figure 13): OPT-13B, ShareGPT at 2 requests/s, Alpaca at 30";
  const EmpiricalLengths sharegpt = filtered_sharegpt(inputs);
  for (const Batch& batch : batches) {
    const WeightedMemory memory = run_hour(batch.name, 2, sharegpt, inputs).memory;
    figure.rows.push_back({cat(batch.label, ", ShareGPT"),
                           batch.sharegpt,
                           memory.mean(memory.running),
                           batch.sharegpt * (1 - batch.band),
                           batch.sharegpt * (1 + batch.band),
                           "requests",
                           {}});
  }
  const IndependentLengths alpaca = alpaca_recipe();
  for (const Batch& batch : batches) {
    const WeightedMemory memory = run_hour(batch.name, 30, alpaca, inputs).memory;
    figure.rows.push_back({cat(batch.label, ", Alpaca"),
                           batch.alpaca,
                           memory.mean(memory.running),
                           {},
                           {},
                           "requests",
                           "made-up lengths"});
  }
  return figure;
}

}  // namespace quire
