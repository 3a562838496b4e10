#include "quire/sim/step_shape.h"

#include <vector>

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

StepShape shape_of(const BatchPlan& plan, const FindTable& table_of, std::int64_t block_size) {
  StepShape shape = shape_of(plan);
  if (shape.num_decode_rows < 2) return shape;
  std::vector<DecodeContext> contexts;
  for (const PlanRow& row : plan.rows) {
    if (row.is_prefill) continue;
    const auto table = table_of(row.sequence);
    if (!table.empty()) contexts.push_back({table, row.begin + 1});
  }
  shape.shared = find_shared_context(contexts, block_size);
  return shape;
}

}  // namespace quire
