#include "quire/sim/simulation.h"

#include <gtest/gtest.h>

#include "quire/sim/engine_system.h"
#include "quire/sim/reserving_system.h"
#include "quire/sim/systems.h"
#include "quire/workload/synthetic.h"

namespace quire {
namespace {

SystemOptions small_options() {
  SystemOptions options;
  options.core.block_size = 16;
  options.core.num_blocks = 100;
  options.core.context_tokens = 512;
  options.core.token_budget = 256;
  options.max_sequence = 512;
  return options;
}

/// A millisecond a step and a microsecond a token.
struct PlainCost final : CostModel {
  std::uint64_t step_ns(const StepShape& shape) const override {
    return 1'000'000 + 1'000 * static_cast<std::uint64_t>(shape.num_tokens());
  }
  std::string description() const override { return "plain"; }
};

RequestSpec spec(std::uint64_t arrival_ns, std::int32_t prompt, std::int32_t output) {
  RequestSpec request;
  request.arrival_ns = arrival_ns;
  request.prompt_tokens = prompt;
  request.output_tokens = output;
  return request;
}

SimulationResult run(std::string_view system_name, const std::vector<RequestSpec>& requests,
                     SimulationOptions options = {.max_records = 100}) {
  auto system = make_system(system_name, small_options()).value();
  ListSource source(requests);
  return simulate(*system, PlainCost(), source, options);
}

TEST(Simulation, ARequestAloneTakesItsPrefillAndAStepForEachFurtherToken) {
  for (std::string_view name : {"quire", "orca-oracle", "orca-pow2", "orca-max", "paged-static", "contiguous"}) {
    const SimulationResult result = run(name, {spec(5'000'000, 100, 3)});
    ASSERT_EQ(result.records.size(), 1u) << name;
    const RequestRecord& record = result.records[0];
    EXPECT_EQ(record.start_ns, 5'000'000u);
    EXPECT_EQ(record.first_token_ns, 5'000'000u + 1'100'000u);
    EXPECT_EQ(record.finish_ns, 5'000'000u + 1'100'000u + 2 * 1'001'000u);
    EXPECT_EQ(result.inter_token_ns.count(), 2u);
    EXPECT_EQ(result.scheduled_tokens, 102u);
    EXPECT_EQ(result.num_finished, 1u);
    EXPECT_EQ(result.end_to_end_ns.max(), 3'102'000u);
    EXPECT_EQ(result.normalized_ns.max(), 1'034'000u);
  }
}

/// As PlainCost, but wakes up in 7 ns.
struct SleepyCost final : CostModel {
  std::uint64_t step_ns(const StepShape& shape) const override { return PlainCost().step_ns(shape); }
  std::uint64_t wake_ns() const override { return 7; }
  std::string description() const override { return "sleepy"; }
};

TEST(Simulation, TheFirstStepAfterAPauseBeginsLate) {
  auto system = make_system("quire", small_options()).value();
  const std::vector<RequestSpec> requests = {spec(5'000'000, 100, 3), spec(5'500'000, 10, 1)};
  ListSource source(requests);
  const SimulationResult result = simulate(*system, SleepyCost(), source, {.max_records = 100});
  ASSERT_EQ(result.records.size(), 2u);
  const std::uint64_t first = 5'000'007u + 1'100'000u;
  EXPECT_EQ(result.records.front().first_token_ns, first + 1'011'000u) << "the second one, which found it awake";
  EXPECT_EQ(result.records.back().first_token_ns, first);
  EXPECT_EQ(result.records.back().finish_ns, first + 1'011'000u + 1'001'000u);
}

TEST(Simulation, DecodesBehindACommonPrefixHaveSharedContext) {
  CoreOptions options = small_options().core;
  options.prefix_cache = true;
  auto system = EngineSystem::create(options).value();
  RequestSpec request = spec(0, 200, 4);
  request.prefix_block_tokens = 16;
  for (std::uint64_t i = 1; i <= 10; ++i) request.prefix_blocks.push_back(i);
  std::vector<RequestChange> changes;
  for (std::uint64_t id = 1; id <= 2; ++id) ASSERT_TRUE(system->submit(RequestId{id}, request));
  std::int64_t most_shared = 0;
  while (system->has_work()) {
    const StepShape shape = system->plan_step();
    EXPECT_LE(shape.shared.positions, shape.decode_context);
    if (shape.num_decode_rows == 2) most_shared = std::max(most_shared, shape.shared.positions);
    system->commit(changes);
  }
  EXPECT_EQ(most_shared, 2 * 128) << "160 common positions are two tiles";
}

TEST(Simulation, StaticBatchesReturnNobodyEarlyAndLetNobodyJoin) {
  const SimulationResult result = run("fastertransformer", {spec(0, 10, 2), spec(0, 10, 50), spec(1, 10, 1)});
  ASSERT_EQ(result.records.size(), 3u);
  EXPECT_EQ(result.records[0].finish_ns, result.records[1].finish_ns);
  EXPECT_EQ(result.records[2].start_ns, result.records[0].finish_ns);
}

TEST(Simulation, IterationLevelBatchesReturnEachAtItsEnd) {
  const SimulationResult result = run("orca-oracle", {spec(0, 10, 2), spec(0, 10, 50), spec(1, 10, 1)});
  ASSERT_EQ(result.records.size(), 3u);
  EXPECT_LT(result.records[0].finish_ns, result.records[2].finish_ns);
  EXPECT_EQ(result.records[2].output_tokens, 50);
}

TEST(Simulation, TheHeadOfTheQueueHoldsUpThoseBehindIt) {
  // 1,600 slots: the second waits for 1,024, and the third, which would fit, waits behind it.
  const SimulationResult result =
      run("orca-oracle", {spec(0, 400, 30), spec(0, 500, 12), spec(0, 200, 56), spec(0, 2, 2)});
  EXPECT_EQ(result.num_finished, 4u);
  const SimulationResult max = run("orca-max", {spec(0, 4, 30), spec(0, 5, 12), spec(0, 2, 5), spec(0, 2, 2)});
  EXPECT_EQ(max.max_running, 3);
}

TEST(Simulation, MemoryIsPartitionedInEveryStepOfEverySystem) {
  std::vector<RequestSpec> requests;
  Rng rng(4);
  for (int i = 0; i < 150; ++i)
    requests.push_back(spec(static_cast<std::uint64_t>(i) * 3'000'000, static_cast<std::int32_t>(rng.between(1, 200)),
                            static_cast<std::int32_t>(rng.between(1, 120))));
  for (std::string_view name : system_names()) {
    auto system = make_system(name, small_options()).value();
    for (std::size_t i = 0; i < requests.size(); ++i) ASSERT_TRUE(system->submit(RequestId{i + 1}, requests[i]));
    std::vector<RequestChange> changes;
    while (system->has_work()) {
      ASSERT_FALSE(system->plan_step().empty()) << name;
      const MemoryUse use = system->memory();
      for (std::int64_t part :
           {use.written_slots, use.reserved_slots, use.unused_slots, use.rounding_slots, use.free_slots()})
        ASSERT_GE(part, 0) << name;
      system->commit(changes);
      ASSERT_EQ(system->validate(), std::nullopt) << name;
    }
    system->plan_step();
    const MemoryUse end = system->memory();
    EXPECT_EQ(end.free_slots(), end.pool_slots) << name;
    std::size_t finished = 0, tokens = 0;
    for (const RequestChange& change : changes) {
      finished += change.kind == ChangeKind::finished ? 1 : 0;
      tokens += change.kind == ChangeKind::token ? 1 : 0;
    }
    std::size_t wanted = 0;
    for (const RequestSpec& request : requests) wanted += static_cast<std::size_t>(request.output_tokens);
    EXPECT_EQ(finished, requests.size()) << name;
    EXPECT_EQ(tokens, wanted) << name;
  }
}

TEST(Simulation, RefusesWhatCanNeverRun) {
  for (std::string_view name : system_names()) {
    const SimulationResult result = run(name, {spec(0, 600, 10), spec(0, 10, 10)});
    EXPECT_EQ(result.num_refused, 1u) << name;
    EXPECT_EQ(result.num_finished, 1u) << name;
  }
}

TEST(Simulation, ASessionFindsItsOwnPast) {
  SystemOptions options = small_options();
  options.core.prefix_cache = true;
  auto system = EngineSystem::create(options.core).value();
  RequestSpec first = spec(0, 100, 60), second = spec(1'000'000'000, 200, 5);
  first.session = second.session = 7;
  const std::vector<RequestSpec> turns = {first, second};
  ListSource source(turns);
  simulate(*system, PlainCost(), source);
  // Prompt and answer, 159 positions written; the unfilled last block has no key.
  EXPECT_EQ(system->core().counters().prefix_hits, 144u);
}

TEST(Simulation, SamplesThinOutAndKeepTheirOrder) {
  std::vector<RequestSpec> requests = {spec(0, 1, 400)};
  const SimulationResult result = run("quire", requests, {.max_samples = 16});
  EXPECT_LE(result.samples.size(), 16u);
  EXPECT_GE(result.samples.size(), 8u);
  for (std::size_t i = 1; i < result.samples.size(); ++i)
    EXPECT_LT(result.samples[i - 1].begin_ns, result.samples[i].begin_ns);
}

TEST(Simulation, AnObserverSeesEveryStepAndChange) {
  std::uint64_t steps = 0, tokens = 0, last_end_ns = 0;
  SimulationOptions options;
  options.observe = [&](const StepSample& step, std::span<const RequestChange> changes) {
    ++steps;
    EXPECT_GE(step.begin_ns, last_end_ns);
    last_end_ns = step.end_ns;
    for (const RequestChange& change : changes) tokens += change.kind == ChangeKind::token ? 1 : 0;
  };
  const SimulationResult result = run("quire", {spec(0, 20, 30), spec(7, 20, 12)}, options);
  EXPECT_EQ(steps, result.num_steps);
  EXPECT_EQ(tokens, 42u);
}

TEST(Simulation, RecordsSayWhenPromptsWereComputedAndWhatWasPreemptedRestored) {
  std::vector<RequestSpec> requests;
  for (std::uint64_t i = 0; i < 12; ++i)
    requests.push_back(spec(i * 5'000'000, 200 + static_cast<std::int32_t>(10 * i), 150));
  const SimulationResult result = run("quire", requests, {.max_records = 100, .records_blocks = true});
  EXPECT_GT(result.num_preemptions, 0u);
  ASSERT_EQ(result.records.size(), requests.size());
  for (const RequestRecord& record : result.records) {
    ASSERT_EQ(record.restored.size(), record.preempted_ns.size());
    for (std::size_t i = 0; i < record.restored.size(); ++i) {
      EXPECT_LE(record.preempted_ns[i], record.restored[i].begin_ns);
      EXPECT_LT(record.restored[i].begin_ns, record.restored[i].end_ns);
      EXPECT_LE(record.restored[i].end_ns,
                i + 1 < record.restored.size() ? record.preempted_ns[i + 1] : record.finish_ns);
      EXPECT_GT(record.restored[i].tokens, 0);
    }
    std::int32_t tokens = 0;
    for (const WorkSpan& chunk : record.chunks) {
      EXPECT_LT(chunk.begin_ns, chunk.end_ns);
      tokens += chunk.tokens;
    }
    if (record.preempted_ns.empty()) {
      EXPECT_EQ(tokens, record.prompt_tokens);
      EXPECT_EQ(record.chunks.back().end_ns, record.first_token_ns);
    }
    EXPECT_EQ(record.chunks.front().begin_ns, record.start_ns);
  }
  EXPECT_EQ(result.max_step_tokens, 256);
  EXPECT_EQ(result.film.num_blocks, 100);
  EXPECT_EQ(result.film.block_size, 16);
  EXPECT_FALSE(result.film.spans.empty());
  for (const BlockSpan& span : result.film.spans) EXPECT_LE(span.end_ns, result.end_ns);
  EXPECT_TRUE(run("orca-max", requests, {.records_blocks = true}).film.spans.empty()) << "its memory is not in blocks";
}

TEST(Simulation, PicturesDecideNothing) {
  std::vector<RequestSpec> requests(30, spec(0, 200, 100));
  EXPECT_EQ(run("quire", requests, {.max_samples = 0}).digest,
            run("quire", requests, {.max_records = 100, .records_blocks = true}).digest);
}

TEST(Simulation, AHopelessRunEndsEarly) {
  std::vector<RequestSpec> requests(400, spec(0, 100, 100));
  const SimulationResult result =
      run("quire", requests, {.hopeless_latency = 0.01, .expected_requests = requests.size()});
  EXPECT_TRUE(result.was_hopeless);
  EXPECT_LT(result.num_finished, 400u);
}

TEST(Simulation, TimeThatDoesNotFitStopsTheRunAndSaysSo) {
  RooflineCost slow;  // 32 years a step
  slow.bytes_per_second = slow.operations_per_second = 1;
  slow.weight_bytes = 1e9;
  const std::vector<RequestSpec> requests = {spec(0, 10, 20)};
  auto system = make_system("quire", small_options()).value();
  ListSource source(requests);
  const SimulationResult result = simulate(*system, slow, source);
  EXPECT_TRUE(result.ran_out_of_time);
  EXPECT_EQ(result.num_steps, 9u);
  EXPECT_LE(result.end_ns, kMaxVirtualNs);
  EXPECT_TRUE(run("quire", {spec(0, 1, 1), spec(kLateNs, 1, 1)}).ran_out_of_time);
  EXPECT_FALSE(run("quire", {spec(0, 1, 1), spec(kLateNs / 2, 1, 1)}).ran_out_of_time);
}

TEST(Simulation, EqualInputsGiveTheCommittedDigest) {
  const IndependentLengths lengths(LengthDistribution::parse("lognormal:4,1@1-300").value(),
                                   LengthDistribution::parse("exponential:60@1-200").value(), 512);
  for (int i = 0; i < 2; ++i) {
    SyntheticSource source({.num_requests = 500, .seed = 3}, ArrivalProcess::poisson(8), lengths);
    auto system = make_system("quire", small_options()).value();
    const auto cost = make_cost_model("opt-13b").value();
    const SimulationResult result = simulate(*system, *cost, source);
    EXPECT_GT(result.num_preemptions, 0u);
    EXPECT_EQ(result.digest, 15819948277174842959ull);
  }
}

}  // namespace
}  // namespace quire
