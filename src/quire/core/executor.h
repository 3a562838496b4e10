#pragma once
// Executor: whoever carries out a batch plan: the engine with a model, the simulator with a cost model, a test with a
// script. It mirrors the block tables from the changes in the plans (see sched/batch_plan.h for the order).

#include <cstdint>
#include <vector>

#include "quire/base/ids.h"
#include "quire/sched/batch_plan.h"

namespace quire {

struct RowResult {
  TokenId token{-1};    ///< the sampled token, >= 0; meaningful if the row samples and has not failed
  bool failed = false;  ///< as for a non-finite value: this row's request ends with an error, nobody else's
  friend bool operator==(const RowResult&, const RowResult&) = default;
};

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
