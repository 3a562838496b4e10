#include "quire/sched/ngram_proposer.h"

#include <gtest/gtest.h>

#include <optional>
#include <string_view>

#include "quire/base/rng.h"

namespace quire {
namespace {

/// A token for each letter.
std::vector<TokenId> tokens_of(std::string_view text) {
  std::vector<TokenId> tokens;
  for (char c : text) tokens.push_back(TokenId{c});
  return tokens;
}

std::string propose(std::string_view text, std::int32_t count, NgramMatch match = {2, 4}) {
  NgramProposer proposer(match);
  const std::vector<TokenId> tokens = tokens_of(text);
  std::string found;
  for (TokenId token : proposer.propose(tokens, count)) found += static_cast<char>(token.value);
  return found;
}

TEST(NgramProposer, ProposesWhatFollowedTheLastOccurrenceOfTheEnd) {
  EXPECT_EQ(propose("the cat sat, the c", 6), "at sat");
  EXPECT_EQ(propose("abX abY abZ ab", 1), "Z") << "the latest";
}

TEST(NgramProposer, ALongerMatchBeatsALaterOne) {
  EXPECT_EQ(propose("1abX 2abY 1ab", 1), "X");
  EXPECT_EQ(propose("01234X 91234Y 01234", 1), "Y") << "no match is longer than four";
  EXPECT_EQ(propose("01234X 91234Y 01234", 1, {2, 5}), "X");
}

TEST(NgramProposer, ProposesNothingWithoutAMatchOfTheLeastLength) {
  EXPECT_EQ(propose("abcdefgh", 4), "");
  EXPECT_EQ(propose("xa ya", 4), "") << "one token is too few";
  EXPECT_EQ(propose("xa ya", 4, {1, 4}), " ya ");
  EXPECT_EQ(propose("ab", 4), "");
  EXPECT_EQ(propose("", 4, {1, 1}), "");
  EXPECT_EQ(propose("abab", 0), "");
}

TEST(NgramProposer, WhatRunsIntoTheEndGoesOnWithTheProposalItself) {
  EXPECT_EQ(propose("xyabcabc", 7), "abcabca");
  EXPECT_EQ(propose("aaa", 5), "aaaaa");
}

/// As the header says it, by looking at every place.
std::vector<TokenId> slow_proposal(const std::vector<TokenId>& tokens, std::int32_t count, NgramMatch match) {
  std::optional<std::size_t> best;
  std::int32_t longest = match.min_match - 1;
  for (std::size_t place = tokens.size() - 1; place > 0; --place) {
    std::int32_t length = 0;
    while (length < match.max_match && length < static_cast<std::int32_t>(place) &&
           tokens[place - 1 - static_cast<std::size_t>(length)] ==
               tokens[tokens.size() - 1 - static_cast<std::size_t>(length)])
      ++length;
    if (length <= longest) continue;
    longest = length;
    best = place;
  }
  if (!best) return {};
  std::vector<TokenId> all = tokens;
  for (std::int32_t i = 0; i < count; ++i) all.push_back(all[*best + static_cast<std::size_t>(i)]);
  return {all.begin() + static_cast<std::ptrdiff_t>(tokens.size()), all.end()};
}

TEST(NgramProposer, GrowingSequencesGetWhatASearchOfAllPlacesFinds) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    const auto least = static_cast<std::int32_t>(rng.between(1, 3));
    const NgramMatch match{least, least + static_cast<std::int32_t>(rng.between(0, 3))};
    NgramProposer proposer(match);
    // Few enough places with equal ends that none is left out.
    const std::int64_t vocabulary = rng.between(30, 60);
    std::vector<TokenId> tokens;
    while (tokens.size() < 200) {
      for (std::int64_t more = rng.between(1, 9); more > 0; --more)
        tokens.push_back(TokenId{static_cast<std::int32_t>(rng.between(0, vocabulary))});
      if (rng.chance(0.3)) {
        const auto from = static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(tokens.size()) - 1));
        for (std::size_t i = 0; i < 8 && from + i < tokens.size(); ++i) tokens.push_back(tokens[from + i]);
      }
      const auto found = proposer.propose(tokens, 5);
      ASSERT_EQ(std::vector<TokenId>(found.begin(), found.end()), slow_proposal(tokens, 5, match)) << "seed " << seed;
    }
  }
}

TEST(NgramProposer, ACopyGoesOnForItself) {
  NgramProposer one({2, 4});
  std::vector<TokenId> tokens = tokens_of("abX ab");
  ASSERT_EQ(one.propose(tokens, 1).size(), 1u);
  NgramProposer other = one;
  std::vector<TokenId> longer = tokens_of("abX abY ab");
  EXPECT_EQ(other.propose(longer, 1)[0], TokenId{'Y'});
  tokens = tokens_of("abX abZ ab");
  EXPECT_EQ(one.propose(tokens, 1)[0], TokenId{'Z'});
}

}  // namespace
}  // namespace quire
