#include "quire/sim/knee.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

std::optional<std::size_t> knee_of(const std::vector<double>& y) {
  std::vector<double> x;
  for (std::size_t i = 0; i < y.size(); ++i) x.push_back(static_cast<double>(i));
  return find_knee(x, y);
}

TEST(Knee, IsTheLastPointBeforeTheCurveRisesFast) {
  EXPECT_EQ(knee_of({1, 1.1, 1.2, 1.3, 5, 9, 13}), 3u);
  EXPECT_EQ(knee_of({0.02, 0.021, 0.022, 10, 20}), 2u);
}

TEST(Knee, ScaleOfTheAxesDoesNotMatter) {
  const std::vector<double> x = {1, 2, 3, 4, 5}, y = {1, 1.1, 1.2, 6, 11};
  std::vector<double> far_x, far_y;
  for (double value : x) far_x.push_back(1000 * value + 7);
  for (double value : y) far_y.push_back(value / 1e6 - 3);
  EXPECT_EQ(find_knee(x, y), 2u);
  EXPECT_EQ(find_knee(far_x, far_y), 2u);
}

TEST(Knee, IsMissingWhereNothingBends) {
  EXPECT_EQ(knee_of({1, 2, 3, 4}), std::nullopt);
  EXPECT_EQ(knee_of({1, 1, 1}), std::nullopt);
  EXPECT_EQ(knee_of({3, 2, 1}), std::nullopt);
  EXPECT_EQ(knee_of({1, 5, 6, 6.1}), std::nullopt) << "it rises fast first";
  EXPECT_EQ(knee_of({1, 9}), std::nullopt);
  EXPECT_EQ(knee_of({}), std::nullopt);
}

}  // namespace
}  // namespace quire
