#include "quire/planning/limits.h"

#include <gtest/gtest.h>

namespace quire::planning {
namespace {

TEST(Limits, AreReadAndWrittenBack) {
  const auto limits = parse_limits("ttft_p95=1s,itl_p99.9=100ms,e2e_mean=1.5s,queue_max=2min,normalized_p50=250us");
  ASSERT_TRUE(limits.ok()) << limits.error().message;
  const std::vector<Limit> wanted = {{Metric::ttft, 950, 1'000'000'000},
                                     {Metric::itl, 999, 100'000'000},
                                     {Metric::e2e, Limit::kMean, 1'500'000'000},
                                     {Metric::queue, 1000, 120'000'000'000},
                                     {Metric::normalized, 500, 250'000}};
  EXPECT_EQ(*limits, wanted);
  EXPECT_EQ(to_string(*limits), "ttft_p95=1s,itl_p99.9=100ms,e2e_mean=1500ms,queue_max=120s,normalized_p50=250us");
  EXPECT_EQ(*parse_limits(to_string(*limits)), wanted);
}

struct BadLimit {
  const char* text;
  const char* found;   ///< part of the message
  const char* wanted;  ///< likewise
};

class BadLimits : public testing::TestWithParam<BadLimit> {};

TEST_P(BadLimits, AreRefusedWithWhatWasFoundAndWanted) {
  const auto limits = parse_limits(GetParam().text);
  ASSERT_FALSE(limits.ok());
  EXPECT_NE(limits.error().message.find(GetParam().found), std::string::npos) << limits.error().message;
  EXPECT_NE(limits.error().message.find(GetParam().wanted), std::string::npos) << limits.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadLimits,
    testing::Values(BadLimit{"", "''", "METRIC_WHICH=TIME"}, BadLimit{"ttft_p95", "'ttft_p95'", "METRIC_WHICH=TIME"},
                    BadLimit{"ttft=1s", "'ttft=1s'", "METRIC_WHICH=TIME"},
                    BadLimit{"tpot_p95=1s", "'tpot_p95=1s'", "ttft, itl, e2e"},
                    BadLimit{"ttft_p0=1s", "'p0'", "p1 to p99.9"}, BadLimit{"ttft_p100=1s", "'p100'", "p1 to p99.9"},
                    BadLimit{"ttft_p99.95=1s", "'p99.95'", "p1 to p99.9"},
                    BadLimit{"ttft_95=1s", "'95'", "p1 to p99.9"}, BadLimit{"ttft_pnan=1s", "'pnan'", "p1 to p99.9"},
                    BadLimit{"ttft_p95=1", "'1'", "unit us, ms"}, BadLimit{"ttft_p95=0s", "'0s'", "above 0"},
                    BadLimit{"ttft_p95=-1s", "'-1s'", "above 0"}, BadLimit{"ttft_p95=nans", "'nans'", "above 0"},
                    BadLimit{"ttft_p95=1e99s", "'1e99s'", "above 0"}, BadLimit{"ttft_p95=1h", "'1h'", "unit us, ms"},
                    BadLimit{"ttft_p95=1s,", "''", "METRIC_WHICH=TIME"},
                    BadLimit{"ttft_p95=1s;itl_p99=1s", "'1s;itl_p99=1s'", "above 0"},
                    BadLimit{"ttft_p95=1s,ttft_p95=2s", "ttft_p95 twice", "each limit once"}));

TEST(Limits, AreComparedWithTheirQuantile) {
  SimulationResult result;
  for (std::uint64_t i = 1; i <= 1000; ++i) result.ttft_ns.add(i);
  EXPECT_EQ(found_ns({Metric::ttft, 950, 1}, result), 950u);
  EXPECT_EQ(found_ns({Metric::ttft, 1000, 1}, result), 1000u);
  EXPECT_EQ(found_ns({Metric::ttft, Limit::kMean, 1}, result), 500u);
  EXPECT_EQ(found_ns({Metric::itl, 950, 1}, result), 0u);
}

}  // namespace
}  // namespace quire::planning
