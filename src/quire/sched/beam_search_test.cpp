#include "quire/sched/beam_search.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

constexpr TokenId kStop{0};

BeamSearch make(BeamParams params, std::int32_t max_tokens = 10) { return {params, {max_tokens, 0, {kStop}}}; }

std::vector<Candidate> offers(std::initializer_list<std::pair<int, float>> items) {
  std::vector<Candidate> candidates;
  for (const auto& [token, logprob] : items) candidates.push_back({TokenId{token}, logprob});
  return candidates;
}

TEST(BeamSearch, TheBestContinuationsOfAllBeamsLive) {
  BeamSearch search = make({.width = 2});
  const std::vector<TokenId> a = {TokenId{1}}, b = {TokenId{2}};
  const auto of_a = offers({{5, -1.f}, {6, -2.f}, {7, -4.f}}), of_b = offers({{8, -0.5f}, {9, -0.75f}, {5, -3.f}});
  const std::vector<LiveBeam> beams = {{a, -1, of_a}, {b, -2, of_b}};
  const auto children = search.advance(beams);
  EXPECT_EQ(children, (std::vector<BeamChild>{{0, TokenId{5}, -2}, {1, TokenId{8}, -2.5}}));
}

TEST(BeamSearch, TiesAreBrokenByParentThenToken) {
  BeamSearch search = make({.width = 3});
  const std::vector<TokenId> a = {TokenId{1}}, b = {TokenId{2}};
  const auto of_a = offers({{9, -1.f}, {3, -1.f}}), of_b = offers({{2, -1.f}});
  const std::vector<LiveBeam> beams = {{a, -1, of_a}, {b, -1, of_b}};
  const auto children = search.advance(beams);
  EXPECT_EQ(children, (std::vector<BeamChild>{{0, TokenId{3}, -2}, {0, TokenId{9}, -2}, {1, TokenId{2}, -2}}));
}

TEST(BeamSearch, AStopTokenFinishesItsHypothesisOnlyAmongTheBestWidth) {
  BeamSearch search = make({.width = 2, .length_penalty = 2});
  const std::vector<TokenId> a = {TokenId{1}}, b = {TokenId{2}};
  const auto of_a = offers({{0, -1.f}, {5, -1.5f}, {6, -2.f}}), of_b = offers({{7, -1.f}, {0, -1.25f}});
  const std::vector<LiveBeam> beams = {{a, -1, of_a}, {b, -1, of_b}};
  const auto children = search.advance(beams);
  EXPECT_EQ(children.size(), 2u) << "backups fill the places of those that stopped";
  ASSERT_EQ(search.finished().size(), 1u) << "the second stop token ranks third";
  EXPECT_EQ(search.finished()[0].tokens, a);
  EXPECT_EQ(search.finished()[0].stop_token, kStop);
  EXPECT_DOUBLE_EQ(search.finished()[0].score, -2.0 / 4) << "the stop token counts in sum and length";
}

/// Two hypotheses of score -1 after one step, and a live beam of sum -1.5.
BeamSearch with_two_finished(EarlyStopping early_stopping, double length_penalty, bool& goes_on) {
  BeamSearch search = make({.width = 2, .length_penalty = length_penalty, .early_stopping = early_stopping});
  const std::vector<TokenId> a = {TokenId{1}};
  search.finish({a, -1, {}}, FinishReason::stopped_by_caller);
  search.finish({a, -1, {}}, FinishReason::stopped_by_caller);
  const auto of_a = offers({{5, -0.5f}, {6, -1.f}});
  const std::vector<LiveBeam> beams = {{a, -1, of_a}};
  goes_on = !search.advance(beams).empty();
  return search;
}

TEST(BeamSearch, EarlyStoppingDecidesWhenEnoughAreFinished) {
  bool goes_on = true;
  with_two_finished(EarlyStopping::when_full, 1, goes_on);
  EXPECT_FALSE(goes_on);
  with_two_finished(EarlyStopping::when_no_better, 0, goes_on);
  EXPECT_FALSE(goes_on) << "-1.5 is no better than -1";
  with_two_finished(EarlyStopping::when_no_better, 1, goes_on);
  EXPECT_TRUE(goes_on) << "-1.5 / 2 is";
  with_two_finished(EarlyStopping::when_no_better, 0.25, goes_on);
  EXPECT_FALSE(goes_on) << "-1.5 / 2 ** 0.25 is not";
  with_two_finished(EarlyStopping::never, 0.25, goes_on);
  EXPECT_TRUE(goes_on) << "but it might become -1.5 / 10 ** 0.25";
}

TEST(BeamSearch, WithMaxTokensReachedTheBestWidthFinish) {
  BeamSearch search = make({.width = 2, .num_returned = 2}, 2);
  const std::vector<TokenId> a = {TokenId{1}};
  const auto of_a = offers({{5, -1.f}, {0, -1.5f}, {6, -2.f}});
  const std::vector<LiveBeam> beams = {{a, -1, of_a}};
  EXPECT_TRUE(search.advance(beams).empty());
  ASSERT_EQ(search.finished().size(), 2u);
  EXPECT_EQ(search.finished()[0].tokens, (std::vector<TokenId>{TokenId{1}, TokenId{5}}));
  EXPECT_EQ(search.finished()[0].reason, FinishReason::length);
  EXPECT_EQ(search.finished()[1].reason, FinishReason::stop_token);
}

TEST(BeamSearch, OnlyTheBestWidthHypothesesAreKept) {
  BeamSearch search = make({.width = 2});
  const std::vector<TokenId> a = {TokenId{1}};
  for (double sum : {-3.0, -1.0, -2.0}) search.finish({a, sum, {}}, FinishReason::stopped_by_caller);
  ASSERT_EQ(search.finished().size(), 2u);
  EXPECT_EQ(search.finished()[0].score, -1);
  EXPECT_EQ(search.finished()[1].score, -2);
}

TEST(BeamSearch, WrongParametersAreNamed) {
  EXPECT_EQ(find_fault({.width = 0}), "the beam width is 0; 1 to 16 are allowed");
  EXPECT_EQ(find_fault({.width = 17}), "the beam width is 17; 1 to 16 are allowed");
  EXPECT_EQ(find_fault({.width = 2, .num_returned = 3}), "num_returned is 3; 1 to the beam width, 2, are allowed");
  EXPECT_EQ(find_fault({.length_penalty = -11}), "length_penalty is -11; -10 to 10 are allowed");
  EXPECT_EQ(find_fault({.width = 16, .num_returned = 16, .length_penalty = 10}), std::nullopt);
}

}  // namespace
}  // namespace quire
