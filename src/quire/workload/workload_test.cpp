#include <gtest/gtest.h>

#include <cmath>

#include "quire/base/hash.h"
#include "quire/workload/arrivals.h"
#include "quire/workload/lengths.h"
#include "quire/workload/sampling.h"
#include "quire/workload/synthetic.h"

namespace quire {
namespace {

struct Moments {
  double mean = 0, cv = 0;
};

template <class Draw>
Moments moments_of(int count, Draw draw) {
  double sum = 0, squares = 0;
  for (int i = 0; i < count; ++i) {
    const double x = draw();
    sum += x;
    squares += x * x;
  }
  const double mean = sum / count;
  return {mean, std::sqrt(squares / count - mean * mean) / mean};
}

TEST(Sampling, VariatesHaveTheMomentsOfTheirDistributions) {
  Rng rng(1);
  const Moments exponential = moments_of(50'000, [&] { return sample_exponential(rng, 3.0); });
  EXPECT_NEAR(exponential.mean, 3.0, 0.06);
  EXPECT_NEAR(exponential.cv, 1.0, 0.03);
  for (double shape : {0.3, 1.0, 4.0}) {
    const Moments gamma = moments_of(50'000, [&] { return sample_gamma(rng, shape, 2.0); });
    EXPECT_NEAR(gamma.mean, 2.0 * shape, 0.05 * 2.0 * shape);
    EXPECT_NEAR(gamma.cv, 1 / std::sqrt(shape), 0.05 / std::sqrt(shape));
  }
  const Moments lognormal = moments_of(100'000, [&] { return sample_lognormal(rng, 1.0, 0.5); });
  EXPECT_NEAR(lognormal.mean, std::exp(1.125), 0.03);
  const Moments normal = moments_of(50'000, [&] { return 10 + sample_normal(rng); });
  EXPECT_NEAR(normal.mean, 10, 0.03);
  EXPECT_NEAR(normal.cv, 0.1, 0.003);
}

TEST(Sampling, GammaFunctionMatchesFactorialsAndTheHalf) {
  EXPECT_NEAR(gamma_function(1), 1, 1e-12);
  EXPECT_NEAR(gamma_function(5), 24, 1e-10);
  EXPECT_NEAR(gamma_function(1.5), 0.8862269254527580, 1e-12);
}

TEST(Sampling, GivesTheSameBitsEverywhere) {
  Rng rng(11);
  Digest digest;
  for (int i = 0; i < 1000; ++i) {
    digest.add(static_cast<std::uint64_t>(sample_gamma(rng, 0.4, 1e9)));
    digest.add(static_cast<std::uint64_t>(sample_lognormal(rng, 4.6, 1.25) * 1e6));
    digest.add(static_cast<std::uint64_t>(sample_weibull(rng, 0.7, 1e9)));
  }
  EXPECT_EQ(digest.value(), 9742056653084202266ull);
}

TEST(Arrivals, ComeLateRatherThanEarlyAgainWhereTimeEnds) {
  for (const char* text : {"poisson", "gamma:30", "weibull:0.1", "on-off:0.001,1000000", "even"}) {
    ArrivalProcess arrivals = ArrivalProcess::parse(text, 1e-6).value();
    Rng rng(6);
    std::uint64_t last_ns = 0;
    for (int i = 0; i < 40'000; ++i) {
      const std::uint64_t ns = arrivals.next_ns(rng);
      ASSERT_GE(ns, last_ns) << text;
      last_ns = ns;
    }
    EXPECT_EQ(last_ns, kLateNs) << text;
  }
}

TEST(Lengths, FollowTheTextOfTheirDistribution) {
  Rng rng(2);
  EXPECT_EQ(LengthDistribution::parse("fixed:100")->sample(rng), 100);
  const auto uniform = LengthDistribution::parse("uniform:50,500").value();
  const Moments flat = moments_of(20'000, [&] { return uniform.sample(rng); });
  EXPECT_NEAR(flat.mean, 275, 3);
  const auto filtered = LengthDistribution::parse("lognormal:4.6,1.25@4-1024").value();
  for (int i = 0; i < 5000; ++i) {
    const std::int32_t length = filtered.sample(rng);
    ASSERT_GE(length, 4);
    ASSERT_LE(length, 1024);
  }
  const auto tail = LengthDistribution::parse("pareto:10,1.5").value();
  for (int i = 0; i < 1000; ++i) ASSERT_GE(tail.sample(rng), 10);
}

TEST(Lengths, TheSyntheticShareGptOfThePapersHasItsMeans) {
  Rng rng(5);
  const IndependentLengths lengths(LengthDistribution::parse("lognormal:4.6,1.25@4-1024").value(),
                                   LengthDistribution::parse("exponential:340@4-2048").value(), 2048);
  double prompt = 0, output = 0;
  for (int i = 0; i < 50'000; ++i) {
    const LengthPair pair = lengths.sample(rng);
    prompt += pair.prompt_tokens;
    output += pair.output_tokens;
    ASSERT_LE(pair.prompt_tokens + pair.output_tokens, 2048);
  }
  EXPECT_NEAR(prompt / 50'000, 162.3, 4);
  EXPECT_NEAR(output / 50'000, 334.2, 6);
}

TEST(Lengths, AFilterThatHardlyAnyLengthPassesIsRefusedAndNotCutTo) {
  for (const char* text : {"fixed:100@200-300", "uniform:1,50@51-60", "exponential:10@5000-6000",
                           "lognormal:2,0.5@100000-200000", "pareto:100,2@1-99"}) {
    const auto lengths = LengthDistribution::parse(text);
    ASSERT_FALSE(lengths.ok()) << text;
    EXPECT_NE(lengths.error().message.find("of 10000 lengths lie within"), std::string::npos);
  }
  EXPECT_TRUE(LengthDistribution::parse("exponential:340@4-1024").ok());
  EXPECT_TRUE(LengthDistribution::parse("fixed:100@100-100").ok());
}

TEST(Lengths, ALimitOfBothThatHardlyAnyPairKeepsToIsAnError) {
  const auto fixed = [](const char* text) { return LengthDistribution::parse(text).value(); };
  EXPECT_EQ(IndependentLengths(fixed("fixed:3000"), fixed("fixed:10"), 2048).check().error().message,
            "found 2048, which 0 of 10000 pairs of these lengths keep to, wanted at least 10, or 0 for no limit");
  EXPECT_TRUE(IndependentLengths(fixed("fixed:3000"), fixed("fixed:10"), 3010).check().ok());
  EXPECT_TRUE(IndependentLengths(fixed("fixed:3000"), fixed("fixed:10")).check().ok());
}

TEST(Lengths, RefuseTextThatIsNoDistribution) {
  for (const char* text : {"",
                           "fixed",
                           "fixed:",
                           "fixed:0",
                           "fixed:1.5",
                           "fixed:1,2",
                           "fixed:nan",
                           "uniform:5",
                           "uniform:9,5",
                           "normal:1,2",
                           "lognormal:1,-1",
                           "lognormal:inf,1",
                           "exponential:0",
                           "exponential:-3",
                           "pareto:0,1",
                           "fixed:99999999999",
                           "fixed:5@",
                           "fixed:5@9",
                           "fixed:5@9-3",
                           "fixed:5@0-3",
                           "fixed:5x",
                           "exponential:1e300"})
    EXPECT_FALSE(LengthDistribution::parse(text).ok()) << text;
}

TEST(Arrivals, HaveTheirRateAndVariation) {
  Rng rng(3);
  struct Case {
    const char* text;
    double cv, tolerance;
  };
  for (const Case& c : {Case{"poisson", 1, 0.03}, {"gamma:3", 3, 0.3}, {"weibull:2", 2, 0.2}, {"even", 0, 1e-3}}) {
    auto process = ArrivalProcess::parse(c.text, 4.0).value();
    std::uint64_t last = 0;
    const Moments gaps = moments_of(40'000, [&] {
      const std::uint64_t now = process.next_ns(rng);
      const double gap = static_cast<double>(now - last) * 1e-9;
      last = now;
      return gap;
    });
    EXPECT_NEAR(gaps.mean, 0.25, 0.01) << c.text;
    EXPECT_NEAR(std::isnan(gaps.cv) ? 0 : gaps.cv, c.cv, c.tolerance) << c.text;
  }
}

TEST(Arrivals, OnOffIsSilentInItsPausesAndKeepsTheMeanRate) {
  Rng rng(4);
  auto process = ArrivalProcess::parse("on-off:10,30", 2.0).value();
  std::uint64_t now = 0;
  for (int i = 0; i < 20'000; ++i) {
    now = process.next_ns(rng);
    ASSERT_LE(now % 40'000'000'000u, 10'000'000'000u);
  }
  EXPECT_NEAR(20'000 / (static_cast<double>(now) * 1e-9), 2.0, 0.1);
}

TEST(Arrivals, RefuseTextThatIsNoProcess) {
  for (const char* text : {"", "uniform", "gamma", "gamma:", "gamma:0", "gamma:1,2", "gamma:nan", "on-off:5",
                           "on-off:0,5", "on-off:5,-1", "poisson:3", "weibull:100"})
    EXPECT_FALSE(ArrivalProcess::parse(text, 1.0).ok()) << text;
  for (double rate : {0.0, -1.0, 1e300, std::nan("")}) EXPECT_FALSE(ArrivalProcess::parse("poisson", rate).ok());
}

TEST(SyntheticSource, GivesTheSameRequestsAtAnotherRate) {
  const EmpiricalLengths lengths({{10, 20}, {30, 40}, {50, 60}});
  SyntheticSource slow({.num_requests = 50, .seed = 9}, ArrivalProcess::poisson(1), lengths);
  SyntheticSource fast({.num_requests = 50, .seed = 9}, ArrivalProcess::poisson(100), lengths);
  int count = 0;
  while (auto request = slow.next()) {
    const auto other = fast.next();
    ASSERT_TRUE(other);
    EXPECT_EQ(request->prompt_tokens, other->prompt_tokens);
    EXPECT_EQ(request->output_tokens, other->output_tokens);
    EXPECT_GT(request->arrival_ns, other->arrival_ns);
    ++count;
  }
  EXPECT_EQ(count, 50);
  EXPECT_FALSE(fast.next());
}

TEST(SyntheticSource, NamesTheSharedPrefixAlikeForAll) {
  const EmpiricalLengths lengths({{20, 5}});
  SyntheticSource source({.num_requests = 2, .shared_prefix_tokens = 40}, ArrivalProcess::poisson(1), lengths);
  const auto a = source.next(), b = source.next();
  ASSERT_EQ(a->prompt_tokens, 60);
  ASSERT_EQ(a->prefix_blocks.size(), 4u);
  EXPECT_EQ(a->prefix_blocks[0], b->prefix_blocks[0]);
  EXPECT_EQ(a->prefix_blocks[1], b->prefix_blocks[1]);
  EXPECT_NE(a->prefix_blocks[2], b->prefix_blocks[2]);
}

}  // namespace
}  // namespace quire
