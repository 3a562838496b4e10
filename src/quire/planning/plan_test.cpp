#include "quire/planning/plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "quire/model/tiny_model.h"

namespace quire::planning {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// A model file in memory.
struct TinyFile {
  std::string image;
  model::GgufFile file;

  explicit TinyFile(const model::TinyModel& model)
      : image(model::build_tiny_model(model).build()),
        file(*model::GgufFile::parse(std::as_bytes(std::span(image.data(), image.size())))) {}
};

engine::EngineOptions options_for(std::int64_t kv_bytes = 0) {
  engine::EngineOptions options;
  options.model_path = "tiny.gguf";
  options.kv_memory_bytes = static_cast<std::uint64_t>(kv_bytes);
  options.cpu_tier = "scalar";
  options.threads = 1;
  return options;
}

Load fixed_load(std::int32_t prompt, std::int32_t output) {
  Load load{.name = "fixed", .description = "", .requests = {}, .default_limits = ""};
  load.requests.assign(64, RequestSpec{.prompt_tokens = prompt, .output_tokens = output});
  return load;
}

/// Milliseconds: a token of a prompt, a step with decodes, a decode row.
std::shared_ptr<const CostModel> cost_of(double prefill_token, double decode_step, double decode_row) {
  auto cost = std::make_shared<FittedCost>();
  cost->name = "test";
  cost->prefill = {0.1, prefill_token, 0};
  cost->decode = {decode_step, 0, decode_row};
  return cost;
}

TEST(Fit, PoolIsWhatBlocksOfTheLayoutTake) {
  // f16, 2 layers of 2 KV heads of 16: a token has K and V of 2 * 2 * 16 * 2 bytes each.
  const TinyFile tiny(model::TinyModel{});
  const std::int64_t block_bytes = 16 * (2 * 2 * 16 * 2) * 2;
  const auto fit = plan_fit(options_for(100 * block_bytes), tiny.file, {1024 * kMiB, "given"});
  ASSERT_TRUE(fit.ok()) << fit.error().message;
  EXPECT_EQ(fit->info.num_blocks, 100);
  EXPECT_EQ(fit->info.kv_bytes, static_cast<std::uint64_t>(100 * block_bytes));
  EXPECT_EQ(fit->info.kv_store_bytes, static_cast<std::uint64_t>(101 * block_bytes + 64));
  EXPECT_EQ(fit->core.num_blocks, 100);
  EXPECT_EQ(fit->core.block_size, 16);
  EXPECT_EQ(fit->total_bytes() + fit->spare_bytes(), 1024 * kMiB);

  // Requests of 20 + 12 tokens hold 2 blocks at their end and in the middle of their answers.
  const auto found = count_requests(fit->core, fixed_load(20, 12));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->at_full_length, 50);
  EXPECT_EQ(found->growing, 50);
  EXPECT_EQ(found->full_context, 100 / (512 / 16));
  EXPECT_EQ(found->largest_context, 1600);
  EXPECT_EQ(found->rows, 256);
}

TEST(Fit, Int8HoldsMoreTokensInTheSameMemory) {
  const TinyFile tiny(model::TinyModel{.head_dim = 32});
  engine::EngineOptions options = options_for(8 * kMiB);
  options.max_batch_rows = 4096;
  options.max_batch_tokens = 4096;
  const auto half = plan_fit(options, tiny.file, {1024 * kMiB, "given"});
  options.kv_type = "int8";
  const auto quarter = plan_fit(options, tiny.file, {1024 * kMiB, "given"});
  ASSERT_TRUE(half.ok() && quarter.ok());
  EXPECT_NEAR(static_cast<double>(quarter->info.num_blocks) / static_cast<double>(half->info.num_blocks), 64.0 / 34,
              0.01);
}

TEST(Fit, MoreMemoryIsNeverFewerRequests) {
  const TinyFile tiny(model::TinyModel{});
  std::int64_t before = 0;
  for (std::uint64_t memory = 52 * kMiB; memory < 120 * kMiB; memory += 3 * kMiB) {
    const auto fit = plan_fit(options_for(), tiny.file, {memory, "given"});
    if (!fit.ok()) {
      EXPECT_EQ(before, 0) << memory;
      continue;
    }
    EXPECT_LE(fit->total_bytes(), memory);
    const auto found = count_requests(fit->core, fixed_load(100, 100));
    ASSERT_TRUE(found.ok());
    EXPECT_GE(found->growing, before) << memory;
    before = found->growing;
  }
  EXPECT_GT(before, 0);
}

TEST(Fit, TooLittleMemorySaysHowMuchIsNeededAndWhatToChange) {
  const TinyFile tiny(model::TinyModel{});
  const auto fit = plan_fit(options_for(), tiny.file, {kMiB, "given by --memory"});
  ASSERT_FALSE(fit.ok());
  for (const char* word : {"tiny.gguf", "1 MiB (given by --memory)", "at least", "are needed", "--memory", "--ctx"})
    EXPECT_NE(fit.error().message.find(word), std::string::npos) << fit.error().message;

  // A pool that was asked for and does not fit beside the rest.
  const auto pool = plan_fit(options_for(600 * kMiB), tiny.file, {100 * kMiB, "given by --memory"});
  ASSERT_FALSE(pool.ok());
  EXPECT_NE(pool.error().message.find("KV memory of 0.6 GiB was asked for"), std::string::npos) << pool.error().message;
}

TEST(Fit, BadOptionsAreRefusedAsTheEngineDoes) {
  const TinyFile tiny(model::TinyModel{});
  engine::EngineOptions options = options_for();
  options.context = 4096;
  const auto fit = plan_fit(options, tiny.file, {1024 * kMiB, "given"});
  ASSERT_FALSE(fit.ok());
  EXPECT_NE(fit.error().message.find("the model was made for 512"), std::string::npos) << fit.error().message;
}

TEST(Replicas, AreTheCeilingOfTheShare) {
  EXPECT_EQ(count_replicas(10, 4).count, 3);
  EXPECT_NEAR(count_replicas(10, 4).load, 10.0 / 12, 1e-12);
  EXPECT_EQ(count_replicas(12, 4).count, 3);
  EXPECT_EQ(count_replicas(0.3, 0.1).count, 3);  // but for rounding
  EXPECT_EQ(count_replicas(12.01, 4).count, 4);
  EXPECT_EQ(count_replicas(0.001, 4).count, 1);
  EXPECT_EQ(count_replicas(5, 0).count, 0);
}

/// A server whose every resource is plenty.
Scenario roomy(const Load& load) {
  Scenario scenario;
  scenario.core.num_blocks = 10'000;
  scenario.core.context_tokens = 4096;
  scenario.core.max_rows = 256;
  scenario.core.token_budget = 512;
  scenario.cost = cost_of(0.2, 5, 0.1);
  scenario.load = &load;
  scenario.limits = *parse_limits("ttft_p95=1s,itl_p99=100ms");
  scenario.num_requests = 300;
  return scenario;
}

Cause what_binds(Scenario scenario) {
  const Trial alone = run_alone(scenario);
  EXPECT_TRUE(alone.holds) << alone.broken;
  scenario.alone_ns = alone.result.end_to_end_ns.max();
  const Knee knee = find_knee(scenario, saturated_rate(scenario), 0.03);
  EXPECT_GT(knee.at.rate, 0);
  std::vector<Relief> reliefs;
  for (const Cause cause : kAllCauses) reliefs.push_back(find_relief(scenario, cause, knee, 0.03));
  const Binding binding = judge(reliefs, run_trial(scenario, kEvidenceFactor * knee.at.rate, Completeness::full));
  return binding.cause;
}

TEST(Binding, MemoryBindsWhereCheaperDecodesGainNoMoreThanWhatTheyHold) {
  const auto cause_of = [](double memory, double decode) {
    return judge({{Cause::prefill_compute, 1, 0}, {Cause::decode_bandwidth, 1, decode}, {Cause::kv_memory, 1, memory}},
                 Trial())
        .cause;
  };
  EXPECT_EQ(cause_of(0.9, 1.0), Cause::kv_memory);
  EXPECT_EQ(cause_of(0.7, 1.0), Cause::decode_bandwidth);
  EXPECT_EQ(cause_of(1.0, 0.9), Cause::kv_memory);
}

TEST(Binding, ASmallPoolBindsByItsMemory) {
  const Load load = fixed_load(200, 200);
  Scenario scenario = roomy(load);
  scenario.cost = cost_of(0.01, 20, 0.01);  // a step costs the same for one row as for many
  scenario.core.num_blocks = 120;
  EXPECT_EQ(what_binds(scenario), Cause::kv_memory);
}

TEST(Binding, LongPromptsBindByPrefill) {
  const Load load = fixed_load(1000, 4);
  Scenario scenario = roomy(load);
  scenario.limits = *parse_limits("ttft_p95=3s");
  EXPECT_EQ(what_binds(scenario), Cause::prefill_compute);
}

TEST(Binding, LongAnswersBindByDecoding) {
  const Load load = fixed_load(10, 400);
  Scenario scenario = roomy(load);
  scenario.cost = cost_of(0.01, 1, 1);
  EXPECT_EQ(what_binds(scenario), Cause::decode_bandwidth);
}

TEST(Binding, FewRowsBindByTheCap) {
  const Load load = fixed_load(20, 200);
  Scenario scenario = roomy(load);
  scenario.cost = cost_of(0.01, 20, 0.01);
  scenario.core.max_rows = 4;
  scenario.limits = *parse_limits("ttft_p95=2s");
  EXPECT_EQ(what_binds(scenario), Cause::batch_cap);
}

TEST(Binding, BurstsBindByTheQueue) {
  const Load load = fixed_load(100, 20);
  Scenario scenario = roomy(load);
  scenario.arrivals = "on-off:1,19";
  scenario.num_requests = 600;
  EXPECT_EQ(what_binds(scenario), Cause::queue);
}

TEST(Knee, HoldsAtItsRateAndNotAbove) {
  const Load load = fixed_load(100, 50);
  Scenario scenario = roomy(load);
  const Knee knee = find_knee(scenario, 1, 0.03);
  EXPECT_TRUE(run_trial(scenario, knee.at.rate, Completeness::full).holds);
  EXPECT_FALSE(run_trial(scenario, knee.above.rate, Completeness::full).holds);
  EXPECT_LE(knee.above.rate / knee.at.rate, 1.031);
}

TEST(Knee, RatesBeyondThoseThatAreSimulatedDoNotHold) {
  const Load load = fixed_load(1, 1);
  Scenario scenario = roomy(load);
  scenario.cost = cost_of(0, 0, 0);
  EXPECT_FALSE(run_trial(scenario, 2e9, Completeness::full).holds);
  EXPECT_FALSE(run_trial(scenario, 1e-7, Completeness::full).holds);
  EXPECT_LE(find_knee(scenario, 2e9, 0.03).at.rate, 1e9);
}

TEST(Knee, AServerThatFallsBehindIsNoGoodHoweverLooseTheLimits) {
  const Load load = fixed_load(100, 50);
  Scenario scenario = roomy(load);
  scenario.limits = *parse_limits("e2e_max=10000s");
  scenario.alone_ns = 1'000'000'000;
  scenario.num_requests = 1500;
  const double saturated = saturated_rate(scenario);
  const Knee knee = find_knee(scenario, saturated, 0.03);
  EXPECT_EQ(knee.above.broken, "falls behind");
  EXPECT_LT(knee.at.rate, 1.3 * saturated);
}

PlanInput input_for(const Load& load) {
  PlanInput input;
  input.options = options_for();
  input.memory = {64 * kMiB, "given"};
  input.load = load;
  input.limits = *parse_limits("ttft_p95=1s,itl_p99=100ms");
  input.rate = 100;
  input.make_cost = [](const Fit&) -> Result<Cost> { return Cost{cost_of(0.2, 5, 0.1), ""}; };
  input.num_requests = 200;
  return input;
}

TEST(Plan, WhereARequestAloneBreaksALimitItSaysWhyAndWhichLimitsWouldHold) {
  const TinyFile tiny(model::TinyModel{});
  PlanInput input = input_for(fixed_load(100, 50));
  input.limits = *parse_limits("ttft_p95=15ms,itl_p99=100ms");  // a prompt of 100 tokens takes 20 ms
  const auto plan = make_plan(input, tiny.file);
  ASSERT_TRUE(plan.ok());
  const Performance& found = *plan->performance;
  EXPECT_FALSE(found.has_knee());
  ASSERT_EQ(found.alone_reliefs.size(), 2u);
  EXPECT_EQ(found.alone_reliefs[0].cause, Cause::prefill_compute);
  EXPECT_TRUE(found.alone_reliefs[0].holds);
  EXPECT_EQ(found.alone_reliefs[1].cause, Cause::decode_bandwidth);
  EXPECT_FALSE(found.alone_reliefs[1].holds);

  EXPECT_EQ(found.limits_alone[1], input.limits[1]);
  input.limits = found.limits_alone;
  const auto loose = make_plan(input, tiny.file);
  ASSERT_TRUE(loose.ok());
  EXPECT_TRUE(loose->performance->has_knee());
}

TEST(Plan, IsTheSameOnAnyNumberOfThreads) {
  const TinyFile tiny(model::TinyModel{});
  PlanInput input = input_for(fixed_load(100, 50));
  const auto one = make_plan(input, tiny.file);
  input.threads = 3;
  const auto three = make_plan(input, tiny.file);
  ASSERT_TRUE(one.ok() && three.ok());
  const Performance &a = *one->performance, &b = *three->performance;
  EXPECT_EQ(a.knee.at.rate, b.knee.at.rate);
  EXPECT_EQ(a.knee.at.result.digest, b.knee.at.result.digest);
  EXPECT_EQ(a.binding->cause, b.binding->cause);
  EXPECT_EQ(a.binding->evidence.result.digest, b.binding->evidence.result.digest);
  ASSERT_EQ(a.what_ifs.size(), b.what_ifs.size());
  for (std::size_t i = 0; i < a.what_ifs.size(); ++i) {
    EXPECT_EQ(a.what_ifs[i].flag, b.what_ifs[i].flag);
    EXPECT_EQ(a.what_ifs[i].rate, b.what_ifs[i].rate);
  }
  EXPECT_EQ(a.replicas->count, static_cast<std::int64_t>(std::ceil(100 / a.knee.at.rate)));
}

TEST(Plan, WithoutACostModelEndsWithWhatFits) {
  const TinyFile tiny(model::TinyModel{});
  PlanInput input = input_for(fixed_load(100, 50));
  input.make_cost = {};
  const auto plan = make_plan(input, tiny.file);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->performance);
  EXPECT_FALSE(plan->no_performance.empty());
  EXPECT_GT(plan->at_once.growing, 0);
}

TEST(Plan, LimitsThatARequestAloneBreaksHaveNoRate) {
  const TinyFile tiny(model::TinyModel{});
  PlanInput input = input_for(fixed_load(100, 50));
  input.limits = *parse_limits("ttft_p95=1ms");
  const auto plan = make_plan(input, tiny.file);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->performance->has_knee());
  EXPECT_EQ(plan->performance->alone.broken, "ttft_p95");
  EXPECT_EQ(plan->performance->replicas->count, 0);
  EXPECT_TRUE(plan->performance->what_ifs.empty());
}

TEST(WhatIf, OffersNoCombinationThatTheEngineRefuses) {
  const TinyFile tiny(model::TinyModel{});
  for (const char* manager : {"paged", "vattention", "reserved"}) {
    engine::EngineOptions options = options_for(8 * kMiB);
    options.kv_manager = manager;
    const auto fit = plan_fit(options, tiny.file, {512 * kMiB, "given"});
    ASSERT_TRUE(fit.ok()) << fit.error().message;
    const auto changes = what_ifs(options, fit->info, 100);
    EXPECT_GT(changes.size(), 5u);
    for (const WhatIf& change : changes)
      EXPECT_TRUE(engine::check_options(change.options).ok()) << manager << " " << change.flag;
  }
}

}  // namespace
}  // namespace quire::planning
