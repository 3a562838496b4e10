#include "quire/engine/preemption_text.h"

#include <gtest/gtest.h>

namespace quire::engine {
namespace {

std::string text_of(PreemptionKind kind, std::int64_t copy_block_ns = 0, std::int64_t compute_token_ns = 0) {
  CoreOptions options;
  options.copy_block_ns = copy_block_ns;
  options.compute_token_ns = compute_token_ns;
  return preemption_text({RequestId{7}, 2, kind, 12, 190}, options, 1000);
}

TEST(PreemptionText, SaysWhatWasChosenAndByWhichNumbers) {
  EXPECT_EQ(text_of(PreemptionKind::recompute_cheaper, 41'000, 2'000),
            "request 7 preempted (2 of at most 3 times), recompute: cheaper for 12 blocks of its own (12000 bytes, 190 "
            "tokens); copying takes 492 us at 41000 ns a block, computing 380 us at 2000 ns a token");
  EXPECT_EQ(text_of(PreemptionKind::swap, 41'000, 20'000),
            "request 7 preempted (2 of at most 3 times), swap: 12 blocks of its own (12000 bytes, 190 tokens) go to "
            "RAM; copying takes 492 us at 41000 ns a block, computing 3800 us at 20000 ns a token");
}

TEST(PreemptionText, LeavesOutRatesThatAreNotKnown) {
  EXPECT_EQ(text_of(PreemptionKind::recompute_no_room),
            "request 7 preempted (2 of at most 3 times), recompute: the RAM tier has no room for 12 blocks of its own "
            "(12000 bytes, 190 tokens)");
}

TEST(PreemptionText, EveryKindHasItsWords) {
  for (std::size_t kind = 0; kind < kNumPreemptionKinds; ++kind)
    EXPECT_NE(text_of(static_cast<PreemptionKind>(kind)).find("times), "), std::string::npos);
  EXPECT_NE(text_of(PreemptionKind::recompute_refused).find("refused a memory mapping"), std::string::npos);
}

}  // namespace
}  // namespace quire::engine
