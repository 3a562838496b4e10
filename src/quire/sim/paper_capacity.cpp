// Figure 12 of the PagedAttention paper (sustained rates), the shared prefix of figure 16, and block sizes (figure 18).

#include "quire/sim/capacity.h"
#include "quire/sim/paper_systems.h"

namespace quire {
namespace {

struct Workload {
  std::string label;
  const LengthSampler* lengths;
  double first_rate, seconds;
  bool is_alpaca;
};

double capacity_of(std::string_view system, const Workload& workload, double first_rate, const PaperInputs& inputs) {
  CapacitySearch search;
  search.make_system = paper_system(system, opt_13b_options());
  search.cost = &opt_13b_cost();
  search.lengths = workload.lengths;
  search.seconds = workload.seconds * (inputs.reduced ? 0.25 : 1);
  search.first_rate = first_rate;
  search.seed = inputs.seed;
  return find_capacity(search);
}

PaperRow ratio_row(std::string what, std::optional<double> paper, double ours, std::optional<double> low,
                   std::optional<double> high, std::string note = {}) {
  return {std::move(what), paper, ours, low, high, "x", std::move(note)};
}

}  // namespace

PaperFigure reproduce_fig12(const PaperInputs& inputs) {
  PaperFigure figure;
  figure.title = "Sustained rates (figure 12): OPT-13B, mean normalised latency within 0.3 s/token";
  const EmpiricalLengths sharegpt = filtered_sharegpt(inputs);
  const IndependentLengths recipe = sharegpt_recipe(), alpaca = alpaca_recipe();
  for (const Workload& workload :
       {Workload{"ShareGPT", &sharegpt, 1, 3600, false}, Workload{"ShareGPT recipe", &recipe, 1, 3600, false},
        Workload{"Alpaca recipe", &alpaca, 20, 900, true}}) {
    const double ft = capacity_of("fastertransformer", workload, workload.is_alpaca ? 1.3 : 0.3, inputs);
    const double max = capacity_of("orca-max", workload, workload.is_alpaca ? 5 : 0.6, inputs);
    const double pow2 = capacity_of("orca-pow2", workload, workload.first_rate * 0.8, inputs);
    const double oracle = capacity_of("orca-oracle", workload, workload.first_rate, inputs);
    const double quire = capacity_of("quire", workload, workload.first_rate * 1.7, inputs);
    const std::string& label = workload.label;
    if (workload.is_alpaca) {
      figure.rows.push_back(ratio_row(label + ", vLLM / Orca (Oracle)", 1.3, quire / oracle, {}, {}, "no band set"));
    } else {
      figure.rows.push_back(
          ratio_row(label + ", vLLM / Orca (Oracle)", {}, quire / oracle, 1.7, 2.7, "the paper has 1.7 to 2.7"));
      figure.rows.push_back(
          ratio_row(label + ", vLLM / Orca (Max)", {}, quire / max, 2.7, 8.0, "the paper has 2.7 to 8"));
      figure.rows.push_back(
          ratio_row(label + ", vLLM / FasterTransformer", {}, quire / ft, {}, {}, "the paper has up to 22"));
    }
    for (const auto& [name, rate] : {std::pair<const char*, double>{"FasterTransformer", ft},
                                     {"Orca (Max)", max},
                                     {"Orca (Pow2)", pow2},
                                     {"Orca (Oracle)", oracle},
                                     {"vLLM (Quire)", quire}})
      figure.rows.push_back({label + ", " + name, {}, rate, {}, {}, "requests/s", {}});
  }
  figure.notes = {
      "ShareGPT: first turns with the paper's filter (means 136 / 472); recipe: lognormal prompts, exponential "
      "answers (162 / 334; the paper prints 161 / 338). Alpaca: lognormal recipe (18.5 / 58.4)."};
  return figure;
}

PaperFigure reproduce_prefix(const PaperInputs& inputs) {
  PaperFigure figure;
  figure.title = "A shared prefix (figure 16): LLaMA-13B's shape, translation, Orca (Oracle) against prefix sharing";
  // Sentences and their translations; the paper does not print their lengths.
  const IndependentLengths sentences(LengthDistribution::parse("lognormal:3.3,0.5@4-200").value(),
                                     LengthDistribution::parse("lognormal:3.5,0.5@4-200").value());
  double ratios[2] = {};
  for (int i : {0, 1}) {
    CapacitySearch search;
    SystemOptions options = opt_13b_options();
    options.core.prefix_cache = true;
    search.make_system = paper_system("quire", options);
    search.cost = &opt_13b_cost();
    search.lengths = &sentences;
    search.seconds = inputs.reduced ? 150 : 600;
    search.first_rate = 30;
    search.seed = inputs.seed;
    search.shared_prefix_tokens = i == 0 ? 80 : 341;
    const double quire = find_capacity(search);
    search.make_system = paper_system("orca-oracle", options);
    search.first_rate = 20;
    ratios[i] = quire / find_capacity(search);
  }
  figure.rows.push_back(ratio_row("80 tokens, over Orca (Oracle)", 1.67, ratios[0], 1.0, {}, "direction only"));
  figure.rows.push_back(ratio_row("341 tokens, over Orca (Oracle)", 3.58, ratios[1], 1.0, {}, "direction only"));
  figure.rows.push_back(
      ratio_row("341 tokens against 80 tokens", 3.58 / 1.67, ratios[1] / ratios[0], 1.0, {}, "order only"));
  figure.notes = {"Lengths of the sentences are made up: prompts of about 30 tokens, answers of about 37."};
  return figure;
}

PaperFigure reproduce_block_size(const PaperInputs& inputs) {
  PaperFigure figure;
  figure.title = "Block sizes (figure 18): rates sustained within 0.3 s/token";
  const EmpiricalLengths sharegpt = filtered_sharegpt(inputs);
  const IndependentLengths alpaca = alpaca_recipe();
  const auto capacity = [&](const LengthSampler& lengths, double first_rate, double seconds, std::int32_t block_size) {
    CapacitySearch search;
    search.make_system = paper_system("quire", opt_13b_options(block_size));
    search.cost = &opt_13b_cost();
    search.lengths = &lengths;
    search.seconds = seconds * (inputs.reduced ? 0.5 : 1);
    search.first_rate = first_rate;
    search.seed = inputs.seed;
    return find_capacity(search);
  };
  constexpr std::int32_t kSizes[] = {8, 16, 32, 64, 128};
  double by_size[2][5] = {};
  for (std::size_t i = 0; i < 5; ++i) {
    by_size[0][i] = capacity(sharegpt, 1.8, 1800, kSizes[i]);
    figure.rows.push_back({cat("ShareGPT, block size ", kSizes[i]), {}, by_size[0][i], {}, {}, "requests/s", {}});
  }
  for (std::size_t i = 0; i < 5; ++i) {
    by_size[1][i] = capacity(alpaca, 38, 300, kSizes[i]);
    figure.rows.push_back({cat("Alpaca, block size ", kSizes[i]), {}, by_size[1][i], {}, {}, "requests/s", {}});
  }
  figure.rows.push_back(ratio_row("ShareGPT, 64 against 16", {}, by_size[0][3] / by_size[0][1], 0.9, {},
                                  "the paper: best from 16 to 128"));
  figure.rows.push_back(
      ratio_row("Alpaca, 32 against 16", {}, by_size[1][2] / by_size[1][1], 0.9, {}, "the paper: good at 16 and 32"));
  figure.rows.push_back(ratio_row("Alpaca, 128 against 16", {}, by_size[1][4] / by_size[1][1], {}, 0.95,
                                  "the paper: clearly worse above 32"));
  figure.notes = {"Only what blocks do to memory is simulated; that small blocks cost time in GPU kernels is not."};
  return figure;
}

}  // namespace quire
