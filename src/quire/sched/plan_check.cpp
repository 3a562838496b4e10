#include "quire/sched/plan_check.h"

#include "quire/base/cat.h"

namespace quire {
namespace {

std::optional<std::string> find_bad_row(const PlanRow& row, std::int32_t num_tokens, std::int32_t num_new_blocks) {
  const std::string name = cat("the row of sequence ", row.sequence);
  if (row.begin < 0 || row.num_tokens < 1)
    return cat("B2: ", name, " begins at ", row.begin, " and has ", row.num_tokens, " tokens");
  if (row.token_offset != num_tokens)
    return cat("B2: the tokens of ", name, " begin at ", row.token_offset, ", not at ", num_tokens);
  if (row.num_new_blocks > 0 && row.new_blocks_offset != num_new_blocks)
    return cat("B2: the new blocks of ", name, " begin at ", row.new_blocks_offset, ", not at ", num_new_blocks);
  const bool may_propose = !row.is_prefill && row.samples && !row.ranked && row.num_outputs == 1;
  if (row.num_proposed > 0 && (!may_propose || row.num_tokens != row.num_proposed + 1))
    return cat("B7: ", name, " has ", row.num_tokens, " tokens, of them ", row.num_proposed, " proposals");
  return std::nullopt;
}

std::optional<std::string> find_bad_block(const BatchPlan& plan, const CoreOptions& options) {
  const bool may_be_null = options.geometry().has_windows();
  for (BlockId block : plan.new_blocks)
    if (block.value > static_cast<std::uint32_t>(options.num_blocks) || (block == kNullBlock && !may_be_null))
      return cat("I2: block ", block, " is given out; the pool has 1 to ", options.num_blocks);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_violation(const BatchPlan& plan, const CoreOptions& options) {
  if (plan.num_tokens() > options.token_budget)
    return cat("I7: a step of ", plan.num_tokens(), " tokens, the budget is ", options.token_budget);
  if (plan.rows.size() > static_cast<std::size_t>(options.max_rows))
    return cat("I7: a step of ", plan.rows.size(), " rows, max_rows is ", options.max_rows);
  const auto num_groups = static_cast<std::int32_t>(options.layer_groups.size());
  std::int32_t num_tokens = 0, num_new_blocks = 0;
  bool is_behind_prefill = false;
  for (const PlanRow& row : plan.rows) {
    if (auto violation = find_bad_row(row, num_tokens, num_new_blocks)) return violation;
    if (is_behind_prefill && !row.is_prefill) return cat("B5: sequence ", row.sequence, " decodes behind a prefill");
    is_behind_prefill = row.is_prefill;
    num_tokens += row.num_tokens;
    num_new_blocks += row.num_new_blocks * num_groups;
  }
  if (num_tokens != plan.num_tokens())
    return cat("B2: rows have ", num_tokens, " tokens, the plan ", plan.num_tokens());
  return find_bad_block(plan, options);
}

}  // namespace quire
