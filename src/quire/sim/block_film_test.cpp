#include "quire/sim/block_film.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "quire/base/hash.h"
#include "quire/sim/engine_system.h"

namespace quire {
namespace {

BlockCell held(std::uint64_t request) { return {BlockUse::held, RequestId{request}}; }

/// What the film says of a block at a moment.
BlockCell at(const BlockFilm& film, std::int32_t block, std::uint64_t ns) {
  for (const BlockSpan& span : film.spans)
    if (span.block == block && span.begin_ns <= ns && ns < span.end_ns) return span.cell;
  return {};
}

TEST(BlockFilm, JoinsEqualLooksAndLeavesFreeBlocksOut) {
  BlockFilmRecorder recorder(2, 16);
  recorder.look(10, std::vector<BlockCell>{held(1), {}});
  recorder.look(20, std::vector<BlockCell>{held(1), held(2)});
  recorder.look(30, std::vector<BlockCell>{held(3), {}});
  const BlockFilm film = recorder.take(50);
  ASSERT_EQ(film.spans.size(), 3u);
  EXPECT_EQ(film.spans[0].begin_ns, 10u);
  EXPECT_EQ(film.spans[0].end_ns, 30u);
  EXPECT_EQ(film.spans[1].cell, held(3));
  EXPECT_EQ(film.spans[1].end_ns, 50u);
  EXPECT_EQ(film.spans[2].block, 1);
  EXPECT_EQ(film.step_stride, 1u);
  EXPECT_EQ(film.block_stride, 1);
}

TEST(BlockFilm, OfALongRunShowsEvery2ToTheNthStepAsItWas) {
  constexpr std::int32_t kBlocks = 4096;
  constexpr std::uint64_t kSteps = 700;
  BlockFilmRecorder recorder(kBlocks, 16);
  const auto owner = [](std::uint64_t step, std::uint64_t block) { return 1 + mix64(step / 3 * 5000 + block) % 50; };
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    if (!recorder.wants_look()) {
      recorder.pass();
      continue;
    }
    std::vector<BlockCell> cells;
    for (std::uint64_t block = 0; block < kBlocks; ++block) cells.push_back(held(owner(step, block)));
    recorder.look(step * 10, cells);
  }
  const BlockFilm film = recorder.take(kSteps * 10);
  EXPECT_EQ(film.step_stride, 4u) << "256 looks of 4,096 blocks fit";
  for (const BlockSpan& span : film.spans) {
    ASSERT_LT(span.begin_ns, span.end_ns);
    const std::uint64_t step = span.begin_ns / 10;
    ASSERT_EQ(step % film.step_stride, 0u);
    ASSERT_EQ(span.cell.owner.value, owner(step, static_cast<std::uint64_t>(span.block)));
  }
}

TEST(BlockFilm, OfALargePoolShowsOneOfEverySoManyBlocks) {
  BlockFilmRecorder recorder(10'000, 16);
  std::vector<BlockCell> cells;
  for (std::uint64_t block = 0; block < 10'000; ++block) cells.push_back(held(block + 1));
  recorder.look(0, cells);
  const BlockFilm film = recorder.take(1);
  EXPECT_EQ(film.block_stride, 3);
  EXPECT_EQ(film.spans.size(), 3334u);
  EXPECT_EQ(at(film, 9, 0), held(10));
}

TEST(BlockFilm, OfTheEngineCountsWhatItsManagerCounts) {
  CoreOptions options;
  options.block_size = 16;
  options.num_blocks = 60;
  options.context_tokens = 512;
  options.token_budget = 128;
  options.prefix_cache = true;
  auto system = EngineSystem::create(options).value();
  for (std::uint64_t i = 1; i <= 20; ++i) {
    RequestSpec spec;
    spec.prompt_tokens = 100;
    spec.output_tokens = 40 + static_cast<std::int32_t>(i);
    spec.prefix_block_tokens = 64;
    spec.prefix_blocks = {7};  // the same for all
    ASSERT_TRUE(system->submit(RequestId{i}, spec));
  }
  std::vector<RequestChange> changes;
  std::vector<BlockCell> cells;
  bool was_shared = false, was_cached = false;
  while (system->has_work()) {
    system->plan_step();
    system->look_at_blocks(cells);
    ASSERT_EQ(cells.size(), 60u);
    const auto count = [&](BlockUse use) {
      return std::count_if(cells.begin(), cells.end(), [&](const BlockCell& cell) { return cell.use == use; });
    };
    const KvCapacity capacity = system->core().kv_capacity();
    ASSERT_EQ(count(BlockUse::held) + count(BlockUse::shared), capacity.used_blocks());
    ASSERT_EQ(count(BlockUse::cached), capacity.cached_blocks);
    for (const BlockCell& cell : cells) {
      if (cell.use != BlockUse::free) {
        ASSERT_GE(cell.owner.value, 1u);
      }
    }
    was_shared = was_shared || count(BlockUse::shared) >= 4;
    was_cached = was_cached || count(BlockUse::cached) > 0;
    system->commit(changes);
  }
  EXPECT_TRUE(was_shared);
  EXPECT_TRUE(was_cached);
}

}  // namespace
}  // namespace quire
