#pragma once
// Cost models from files that describe a GPU: what was measured on it, by others or by oneself.
//
// Either DistServe's profiles (JSON): for each model and number of GPUs three coefficients, in milliseconds, of
//     prefill             a + b * (prompt tokens of the step) + c * (sum of their squares)
//     decoding_smallbs    a + b * (context tokens of the step) + c * (rows)
//     decoding_largebs    the same, from decoding_large_small_bs_threshold rows up
// or points measured by oneself (CSV, the head names the columns):
//     prompt_tokens,decode_rows,ms
//     512,0,105.6             a step of one prompt
//     0,8,69.7                a step of eight decodes
// with straight lines between them (sim/cost_model.h, TableCost); rows of both kinds rise by what they count.
//
// What is wrong is one line that names file, row and column, or file and field.

#include <memory>
#include <string_view>

#include "quire/base/result.h"
#include "quire/sim/cost_model.h"

namespace quire::planning {

/// `text` is the file's. `model` and `gpus` choose from a profile of several; empty where it has one, ignored by
/// points.
Result<std::shared_ptr<const CostModel>> read_gpu_profile(std::string_view file, std::string_view text,
                                                          std::string_view model, std::string_view gpus);

/// NAME as make_cost_model() knows it, or FILE[,MODEL[,GPUS]]. An error says what could have been given.
Result<std::shared_ptr<const CostModel>> open_cost_model(std::string_view what);

}  // namespace quire::planning
