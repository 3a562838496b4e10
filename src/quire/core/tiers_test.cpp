// Preemption by swap, and content that comes back from RAM and files, under the shadow executor.

#include <gtest/gtest.h>

#include "quire/base/rng.h"
#include "quire/core/shadow_run.h"

namespace quire {
namespace {

CoreOptions options_with(std::int32_t num_blocks, std::int32_t num_frames, bool files = false) {
  CoreOptions options;
  options.block_size = 8;
  options.num_blocks = num_blocks;
  options.context_tokens = num_blocks * 8;
  options.token_budget = 64;
  options.max_rows = 16;
  options.prefix_cache = true;
  options.kv_ram_frames = num_frames;
  options.kv_files = files;
  return options;
}

CoreRequest request_of(std::uint64_t id, std::int32_t prompt_tokens, std::int32_t max_tokens) {
  CoreRequest request;
  request.id = RequestId{id};
  request.prompt = make_prompt(request.id, prompt_tokens);
  request.max_tokens = max_tokens;
  return request;
}

void expect_clean_end(ShadowRun& run) {
  run.run_to_end();
  if (!run.problem()) run.check_end();
  EXPECT_EQ(run.problem(), std::nullopt);
}

std::uint64_t by(ShadowRun& run, PreemptionKind kind) {
  return run.core().counters().preemptions_by[static_cast<std::size_t>(kind)];
}

TEST(Tiers, WhoIsSwappedComputesNothingAgain) {
  for (const char* mode : {"auto", "swap", "recompute"}) {
    const bool recomputes = std::string_view(mode) == "recompute";
    std::uint64_t recomputed_tokens = 0;
    for (std::int32_t length = 16; length < 24; ++length) {
      CoreOptions options = options_with(10, 30);
      options.preemption = mode;
      ShadowRun run(options);
      for (std::uint64_t id = 1; id <= 3; ++id)
        run.submit(request_of(id, length - 3 * static_cast<std::int32_t>(id), 40));
      expect_clean_end(run);
      const CoreCounters& counters = run.core().counters();
      ASSERT_GT(counters.preemptions, 0u);
      EXPECT_EQ(by(run, recomputes ? PreemptionKind::recompute_asked : PreemptionKind::swap), counters.preemptions);
      EXPECT_GT(run.core().kv().tier_counters().blocks_loaded, 0u);
      recomputed_tokens += counters.recomputed_tokens;
    }
    // The victim, which came last, is shorter: it has an unfilled tail when the first one needs a block. Demotion
    // keeps the full blocks of those that recompute too, as long as there is room, but never a tail.
    EXPECT_EQ(recomputed_tokens == 0, !recomputes) << mode << ": " << recomputed_tokens;
  }
}

/// A window that ends within a block, one that is shorter than a block, and room for so many blocks of all of them.
CoreOptions with_windows(CoreOptions options) {
  options.layer_groups = {{0}, {12}, {5}};
  options.kv_ram_frames *= 3;
  return options;
}

TEST(Tiers, WhoIsSwappedWithWindowsComputesNothingAgain) {
  for (std::int32_t length = 16; length < 24; ++length) {
    CoreOptions options = with_windows(options_with(24, 30));
    options.token_budget = 16;
    options.preemption = "swap";
    ShadowRun run(options);
    for (std::uint64_t id = 1; id <= 3; ++id)
      run.submit(request_of(id, length - 3 * static_cast<std::int32_t>(id), 60));
    expect_clean_end(run);
    ASSERT_GT(run.core().counters().preemptions, 0u);
    EXPECT_EQ(by(run, PreemptionKind::swap), run.core().counters().preemptions);
    EXPECT_GT(run.core().kv().tier_counters().blocks_loaded, 0u);
    EXPECT_EQ(run.core().counters().recomputed_tokens, 0u) << length;
  }
}

TEST(Tiers, AfterARestartAHitIsAsLongAsFilesOfAllLayerGroupsCanServe) {
  const CoreOptions options = with_windows(options_with(90, 30, true));
  const CoreRequest request = request_of(1, 80, 4);
  // Of the group with a window of 12, files of these blocks are gone: what is found then.
  const struct {
    std::vector<std::size_t> lost;
    std::int32_t cached_tokens;
  } cases[] = {{{}, 79}, {{0, 1, 2, 3, 4, 5, 6}, 79}, {{7}, 56}, {{8}, 64}, {{9}, 72}, {{1, 3, 5, 7, 9}, 8}};
  for (const auto& [lost, cached_tokens] : cases) {
    ShadowFiles files;
    {
      ShadowRun first(options);
      first.submit(request);
      expect_clean_end(first);
      files = std::move(first.tiers().files());
    }
    EXPECT_EQ(files.size(), 3 * (83u / 8));
    std::erase_if(files, [&lost = lost](const auto& file) {
      const std::size_t index = file.second.tokens.size() / 8 - 1;
      return file.second.block.front().group == 1 && std::count(lost.begin(), lost.end(), index) > 0;
    });
    ShadowRun run(options);
    run.put_files(std::move(files));
    run.submit(request);
    expect_clean_end(run);
    EXPECT_EQ(run.answer(request.id).cached_tokens, cached_tokens);
    const auto reads = run.core().kv().tier_counters().reads[static_cast<std::size_t>(TransferOutcome::done)];
    if (!lost.empty()) continue;
    EXPECT_EQ(reads, 10u + 3 + 2) << "of windows no more than what is seen";
  }
}

TEST(Tiers, WhereRamHasRoomForAPartOnlyAWholeHitIsReadNotPiecesOfALongerOne) {
  CoreOptions options = with_windows(options_with(90, 30, true));
  const CoreRequest request = request_of(1, 80, 4);
  ShadowFiles files;
  {
    ShadowRun first(options);
    first.submit(request);
    expect_clean_end(first);
    files = std::move(first.tiers().files());
  }
  options.kv_ram_frames = 8;
  ShadowRun run(options);
  run.put_files(std::move(files));
  run.submit(request);
  expect_clean_end(run);
  // Of n blocks a hit needs n, 2 and 1 of the groups.
  EXPECT_EQ(run.answer(request.id).cached_tokens, 40);
}

TEST(Tiers, TheChoiceAndItsReasonFollowRoomAndRates) {
  const KeepEstimate fits{.has_tiers = true, .fits = true, .num_blocks = 4, .num_tokens = 32};
  const KeepEstimate full{.has_tiers = true, .fits = false, .num_blocks = 4, .num_tokens = 32};
  using enum PreemptionMode;
  EXPECT_EQ(choose_preemption(automatic, {}, 0, 0), PreemptionKind::recompute_no_tiers);
  EXPECT_EQ(choose_preemption(recompute, fits, 0, 0), PreemptionKind::recompute_asked);
  EXPECT_EQ(choose_preemption(automatic, full, 0, 0), PreemptionKind::recompute_no_room);
  EXPECT_EQ(choose_preemption(swap, full, 0, 0), PreemptionKind::recompute_no_room);
  EXPECT_EQ(choose_preemption(automatic, fits, 0, 0), PreemptionKind::swap);
  EXPECT_EQ(choose_preemption(automatic, fits, 0, 5), PreemptionKind::swap);
  EXPECT_EQ(choose_preemption(automatic, fits, 79, 10), PreemptionKind::swap);
  EXPECT_EQ(choose_preemption(automatic, fits, 80, 10), PreemptionKind::recompute_cheaper);
  EXPECT_EQ(choose_preemption(swap, fits, 80, 10), PreemptionKind::swap);
}

TEST(Tiers, TheEventOfAPreemptionSaysItsKind) {
  CoreOptions options = options_with(10, 30);
  options.copy_block_ns = 1'000'000;
  options.compute_token_ns = 1;
  const auto core = *EngineCore::create(options);
  ShadowExecutor executor(10, GroupGeometry::uniform(8), 1000, 30);
  for (std::uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(core->submit(request_of(id, 20, 40)), std::nullopt);
  int num_preempted = 0;
  while (core->has_work()) {
    const StepResult result = executor.execute(core->plan_step());
    for (const Event& event : core->commit(result)) {
      const auto* preempted = std::get_if<RequestPreempted>(&event);
      if (!preempted) continue;
      ++num_preempted;
      EXPECT_EQ(preempted->kind, PreemptionKind::recompute_cheaper);
    }
  }
  EXPECT_GT(num_preempted, 0);
}

// B14 (vllm-project/vllm#5578): many requests with several samples pushed everything into swap until it ran out.
TEST(Tiers, B14AFullSwapFallsBackToRecomputeAndAllFinish) {
  CoreOptions options = options_with(64, 32);
  options.max_rows = 64;
  ShadowRun run(options);
  std::uint64_t id = 0;
  for (int request = 0; request < 200; ++request) {
    const std::vector<TokenId> prompt = make_prompt(RequestId{static_cast<std::uint64_t>(request)}, 20 + request % 20);
    for (int sample = 0; sample < 4; ++sample) {
      CoreRequest branch = request_of(++id, 1, 20 + request % 30);
      branch.prompt = prompt;
      branch.prompt.push_back(TokenId{sample});
      run.submit(branch);
    }
  }
  expect_clean_end(run);
  EXPECT_GT(by(run, PreemptionKind::swap), 20u);
  EXPECT_GT(by(run, PreemptionKind::recompute_no_room), 5u);
  EXPECT_EQ(run.core().counters().finished[static_cast<std::size_t>(FinishReason::length)], 800u);
}

// B05 (vllm-project/vllm-ascend#16662, vllm-project/vllm#46283): a request aborted while its KV was being loaded from
// another tier kept its blocks for ever.
TEST(Tiers, B05CancelledWhileItsContentIsOnItsWayARequestLeavesNothingBehind) {
  CoreOptions options = options_with(64, 40, true);
  options.preemption = "swap";
  ShadowFiles files;
  const auto session = [&](const DiskBehaviour& disk, int num_cancels) {
    ShadowRun run(options);
    run.set_disk(disk);
    run.put_files(std::move(files));
    std::uint64_t id = 0;
    int num_while_reading = 0;
    for (int i = 0; i < num_cancels && !run.problem(); ++i) {
      CoreRequest request = request_of(++id, 1, 30);
      request.prompt = make_prompt(RequestId{static_cast<std::uint64_t>(i % 12)}, 250);
      run.submit(request);
      run.step();
      num_while_reading += run.core().num_reads_in_flight() > 0;
      if (num_cancels > 12) run.cancel(request.id);
    }
    CoreRequest last = request_of(++id, 1, 10);
    last.prompt = make_prompt(RequestId{3}, 250);
    EXPECT_EQ(run.submit(last), std::nullopt);
    expect_clean_end(run);
    EXPECT_TRUE(run.answer(last.id).finished.has_value());
    files = std::move(run.tiers().files());
    return num_while_reading;
  };
  session({.seed = 1}, 12);
  EXPECT_GT(session({.seed = 2, .ends = 0.02}, 200), 50);
  EXPECT_GT(session({.seed = 3, .ends = 0.1, .faults = 0.3}, 200), 10);
}

TEST(Tiers, AWaitingRequestIsPassedOverAndThenBeginsWithWhatTheFilesHad) {
  const CoreOptions options = options_with(20, 20, true);
  ShadowFiles files;
  CoreRequest request = request_of(1, 80, 4);
  {
    ShadowRun first(options);
    first.submit(request);
    expect_clean_end(first);
    files = std::move(first.tiers().files());
  }
  EXPECT_EQ(files.size(), 83u / 8);
  ShadowRun run(options);
  run.set_disk({.seed = 1, .ends = 0});
  run.put_files(std::move(files));
  run.submit(request);
  EXPECT_TRUE(run.step().rows.empty()) << "it computes what is on its way";
  EXPECT_EQ(run.core().num_reads_in_flight(), 10);
  run.submit(request_of(2, 10, 3));
  EXPECT_EQ(run.step().rows.size(), 1u) << "who waits for files holds nobody up";
  run.set_disk({.seed = 1});
  expect_clean_end(run);
  EXPECT_EQ(run.answer(RequestId{1}).cached_tokens, 79);
}

TEST(Tiers, AReadThatIsGivenUpIsAMissAndItsLateEndIsIgnored) {
  const CoreOptions options = options_with(20, 20, true);
  ShadowFiles files;
  {
    ShadowRun first(options);
    first.submit(request_of(1, 40, 4));
    expect_clean_end(first);
    files = std::move(first.tiers().files());
  }
  ShadowRun run(options);
  run.set_disk({.seed = 1, .ends = 0});
  run.put_files(std::move(files));
  run.submit(request_of(1, 40, 4));
  run.step();
  ASSERT_EQ(run.core().num_reads_in_flight(), 5);
  while (run.tiers().num_in_flight() > 0) {
    const TransferEnd end = run.tiers().end(0, ShadowFault::timed_out);
    run.core().end_transfer(end);
    run.core().end_transfer({end.transfer, TransferOutcome::done, {}});
  }
  const KvTierCounters counters = run.core().kv().tier_counters();
  EXPECT_EQ(counters.reads[0] + counters.writes[0], 0u) << "the late end counts";
  EXPECT_EQ(counters.frames_private, 0);
  run.set_disk({});
  expect_clean_end(run);
  EXPECT_EQ(run.answer(RequestId{1}).cached_tokens, 0);
  EXPECT_EQ(run.core().kv().tier_counters().reads[static_cast<std::size_t>(TransferOutcome::timed_out)], 5u);
}

TEST(Tiers, OptionsThatDoNotGoTogetherAreRefused) {
  const auto message = [](CoreOptions options) {
    const auto core = EngineCore::create(options);
    return core.ok() ? "" : core.error().message;
  };
  CoreOptions options = options_with(8, 4, true);
  EXPECT_EQ(message(options), "");
  options.kv_ram_frames = 0;
  EXPECT_EQ(message(options), "option kv_files is set; it needs kv_ram_frames");
  options.kv_files = false;
  options.preemption = "swap";
  EXPECT_EQ(message(options), "option preemption is swap; it needs kv_ram_frames");
  options.preemption = "often";
  EXPECT_EQ(message(options), "preemption 'often' is not known; there are: auto, swap, recompute");
  options = options_with(8, 4);
  options.prefix_cache = false;
  EXPECT_EQ(message(options), "option kv_ram_frames is 4; a RAM tier needs prefix_cache");
}

}  // namespace
}  // namespace quire
