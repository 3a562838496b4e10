#include <gtest/gtest.h>

#include "quire/base/checked.h"
#include "quire/base/cpu.h"
#include "quire/base/ids.h"
#include "quire/base/rng.h"

namespace quire {
namespace {

TEST(Cat, JoinsTextNumbersAndIds) { EXPECT_EQ(cat("a", 1, 'b', 0.5, TokenId{7}, true), "a1b0.57true"); }

Result<int> half(int x) {
  if (x % 2 != 0) return fail("found ", x, ", wanted an even number");
  return x / 2;
}

Result<int> quarter(int x) {
  QUIRE_TRY(int once, half(x));
  return half(once);
}

TEST(Result, TryPassesTheErrorOn) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message, "found 3, wanted an even number");
}

TEST(Checked, OverflowIsNullopt) {
  EXPECT_EQ(checked_mul(1ull << 32, 1ull << 32), std::nullopt);
  EXPECT_EQ(checked_add(~0ull, 1), std::nullopt);
  EXPECT_EQ(checked_mul(3, 4), 12u);
}

TEST(Rng, IsAPureFunctionOfItsKeys) {
  EXPECT_EQ(random_at(1, 2, 3), random_at(1, 2, 3));
  EXPECT_NE(random_at(1, 2, 3), random_at(1, 3, 2));
  Rng rng(5);
  for (int i = 0; i < 1000; ++i) {
    auto x = rng.between(-3, 3);
    EXPECT_TRUE(-3 <= x && x <= 3);
  }
}

TEST(CpuTier, UnknownNamesAreRefused) {
  EXPECT_FALSE(choose_cpu_tier("neon").ok());
  EXPECT_EQ(choose_cpu_tier("scalar")->tier, CpuTier::scalar);
  EXPECT_TRUE(cpu_supports(choose_cpu_tier("")->tier));
}

}  // namespace
}  // namespace quire
