#pragma once
// What the figures of the PagedAttention paper share: OPT-13B's memory, the systems, the lengths.

#include <functional>
#include <memory>

#include "quire/sim/cost_model.h"
#include "quire/sim/paper.h"
#include "quire/sim/systems.h"

namespace quire {

/// 12 GiB at 800 KiB a token.
inline constexpr std::int64_t kOpt13bSlots = 15'728;
inline constexpr std::int64_t kOptMaxSequence = 2048;

/// The engine as the paper's vLLM on OPT-13B, and the pool and limits of the others.
SystemOptions opt_13b_options(std::int32_t block_size = 16);

/// A system of systems.h with them.
std::function<std::unique_ptr<System>()> paper_system(std::string_view name, const SystemOptions& options);

/// The paper's filter: a prompt of 4 to 1,024 tokens, an answer of at least 4, a sum of at most 2,048.
EmpiricalLengths filtered_sharegpt(const PaperInputs& inputs);
/// Made up, with about the means the paper prints for ShareGPT (161 / 338) and for Alpaca (19 / 58).
IndependentLengths sharegpt_recipe();
IndependentLengths alpaca_recipe();

const CostModel& opt_13b_cost();

PaperFigure reproduce_fig2(const PaperInputs& inputs);
PaperFigure reproduce_fig12(const PaperInputs& inputs);
PaperFigure reproduce_fig13(const PaperInputs& inputs);
PaperFigure reproduce_sharing(const PaperInputs& inputs);
PaperFigure reproduce_prefix(const PaperInputs& inputs);
PaperFigure reproduce_block_size(const PaperInputs& inputs);
PaperFigure reproduce_mooncake(const PaperInputs& inputs);
PaperFigure reproduce_vattention(const PaperInputs& inputs);
PaperFigure reproduce_sarathi(const PaperInputs& inputs);
PaperFigure reproduce_jenga(const PaperInputs& inputs);

}  // namespace quire
