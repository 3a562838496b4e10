// Memory that the system refuses in spite of the plan: the row's request is preempted and tries again; only one that is
// refused with nothing else running, again and again, fails.

#include <gtest/gtest.h>

#include "quire/core/shadow_run.h"
#include "quire/sched/live_request.h"

namespace quire {
namespace {

CoreOptions make_options(std::string_view manager = "vattention") {
  CoreOptions options;
  options.num_blocks = 64;
  options.context_tokens = 16 * kKvTileTokens;
  options.token_budget = 96;
  options.prefix_cache = true;
  if (manager == "paged") return options;
  options.kv_manager = manager;
  options.block_size = kKvTileTokens;
  options.tile_bytes = 4;
  options.page_group_bytes = 4;
  return options;
}

CoreRequest make_request(std::uint64_t id, std::int32_t prompt_tokens, std::int32_t max_tokens,
                         std::int32_t num_branches = 1) {
  CoreRequest request;
  request.id = RequestId{id};
  request.prompt = make_prompt(request.id, prompt_tokens);
  request.max_tokens = max_tokens;
  request.num_branches = num_branches;
  return request;
}

void end_well(ShadowRun& run) {
  run.run_to_end();
  if (!run.problem()) run.check_end();
  EXPECT_EQ(run.problem(), std::nullopt);
}

std::uint64_t num_refused(ShadowRun& run) {
  return run.core().counters().preemptions_by[static_cast<std::size_t>(PreemptionKind::recompute_refused)];
}

FinishReason reason_of(const ShadowRun& run, std::uint64_t id) { return run.answer(RequestId{id}).finished->reason; }

TEST(Refused, ARequestIsPreemptedTriesAgainAndGetsItsTokens) {
  for (const char* manager : {"vattention", "paged"}) {
    for (int refused_after = 0; refused_after < 12; ++refused_after) {
      SCOPED_TRACE(testing::Message() << manager << ", after " << refused_after << " steps");
      ShadowRun run(make_options(manager));
      ASSERT_FALSE(run.submit(make_request(1, 300, 10)));
      ASSERT_FALSE(run.submit(make_request(2, 30, 20)));
      for (int i = 0; i < refused_after; ++i) run.step();
      run.refuse_rows(RequestId{1}, 1);
      end_well(run);
      EXPECT_EQ(num_refused(run), 1u);
      EXPECT_EQ(reason_of(run, 1), FinishReason::length);
      EXPECT_EQ(reason_of(run, 2), FinishReason::length);
    }
  }
}

TEST(Refused, AloneItFailsAfterTheBoundAndNotBefore) {
  for (std::int32_t count = 1; count <= kMaxRefusals + 1; ++count) {
    ShadowRun run(make_options());
    ASSERT_FALSE(run.submit(make_request(1, 40, 10)));
    run.refuse_rows(RequestId{1}, count);
    end_well(run);
    EXPECT_EQ(reason_of(run, 1), count <= kMaxRefusals ? FinishReason::length : FinishReason::failed);
  }
}

TEST(Refused, BesideOthersItWaitsForThemToEndAndNeverFails) {
  ShadowRun run(make_options());
  ASSERT_FALSE(run.submit(make_request(1, 40, 40)));
  ASSERT_FALSE(run.submit(make_request(2, 40, 10)));
  run.step();
  run.refuse_rows(RequestId{2}, 2);
  run.step();
  EXPECT_EQ(num_refused(run), 1u);
  run.step();
  EXPECT_EQ(num_refused(run), 2u) << "it tried again at once";
  for (int i = 0; i < 10; ++i) {
    for (const PlanRow& row : run.step().rows) EXPECT_EQ(row.request, RequestId{1});
  }
  end_well(run);
  EXPECT_EQ(reason_of(run, 2), FinishReason::length);
}

TEST(Refused, OneOfTwoThatOnlyFitAloneGoesFirstAndBothGetTheirTokens) {
  ShadowRun run(make_options());
  ASSERT_FALSE(run.submit(make_request(1, 40, 10)));
  ASSERT_FALSE(run.submit(make_request(2, 40, 10)));
  run.step();
  run.refuse_rows(RequestId{1}, 2);
  run.refuse_rows(RequestId{2}, 2);
  end_well(run);
  EXPECT_EQ(reason_of(run, 1), FinishReason::length);
  EXPECT_EQ(reason_of(run, 2), FinishReason::length);
}

TEST(Refused, ABranchTakesItsGangAlongAndWhatTheOthersDrewIsKept) {
  for (int refused_after = 0; refused_after < 12; ++refused_after) {
    SCOPED_TRACE(refused_after);
    ShadowRun run(make_options());
    ASSERT_FALSE(run.submit(make_request(1, 100, 12, 4)));
    for (int i = 0; i < refused_after; ++i) run.step();
    run.refuse_rows(RequestId{1}, 1);
    end_well(run);
    EXPECT_EQ(num_refused(run), 1u);
    EXPECT_EQ(reason_of(run, 1), FinishReason::length);
  }
}

TEST(Refused, ABeamMakesItsSearchGoOnFromTheLastBeamsOfAll) {
  for (int refused_after = 0; refused_after < 12; ++refused_after) {
    SCOPED_TRACE(refused_after);
    ShadowRun run(make_options(), 40);
    CoreRequest request = make_request(1, 100, 12);
    request.prompt = make_prompt(request.id, 100, 40);
    request.beams = BeamParams{.width = 4, .num_returned = 4};
    ASSERT_FALSE(run.submit(request));
    for (int i = 0; i < refused_after; ++i) run.step();
    run.refuse_rows(RequestId{1}, 1);
    end_well(run);
    EXPECT_EQ(num_refused(run), 1u);
    EXPECT_EQ(reason_of(run, 1), FinishReason::length);
  }
}

TEST(Refused, TheMappingsThatNobodyNeedsAreGivenBack) {
  ShadowRun run(make_options());
  for (std::uint64_t id = 1; id <= 4; ++id) ASSERT_FALSE(run.submit(make_request(id, 150, 2)));
  run.run_to_end();
  ASSERT_FALSE(run.submit(make_request(5, 40, 10)));
  run.refuse_rows(RequestId{5}, 1);
  run.step();
  EXPECT_EQ(run.core().kv_capacity().cached_blocks, 0) << "what ended requests had left is unmapped";
  end_well(run);
}

// -- gangs in few mappings --

TEST(GangsInPlaces, MoreMappingsThanThereAreAreRefusedWithTheNumbers) {
  CoreOptions options = make_options();
  options.max_rows = 8;
  options.num_idle_places = 4;
  options.max_mappings = 64 + 8 + 4 + 1;
  ShadowRun run(options);
  const auto refusal = run.submit(make_request(1, 8 * 64, 3 * 64, 8));  // shares eight groups, takes three for each
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->reason, Refusal::Reason::exceeds_pool);
  EXPECT_NE(refusal->message.find("by each of 8 branches, 88 mappings in all, but there are 64 (max_mappings is 77)"),
            std::string::npos)
      << refusal->message;
  EXPECT_FALSE(run.submit(make_request(2, 5 * 64, 3 * 64, 8)));
  end_well(run);
  EXPECT_EQ(reason_of(run, 2), FinishReason::length);
}

TEST(GangsInPlaces, SeveralThatTogetherNeedMoreMappingsThanThereAreYieldToOneAnother) {
  CoreOptions options = make_options();
  options.max_rows = 32;
  options.num_idle_places = 0;
  options.max_mappings = 64 + 32 + 1;
  ShadowRun run(options);
  // Groups for all (8 + 4 * 2 each), mappings not: each takes up to 4 * 10.
  for (std::uint64_t id = 1; id <= 4; ++id) ASSERT_FALSE(run.submit(make_request(id, 8 * 64 - 3, 70, 4)));
  end_well(run);
  EXPECT_GT(run.core().counters().preemptions, 0u);
  for (std::uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(reason_of(run, id), FinishReason::length);
}

TEST(GangsInPlaces, AForkTakesNeitherMemoryNorAMappingBeforeItsFirstRow) {
  ShadowRun run(make_options());
  ASSERT_FALSE(run.submit(make_request(1, 64, 4, 8)));
  run.step();
  EXPECT_EQ(run.core().kv().num_sequences(), 8);
  EXPECT_EQ(run.core().kv_capacity().used_blocks(), 1);
  const auto& manager = dynamic_cast<const VAttentionKvManager&>(run.core().kv());
  EXPECT_EQ(manager.table().num_held_entries(), 1);
  run.step();
  EXPECT_EQ(run.core().kv_capacity().used_blocks(), 1 + 8) << "the full tile is shared";
  end_well(run);
}

}  // namespace
}  // namespace quire
