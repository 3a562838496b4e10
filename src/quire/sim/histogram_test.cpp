#include "quire/sim/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "quire/base/rng.h"

namespace quire {
namespace {

TEST(Histogram, QuantilesAreAtMostOneIn1024AboveTheExactOnes) {
  Rng rng(3);
  for (int bits : {8, 11, 12, 30, 50, 64}) {
    Histogram histogram;
    std::vector<std::uint64_t> values;
    for (int i = 0; i < 999; ++i) {
      values.push_back(rng() >> (64 - bits));
      histogram.add(values.back());
    }
    std::sort(values.begin(), values.end());
    for (std::uint32_t per_mille : {0u, 1u, 500u, 900u, 950u, 990u, 1000u}) {
      const std::size_t rank = std::max<std::size_t>(1, (values.size() * per_mille + 999) / 1000);
      const std::uint64_t exact = values[rank - 1], found = histogram.quantile(per_mille);
      EXPECT_GE(found, exact);
      EXPECT_LE(found - exact, exact / 1024) << bits << " " << per_mille;
    }
    EXPECT_EQ(histogram.min(), values.front());
    EXPECT_EQ(histogram.max(), values.back());
  }
}

TEST(Histogram, IsEmptyAtFirst) {
  Histogram histogram;
  EXPECT_EQ(histogram.quantile(500), 0u);
  EXPECT_EQ(histogram.min(), 0u);
  EXPECT_EQ(histogram.mean(), 0.0);
  histogram.add(5, 0);
  EXPECT_EQ(histogram.count(), 0u);
}

TEST(Histogram, MeansAreOfTheExactValues) {
  Histogram histogram;
  histogram.add(1'000'000'007, 3);
  histogram.add(1);
  EXPECT_DOUBLE_EQ(histogram.mean(), (3.0 * 1'000'000'007 + 1) / 4);
}

}  // namespace
}  // namespace quire
