// Sarathi-Serve: chunked prefills beside decodes against prompts computed whole, before decodes.

#include "quire/sim/capacity.h"
#include "quire/sim/paper_systems.h"

namespace quire {
namespace {

constexpr std::uint64_t kStrictNs = 200'000'000;        ///< between tokens, 99th percentile, Yi-34B
constexpr std::uint64_t kMostQueuedNs = 2'000'000'000;  ///< in the queue, median

/// Yi-34B on two A100-80GB: about 80 GB for K and V of 240 KB a token.
SystemOptions yi_34b_options(std::int32_t token_budget) {
  SystemOptions options;
  options.core.num_blocks = 20'000;
  options.core.context_tokens = 16'384;
  options.core.token_budget = token_budget;
  options.core.max_rows = 128;
  return options;
}

}  // namespace

PaperFigure reproduce_sarathi(const PaperInputs& inputs) {
  PaperFigure figure;
  figure.title = "Chunked prefills (Sarathi-Serve): Yi-34B on two A100-80GB, chat";
  const auto cost = make_cost_model("yi-34b").value();
  // Medians of the chat workload: prompts 1,730, answers 415, at most 8,192 together.
  const IndependentLengths chat(LengthDistribution::parse("lognormal:7.456,0.8@16-8000").value(),
                                LengthDistribution::parse("lognormal:6.03,0.6@16-2000").value(), 8192);
  CapacitySearch search;
  search.cost = cost.get();
  search.lengths = &chat;
  search.seconds = inputs.reduced ? 300 : 1200;
  search.seed = inputs.seed;
  search.first_rate = 0.3;
  search.precision = 0.05;
  search.is_good = [](const SimulationResult& result) {
    return result.inter_token_ns.quantile(990) <= kStrictNs && result.queue_ns.quantile(500) <= kMostQueuedNs;
  };
  struct Variant {
    std::string label;
    SystemOptions options;
    double p99_s = 0, capacity = 0;
  };
  Variant variants[] = {{"chunks of 512 beside decodes", yi_34b_options(512)},
                        {"chunks of 2,048 beside decodes", yi_34b_options(2048)},
                        {"whole prompts before decodes", yi_34b_options(8192)}};
  variants[2].options.core.step_composition = "prefill-first";
  for (Variant& variant : variants) {
    search.make_system = paper_system("quire", variant.options);
    variant.p99_s = static_cast<double>(run_at_rate(search, 0.3).inter_token_ns.quantile(990)) * 1e-9;
    figure.rows.push_back({variant.label + ", between tokens at 0.3/s, p99", {}, variant.p99_s, {}, {}, "s", {}});
  }
  for (std::size_t i : {0u, 2u}) {
    search.make_system = paper_system("quire", variants[i].options);
    variants[i].capacity = find_capacity(search);
    figure.rows.push_back({variants[i].label + ", rate within 0.2 s p99, 2 s queued",
                           {},
                           variants[i].capacity,
                           {},
                           {},
                           "requests/s",
                           {}});
  }
  figure.rows.push_back(
      {"p99, 2,048 against 512", {}, variants[1].p99_s / variants[0].p99_s, 1.0, {}, "x", "order only"});
  figure.rows.push_back(
      {"p99, whole prompts against 2,048", {}, variants[2].p99_s / variants[1].p99_s, 1.0, {}, "x", "order only"});
  const double whole = variants[2].capacity;
  figure.rows.push_back({"rate, chunks of 512 over whole prompts",
                         {},
                         whole > 0 ? variants[0].capacity / whole : 1e9,
                         1.0,
                         {},
                         "x",
                         "the paper: up to 3.7; direction only"});
  figure.notes = {"Lengths are lognormal with the medians of the paper's chat workload."};
  return figure;
}

}  // namespace quire
