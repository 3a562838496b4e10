#pragma once
// EngineSystem: the engine's own EngineCore under the simulator. The same object code decides as under a model:
// policies, admission, chunks, preemption, prefix cache. An answer ends when it has the workload's length.
//
// With a prefix cache, tokens get ids from the names of their blocks or from their session, so that equal names are
// equal content, and a conversation finds its own past; everything else has ids that no other request has.

#include <deque>
#include <memory>

#include "quire/core/engine_core.h"
#include "quire/sim/system.h"

namespace quire {

class EngineSystem final : public System {
 public:
  /// `sink` (may be null) receives the command log and outlives the system.
  static Result<std::unique_ptr<EngineSystem>> create(const CoreOptions& options, CommandSink* sink = nullptr);

  bool submit(RequestId id, const RequestSpec& spec) override;
  const std::string& refusal() const override { return refusal_; }
  /// A request of a recorded run, with its own tokens; commit_recorded() has what it samples.
  bool submit_recorded(CoreRequest request);
  bool has_work() const override { return core_->has_work(); }
  const StepShape& plan_step() override;
  MemoryUse memory() const override;
  void commit(std::vector<RequestChange>& changes) override;
  void commit_recorded(const StepResult& result, std::vector<RequestChange>& changes);
  void look_at_blocks(std::vector<BlockCell>& cells) const override { owners_.look(core_->kv(), cells); }
  std::int32_t block_size() const override { return core_->options().block_size; }
  std::int32_t max_step_tokens() const override { return core_->options().token_budget; }
  std::int32_t num_running() const override { return core_->num_running(); }
  std::int32_t num_waiting() const override { return core_->num_waiting(); }
  std::uint64_t plan_digest() const override { return plan_->digest(); }
  std::optional<std::string> validate() const override { return core_->validate(); }
  std::string description() const override;

  const EngineCore& core() const { return *core_; }
  /// For commands of a recorded run, between steps.
  EngineCore& core() { return *core_; }
  /// The step that is planned, or was last.
  const BatchPlan& plan() const { return *plan_; }

 private:
  explicit EngineSystem(std::unique_ptr<EngineCore> core) : core_(std::move(core)) {}
  struct Live {
    std::uint64_t content;  ///< decides the tokens it samples
    std::int32_t written;   ///< positions with K and V; -1: ended
    std::int32_t lost = 0;  ///< positions that a preemption took and that are not there again
  };
  Live& live_of(RequestId id) { return live_[static_cast<std::size_t>(id.value - first_id_)]; }
  bool submit(CoreRequest request, std::uint64_t content);
  /// Notes what has become of requests, and appends it.
  void note(const std::vector<Event>& events, std::vector<RequestChange>& changes);
  void note_row(const PlanRow& row);
  void forget_front();

  std::unique_ptr<EngineCore> core_;
  const BatchPlan* plan_ = nullptr;
  StepShape shape_;
  StepResult result_;
  std::vector<RequestChange> planned_;  ///< by the open plan
  BlockOwners owners_;
  std::deque<Live> live_;  ///< by request id from first_id_
  std::uint64_t first_id_ = 1;
  std::int64_t total_written_ = 0;
  std::string refusal_;
};

}  // namespace quire
