#include "quire/sim/interruptions.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Interruptions, AddTheirShareToShortAndToLongSteps) {
  const Interruptions interruptions{20, {1e6, 2e6, 6e6}};
  EXPECT_DOUBLE_EQ(interruptions.share(), 0.06);
  for (const std::uint64_t ns : {2'000'000u, 120'000'000u}) {
    constexpr std::uint64_t kSteps = 20'000;
    std::uint64_t sum = 0;
    for (std::uint64_t step = 0; step < kSteps; ++step) sum += interruptions.of_step(step, ns);
    EXPECT_NEAR(static_cast<double>(sum) / static_cast<double>(kSteps * ns), 0.06, 0.003);
  }
}

TEST(Interruptions, HitFewOfTheShortStepsForOneOfTheirLengths) {
  const Interruptions interruptions{20, {1e6, 2e6, 6e6}};
  int num_hit = 0;
  for (std::uint64_t step = 0; step < 10'000; ++step) {
    const std::uint64_t ns = interruptions.of_step(step, 2'000'000);
    EXPECT_TRUE(ns == 0 || ns == 1'000'000 || ns == 2'000'000 || ns == 6'000'000) << ns;
    num_hit += ns > 0;
    EXPECT_EQ(ns, interruptions.of_step(step, 2'000'000));
  }
  EXPECT_NEAR(num_hit, 400, 60);
}

TEST(Interruptions, WithoutAnyAStepTakesWhatItTakes) {
  EXPECT_EQ(Interruptions().of_step(7, 1'000'000'000), 0u);
  EXPECT_EQ(Interruptions().share(), 0);
}

}  // namespace
}  // namespace quire
