#include "quire/sim/recorded_run.h"

#include "quire/base/cat.h"
#include "quire/sim/engine_system.h"

namespace quire {
namespace {

std::string plan_in_words(const BatchPlan& plan) {
  std::string text;
  std::size_t num_decodes = 0;
  for (const PlanRow& row : plan.rows) {
    if (!row.is_prefill) {
      ++num_decodes;
      continue;
    }
    text += cat(text.empty() ? "" : ", ", "prefill of request ", row.request, " from ", row.begin, " to ", row.end());
  }
  if (num_decodes > 0)
    text = cat(num_decodes, num_decodes == 1 ? " decode" : " decodes", text.empty() ? "" : ", ", text);
  return text.empty() ? "no rows" : text;
}

/// The simulator's system as something that a log runs on.
class SystemTarget final : public ReplayTarget {
 public:
  SystemTarget(EngineSystem& system, RecordedRun& run) : system_(system), run_(run) {}

  void submit(CoreRequest request) override { system_.submit_recorded(std::move(request)); }
  void cancel(RequestId request) override { system_.core().cancel(request); }
  void finish_branch(RequestId request, std::int32_t branch, FinishReason reason) override {
    system_.core().finish_branch(request, branch, reason);
  }
  void note_files(const std::vector<BlockKey>& keys) override { system_.core().note_files(keys); }
  void end_transfer(const TransferEnd& end) override { system_.core().end_transfer(end); }

  const BatchPlan& plan_step() override {
    const StepShape& shape = system_.plan_step();
    run_.steps.push_back({system_.plan().step, shape, 0});
    return system_.plan();
  }

  std::vector<Event> commit(const StepResult& result) override {
    run_.steps.back().elapsed_ns = result.elapsed_ns;
    ++num_commits_;
    changes_.clear();
    system_.commit_recorded(result, changes_);
    for (const RequestChange& change : changes_) run_.num_preemptions += change.kind == ChangeKind::preempted;
    return {};
  }

  std::size_t num_commits() const { return num_commits_; }

 private:
  EngineSystem& system_;
  RecordedRun& run_;
  std::size_t num_commits_ = 0;
  std::vector<RequestChange> changes_;
};

}  // namespace

Result<RecordedRun> replay_in_simulator(std::span<const std::byte> log) {
  RecordedRun run;
  QUIRE_TRY(run.options, read_log_options(log));
  QUIRE_TRY(const auto system, EngineSystem::create(run.options));
  SystemTarget target(*system, run);
  QUIRE_TRY(const Replay replay, replay_on(target, log));
  run.cached_tokens = system->core().counters().prefix_hits;
  run.steps.resize(target.num_commits());  // without the plan that differs, or after which the log ends
  if (replay.first_difference)
    run.difference = PlanDifference{*replay.first_difference, replay.recorded_digest, replay.plan_digests.back(),
                                    plan_in_words(system->plan())};
  return run;
}

std::string describe(const PlanDifference& difference) {
  return cat("step ", difference.step, " differs: the recorded plan has the digest ", difference.recorded_digest,
             ", the simulator's ", difference.found_digest, " (", difference.plan, ")");
}

}  // namespace quire
