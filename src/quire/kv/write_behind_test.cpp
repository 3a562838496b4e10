// Block files are written behind what happens in the pool: a disk that does not keep up must not make anything untrue.

#include <gtest/gtest.h>

#include "quire/kv/cache_checker_test.h"

namespace quire {
namespace {

std::vector<TokenId> tokens_from(std::int32_t first, std::int32_t count) {
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(TokenId{first + i});
  return tokens;
}

void end_all(CacheChecker& checker) {
  while (checker.num_in_flight() > 0) checker.end_transfer(0, false);
}

TEST(WriteBehind, ABlockThatHasOtherContentWhenItsTurnComesIsGivenUp) {
  constexpr std::int32_t kBlocks = 40;
  CacheChecker checker(kBlocks, GroupGeometry::uniform(8), nullptr, {.num_frames = 4, .has_files = true});
  const auto slow = tokens_from(1000, 33 * 8 + 1), late = tokens_from(2000, 2 * 8 + 1), other = tokens_from(0, 320);
  checker.start({{SequenceId{1}, "", slow, 33 * 8 + 1}});
  checker.start({{SequenceId{2}, "", late, 2 * 8 + 1}});
  ASSERT_EQ(checker.num_in_flight(), std::size_t{kMaxWritesInFlight}) << "the rest waits";
  checker.release(SequenceId{2});
  checker.release(SequenceId{1});
  checker.start({{SequenceId{3}, "", other, kBlocks * 8}});  // takes the whole pool; the frames keep its last four
  checker.release(SequenceId{3});
  end_all(checker);
  checker.read_ahead("", tokens_from(5000, 8));
  EXPECT_EQ(checker.manager().tier_counters().writes_given_up, 3u) << "one of the first, two of the second";
  end_all(checker);
  checker.read_ahead("", late);
  EXPECT_EQ(checker.num_in_flight(), kBlocks - std::size_t{kMaxWritesInFlight}) << "no file of them is known";
  end_all(checker);
  EXPECT_EQ(checker.start({{SequenceId{4}, "", late, 17}}).front().num_tokens, 0);
  EXPECT_EQ(checker.problem(), std::nullopt);
}

}  // namespace
}  // namespace quire
