#include "quire/sim/step_shape.h"

#include "quire/sched/batch_plan.h"

namespace quire {

StepShape shape_of(const BatchPlan& plan) {
  StepShape shape;
  for (const PlanRow& row : plan.rows) {
    if (row.is_prefill) {
      shape.add_prefill(row.begin, row.end(), row.num_logits());
    } else {
      shape.add_decode(row.end(), row.num_tokens, row.num_logits());
    }
  }
  return shape;
}

}  // namespace quire
