// The simulator decides what the engine decided: the command log of a served load, replayed, gives the same plans.

#include <gtest/gtest.h>

#include "quire/planning/calibrate.h"
#include "quire/planning/served_run.h"
#include "quire/planning/step_log.h"
#include "tests/support/models.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/tiny_model.h"

namespace quire::test {
namespace {

using engine::EngineOptions;
using planning::StepLog;

/// What the engine was asked for, in the simulator.
RecordedRun serve_and_replay(EngineOptions options, const std::vector<RequestSpec>& requests) {
  const StepLog log;
  options.command_log = log.path();
  {
    const auto engine = open(options);
    const auto run = planning::serve(*engine, requests);
    QUIRE_CHECK(run.ok(), run.error().message);
  }
  auto recorded = log.read();
  QUIRE_CHECK(recorded.ok(), recorded.error().message);
  return std::move(*recorded);
}

std::vector<RequestSpec> requests_with(std::size_t count, std::int32_t prompt_tokens, std::int32_t shared_blocks) {
  std::vector<RequestSpec> requests(count);
  for (std::size_t i = 0; i < count; ++i) {
    requests[i].prompt_tokens = prompt_tokens + static_cast<std::int32_t>(i);
    requests[i].output_tokens = 24 + static_cast<std::int32_t>(i % 5);
    if (shared_blocks == 0) continue;
    requests[i].prefix_block_tokens = 16;
    for (std::int32_t b = 0; b < shared_blocks; ++b) requests[i].prefix_blocks.push_back(static_cast<std::uint64_t>(b));
  }
  return requests;
}

TEST(Fidelity, ALoadThatPreemptsIsReplayedInTheSimulatorWithTheSamePlans) {
  for (const char* family : {"llama", "qwen2", "gemma3"}) {
    SCOPED_TRACE(family);
    const TinyModelFile model(family);
    const RecordedRun run = serve_and_replay(
        {.model_path = model.path(), .kv_memory_bytes = pool_bytes(model.path(), 192), .max_batch_tokens = 64},
        requests_with(10, 20, 0));
    EXPECT_FALSE(run.difference) << describe(*run.difference);
    EXPECT_GT(run.num_preemptions, 0u);
    EXPECT_GT(run.steps.size(), 24u);
    for (const RecordedStep& step : run.steps) EXPECT_GT(step.elapsed_ns, 0u);
  }
}

TEST(Fidelity, SharedPrefixesAreFoundInTheSimulatorAsInTheEngine) {
  const TinyModelFile model("llama");
  const RecordedRun run = serve_and_replay({.model_path = model.path()}, requests_with(6, 70, 4));
  EXPECT_FALSE(run.difference) << describe(*run.difference);
  EXPECT_GT(run.cached_tokens, 64u);
}

TEST(Fidelity, SmolLm2IsReplayedInTheSimulatorWithTheSamePlans) {
  const std::string model = model_path(kSmolLm2);
  const RecordedRun run =
      serve_and_replay({.model_path = model, .kv_memory_bytes = pool_bytes(model, 160)}, requests_with(4, 40, 1));
  EXPECT_FALSE(run.difference) << describe(*run.difference);
  EXPECT_GT(run.steps.size(), 24u);
}

TEST(Fidelity, ACalibrationIsOfItsModelAndSaysHowItFits) {
  const TinyModelFile model("llama");
  planning::CalibrateOptions options{.seconds = 0.2};
  options.engine.model_path = model.path();
  options.engine.context = 512;
  options.engine.kv_memory_bytes = 16 * kMiB;
  options.engine.threads = 1;
  double progress = 0;
  options.progress = [&](double fraction) { progress = fraction; };
  const auto measured = planning::calibrate(options);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_EQ(progress, 1.0);
  EXPECT_GT(measured->points.size(), 40u);
  const auto again = planning::parse_calibration(planning::as_json(measured->calibration), "calibration");
  ASSERT_TRUE(again.ok()) << again.error().message;
  const auto setting = planning::describe_setting(options.engine);
  ASSERT_TRUE(setting.ok());
  EXPECT_TRUE(planning::check_setting(again->setting, *setting).ok());
  for (const planning::CostPoint& point : measured->points) EXPECT_GT(again->cost()->step_ns(point.shape), 0u);
  options.engine.kv_manager = "vattention";
  EXPECT_NE(planning::calibrate(options).error().message.find("paged"), std::string::npos);
}

}  // namespace
}  // namespace quire::test
