// Any load over any small pool: lists of commands that RapidCheck generates and shrinks, invariants after each.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "quire/kv/paged_kv_manager.h"
#include "quire/sched/scheduler.h"

namespace quire {
namespace {

/// kind 0: submit, 1: cancel, 2: end a branch, others: a step
struct Command {
  int kind;
  int prompt_tokens;
  int max_tokens;  ///< 0: unset
  int target;
  int priority;
  int num_branches;
  int width;  ///< of a beam search; 0: none
};

void showValue(const Command& command, std::ostream& out) {
  out << "{kind " << command.kind << ", prompt " << command.prompt_tokens << ", max " << command.max_tokens
      << ", target " << command.target << ", priority " << command.priority << ", branches " << command.num_branches
      << ", width " << command.width << "}";
}

rc::Gen<Command> any_command() {
  return rc::gen::build<Command>(
      rc::gen::set(&Command::kind, rc::gen::weightedElement<int>({{4, 0}, {1, 1}, {1, 2}, {6, 3}})),
      rc::gen::set(&Command::prompt_tokens, rc::gen::inRange(1, 60)),
      rc::gen::set(&Command::max_tokens, rc::gen::inRange(0, 40)),
      rc::gen::set(&Command::target, rc::gen::inRange(0, 20)),
      rc::gen::set(&Command::priority, rc::gen::inRange(-2, 3)),
      rc::gen::set(&Command::num_branches, rc::gen::inRange(1, 5)),
      rc::gen::set(&Command::width, rc::gen::weightedOneOf<int>({{2, rc::gen::just(0)}, {1, rc::gen::inRange(1, 5)}})));
}

CoreOptions any_options() {
  CoreOptions options;
  options.block_size = *rc::gen::element(8, 16);
  options.num_blocks = *rc::gen::inRange(1, 12);
  options.context_tokens = *rc::gen::inRange(1, 200);
  options.token_budget = *rc::gen::inRange(1, 40);
  options.max_rows = *rc::gen::inRange(1, 8);
  options.watermark_blocks = *rc::gen::inRange(-1, 3);
  options.ageing_steps = *rc::gen::inRange(1, 60);
  options.queue_policy = *rc::gen::elementOf(queue_policy_names());
  options.victim_policy = *rc::gen::elementOf(victim_policy_names());
  options.step_composition = *rc::gen::elementOf(step_composition_names());
  return options;
}

class Runner {
 public:
  explicit Runner(const CoreOptions& options)
      : options_(options), kv_(options.num_blocks, options.block_size), scheduler_(options, kv_) {}

  void run(const Command& command) {
    if (command.kind == 0)
      submit(command);
    else if (command.kind == 1)
      scheduler_.end(RequestId{static_cast<std::uint64_t>(command.target)}, FinishReason::cancelled);
    else if (command.kind == 2)
      scheduler_.end_branch(RequestId{static_cast<std::uint64_t>(command.target)}, command.priority,
                            FinishReason::stopped_by_caller);
    else
      step();
    RC_ASSERT(scheduler_.validate().value_or("") == "");
  }

  /// Everything ends within the documented bound.
  void run_to_end() {
    while (has_work()) {
      RC_ASSERT(bound_ > 0);
      step();
      RC_ASSERT(scheduler_.validate().value_or("") == "");
    }
    RC_ASSERT(kv_.capacity().used_blocks() == 0);
    RC_ASSERT(scheduler_.counters().finished_total() == scheduler_.counters().submitted);
  }

 private:
  bool has_work() const { return scheduler_.num_running() + scheduler_.num_waiting() > 0; }

  void submit(const Command& command) {
    CoreRequest request;
    request.id = RequestId{next_request_++};
    request.prompt.assign(static_cast<std::size_t>(command.prompt_tokens), TokenId{1});
    request.priority = command.priority;
    if (command.max_tokens > 0) request.max_tokens = command.max_tokens;
    if (command.width > 0) request.beams = BeamParams{.width = command.width};
    if (command.width == 0) request.num_branches = command.num_branches;
    const int branches = command.width > 0 ? command.width : command.num_branches;
    const std::int64_t need = blocks_needed(kv_, command.prompt_tokens, std::max(1, command.max_tokens), branches);
    const bool fits = need <= options_.num_blocks && branches <= std::min(options_.max_rows, options_.token_budget) &&
                      command.prompt_tokens + std::max(1, command.max_tokens) <= options_.context_tokens;
    const bool refused = scheduler_.submit(request).has_value();
    RC_ASSERT(refused == !fits);
    if (!refused) bound_ += (kMaxPreemptions + 1) * (command.prompt_tokens + branches * options_.pool_tokens());
  }

  void step() {
    const bool had_work = has_work();
    BatchPlan plan;
    scheduler_.plan_step(plan);
    RC_ASSERT(plan.rows.empty() != had_work);
    RC_ASSERT(plan.num_tokens() <= options_.token_budget);
    RC_ASSERT(plan.rows.size() <= static_cast<std::size_t>(options_.max_rows));
    std::vector<RowResult> results;
    for (const PlanRow& row : plan.rows) {
      RowResult& result = results.emplace_back(RowResult{TokenId{2}});
      for (std::int32_t i = 0; i < row.num_outputs; ++i)
        result.candidates.push_back({TokenId{i + 1}, -static_cast<float>(i + row.begin % 3)});
    }
    scheduler_.commit(plan, results);
    if (had_work) --bound_;
  }

  const CoreOptions options_;
  PagedKvManager kv_;
  Scheduler scheduler_;
  std::uint64_t next_request_ = 1;
  std::int64_t bound_ = 0;  ///< steps left
};

RC_GTEST_PROP(SchedulerProperty, AnyLoadKeepsTheInvariantsAndEndsWithinTheBound, ()) {
  Runner runner(any_options());
  for (const Command& command : *rc::gen::container<std::vector<Command>>(any_command())) runner.run(command);
  runner.run_to_end();
}

}  // namespace
}  // namespace quire
