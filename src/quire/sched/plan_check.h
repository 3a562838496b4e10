#pragma once
// What is checked of every plan before it is computed, in production too: what can be seen from the plan alone, in
// O(rows + new blocks). What needs more is checked in tests (EngineCore::validate, core/shadow_executor.h).
//
//  I7  a step's tokens are within the budget, its rows within max_rows
//  B2  rows' tokens and new blocks lie one after another
//  B5  decodes come before prefill chunks
//  B7  a row with proposals is a decode with one output that samples
//  I2  a new block is one of the pool's, and is the null block only where windows allow that
//
// The plan of a bug would read or overwrite others' K and V; so its process ends instead.

#include <optional>
#include <string>

#include "quire/sched/batch_plan.h"
#include "quire/sched/options.h"

namespace quire {

/// The first violation, or nullopt.
std::optional<std::string> find_violation(const BatchPlan& plan, const CoreOptions& options);

}  // namespace quire
