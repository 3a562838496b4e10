#pragma once
// Executor: whoever carries out a batch plan: the engine with a model, the simulator with a cost model, a test with a
// script. It mirrors the block tables from the changes in the plans (see sched/batch_plan.h for the order).

#include <cstdint>
#include <vector>

#include "quire/sched/batch_plan.h"
#include "quire/sched/row_result.h"

namespace quire {

struct StepResult {
  std::vector<RowResult> rows;   ///< one for each row of the plan, in its order
  std::uint64_t elapsed_ns = 0;  ///< recorded in the log; decides nothing
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual StepResult execute(const BatchPlan& plan) = 0;
};

}  // namespace quire
