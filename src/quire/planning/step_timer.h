#pragma once
// StepTimer: how long the engine's executor takes for a step of a given shape, with a real model. The step's plan is
// made up: sequences begin where the shape says, over blocks of their own whose content nobody has computed, since time
// does not depend on it, only on its being somewhere. The most likely token is taken: what drawing one takes on top
// depends on how flat the distribution is, and is no part of a calibration.
//
// Owns the model; one thread.

#include <memory>
#include <vector>

#include "quire/engine/engine.h"
#include "quire/engine/loading.h"
#include "quire/engine/model_executor.h"
#include "quire/sim/step_shape.h"

namespace quire::planning {

struct TimedRow {
  std::int32_t begin = 0, num_tokens = 1;
  bool is_prefill = false;
  bool samples = true;
  std::int32_t shared = 0;  ///< its first positions, in blocks that all rows of the step that share have in common
};

struct TimedStep {
  std::vector<TimedRow> rows;

  /// `count` more decode rows that each attend to `context` positions.
  TimedStep& decodes(std::int32_t count, std::int32_t context);
  /// The same on average, from half of it to one and a half: threads then end less evenly. Before it come `shared`
  /// positions that all have in common; whole blocks.
  TimedStep& uneven_decodes(std::int32_t count, std::int32_t mean_context, std::int32_t shared = 0);
  /// One more chunk of a prompt; the last one samples.
  TimedStep& prefill(std::int32_t begin, std::int32_t num_tokens, bool is_last = true);
};

class StepTimer {
 public:
  /// Errors are those of loading, and what cannot be measured: another KV manager than the paged one.
  static Result<std::unique_ptr<StepTimer>> open(const engine::EngineOptions& options);

  /// Whether pool, context and batch limits have room for the step.
  bool has_room_for(const TimedStep& step) const;
  /// Of the step as a plan. It has room.
  StepShape shape_of(const TimedStep& step) const;
  /// Nanoseconds of each of `times` executions, after one that is not counted. It has room.
  std::vector<double> time(const TimedStep& step, int times);

  const engine::EngineInfo& info() const { return loaded_.info; }

 private:
  explicit StepTimer(engine::Loaded loaded);
  BatchPlan plan_of(const TimedStep& step) const;
  std::int64_t most_shared_entries(const TimedStep& step) const;
  std::int64_t blocks_of(const TimedStep& step) const;

  engine::Loaded loaded_;
  GroupGeometry geometry_;
  std::vector<BlockId> blocks_;  ///< of the pool, in the order in which steps take them
  std::unique_ptr<engine::ModelExecutor> executor_;
  std::uint64_t next_sequence_ = 1;
};

}  // namespace quire::planning
