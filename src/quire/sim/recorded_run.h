#pragma once
// RecordedRun: a run of the engine, from its command log (EngineOptions::command_log), through the simulator: the same
// EngineSystem that predicts runs gets the recorded commands and samples, and must decide what the engine decided.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/core/command_log.h"
#include "quire/sim/step_shape.h"

namespace quire {

struct RecordedStep {
  std::uint64_t step = 0;
  StepShape shape;               ///< of the plan, as the simulator sees it
  std::uint64_t elapsed_ns = 0;  ///< that the executor took
};

/// The first plan that is not the recorded one.
struct PlanDifference {
  std::uint64_t step = 0;
  std::uint64_t recorded_digest = 0, found_digest = 0;
  std::string plan;  ///< what the simulator decided instead: "2 decodes, prefill of request 7 from 0 to 64"
};

struct RecordedRun {
  CoreOptions options;
  std::vector<RecordedStep> steps;  ///< up to the difference, if there is one
  std::uint64_t num_preemptions = 0;
  std::uint64_t cached_tokens = 0;  ///< of prompts, found in the prefix cache
  std::optional<PlanDifference> difference;
};

/// An error says what in the log is wrong and where.
Result<RecordedRun> replay_in_simulator(std::span<const std::byte> log);

/// One line that names the step and what differs.
std::string describe(const PlanDifference& difference);

}  // namespace quire
