#include "quire/sim/paper.h"

#include <algorithm>
#include <array>

#include "quire/base/check.h"
#include "quire/sim/paper_systems.h"

namespace quire {
namespace {

struct Named {
  std::string_view name;
  PaperFigure (*reproduce)(const PaperInputs&);
};
constexpr Named kFigures[] = {
    {"fig2", reproduce_fig2},         {"fig12", reproduce_fig12},           {"fig13", reproduce_fig13},
    {"sharing", reproduce_sharing},   {"prefix", reproduce_prefix},         {"block-size", reproduce_block_size},
    {"mooncake", reproduce_mooncake}, {"vattention", reproduce_vattention}, {"sarathi", reproduce_sarathi},
    {"jenga", reproduce_jenga},
};

constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kFigures)> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kFigures[i].name;
  return names;
}();

}  // namespace

std::string_view to_string(Verdict verdict) {
  return verdict == Verdict::within ? "within" : verdict == Verdict::outside ? "OUTSIDE" : "no verdict";
}

Verdict PaperRow::verdict() const {
  if (!low && !high) return Verdict::none;
  return (!low || ours >= *low) && (!high || ours <= *high) ? Verdict::within : Verdict::outside;
}

bool PaperFigure::is_within() const {
  return std::none_of(rows.begin(), rows.end(), [](const PaperRow& row) { return row.verdict() == Verdict::outside; });
}

std::span<const std::string_view> paper_figure_names() { return kNames; }

PaperFigure reproduce_figure(std::string_view name, const PaperInputs& inputs) {
  for (const Named& figure : kFigures)
    if (figure.name == name) {
      PaperFigure found = figure.reproduce(inputs);
      found.name = name;
      return found;
    }
  QUIRE_CHECK(false, "no figure ", name);
}

// -- what the figures share --

SystemOptions opt_13b_options(std::int32_t block_size) {
  SystemOptions options;
  options.core.block_size = block_size;
  options.core.num_blocks = static_cast<std::int32_t>(kOpt13bSlots / block_size);
  options.core.context_tokens = static_cast<std::int32_t>(kOptMaxSequence);
  options.core.token_budget = 2560;
  options.core.step_composition = "prefill-first";
  options.pool_slots = kOpt13bSlots;
  options.max_sequence = kOptMaxSequence;
  return options;
}

std::function<std::unique_ptr<System>()> paper_system(std::string_view name, const SystemOptions& options) {
  return [name, options] { return make_system(name, options).value(); };
}

EmpiricalLengths filtered_sharegpt(const PaperInputs& inputs) {
  std::vector<LengthPair> pairs;
  for (const LengthPair& pair : inputs.sharegpt)
    if (pair.prompt_tokens >= 4 && pair.prompt_tokens <= 1024 && pair.output_tokens >= 4 &&
        pair.prompt_tokens + pair.output_tokens <= 2048)
      pairs.push_back(pair);
  QUIRE_CHECK(!pairs.empty(), "no ShareGPT lengths");
  return EmpiricalLengths(std::move(pairs));
}

IndependentLengths sharegpt_recipe() {
  return {LengthDistribution::parse("lognormal:4.6,1.25@4-1024").value(),
          LengthDistribution::parse("exponential:340@4-2044").value(), 2048};
}

IndependentLengths alpaca_recipe() {
  // max(5, ...) and 1 + ... of the recipe, by whole tokens.
  return {LengthDistribution::parse("lognormal:2.72,0.65@5-600").value(),
          LengthDistribution::parse("lognormal:3.55,1.05@1-700").value(), 2048};
}

const CostModel& opt_13b_cost() {
  static const std::shared_ptr<const CostModel> cost = make_cost_model("opt-13b").value();
  return *cost;
}

}  // namespace quire
