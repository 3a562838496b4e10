#include "quire/text/stop_strings.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace quire {
namespace {

struct Outcome {
  std::string text;
  std::optional<std::size_t> matched;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome stream(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    const auto output = matcher.feed(piece);
    outcome.text += output.text;
    outcome.matched = output.matched;
  }
  outcome.text += matcher.finish();
  return outcome;
}

/// The definition, by trying every end.
Outcome expected(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < stops.size(); ++i) {
      const std::string& stop = stops[i];
      if (stop.empty() || stop.size() > end || text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      if (!best || stop.size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

std::vector<std::string> bytes_of(const std::string& text) {
  std::vector<std::string> out;
  for (char c : text) out.emplace_back(1, c);
  return out;
}

TEST(StopMatcher, StopsAtTheFirstOccurrenceWhateverTheTokenBorders) {
  for (const char* stop : {"Pari", "ri", "aris."}) {
    const std::vector<std::string> pieces = {"The capital is", " Paris", ".", " Paris"};
    const Outcome outcome = stream({stop}, pieces);
    const std::string text = "The capital is Paris. Paris";
    EXPECT_EQ(outcome.text, text.substr(0, text.find(stop)));
    EXPECT_EQ(outcome.matched, 0u);
  }
}

TEST(StopMatcher, KeepsTheCharactersBeforeTheStop) {
  EXPECT_EQ(stream({"\n"}, {"really", "?\n"}).text, "really?");
  EXPECT_EQ(stream({"\n"}, {"really?", "\n"}).text, "really?");
  EXPECT_EQ(stream({"\n"}, {"really?\nyes"}).text, "really?");
}

TEST(StopMatcher, NoPartOfAStopStringLeavesBeforeItIsComplete) {
  StopMatcher matcher({"DEFGHIJ"});
  EXPECT_EQ(matcher.feed("ABC").text, "ABC");
  for (const char* piece : {"D", "E", "FG", "HI"}) EXPECT_EQ(matcher.feed(piece).text, "");
  const auto last = matcher.feed("JK");
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.matched, 0u);
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, TextThatOnlyBeganLikeAStopStringIsGivenBackWhole) {
  EXPECT_EQ(stream({"DEFGHIJ"}, {"ABCDEFG", "X"}).text, "ABCDEFGX");
  EXPECT_EQ(stream({"DEFGHIJ"}, {"ABCDEFGHI"}).text, "ABCDEFGHI");
  EXPECT_EQ(stream({std::string(200, 'x') + "y"}, {std::string(150, 'x'), std::string(100, 'x')}).text,
            std::string(250, 'x'));
}

TEST(StopMatcher, HoldsNoMoreThanTheBeginningOfAStopString) {
  StopMatcher matcher({"aab", "bbbb"});
  EXPECT_EQ(matcher.feed("xaaaa").text, "xaa");
  EXPECT_EQ(matcher.feed("c").text, "aac");
  EXPECT_EQ(matcher.feed("bbb").text, "");
  EXPECT_EQ(matcher.feed("a").text, "bbb");
}

TEST(StopMatcher, OfStopsThatEndTogetherTheLongestWins) {
  const Outcome outcome = stream({"c", "bc", "abc"}, bytes_of("xabcd"));
  EXPECT_EQ(outcome.text, "x");
  EXPECT_EQ(outcome.matched, 2u);
}

TEST(StopMatcher, OfOverlappingStopsTheOneThatEndsFirstWins) {
  const Outcome outcome = stream({"abcd", "bc"}, bytes_of("xabcd"));
  EXPECT_EQ(outcome.text, "xa");
  EXPECT_EQ(outcome.matched, 1u);
}

TEST(StopMatcher, AfterAMatchNothingMoreLeaves) {
  StopMatcher matcher({"stop"});
  EXPECT_EQ(matcher.feed("a stop b").text, "a ");
  EXPECT_EQ(matcher.feed("more").text, "");
  EXPECT_EQ(matcher.feed("more").matched, 0u);
  EXPECT_EQ(matcher.matched(), 0u);
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, WithoutStopStringsEverythingLeavesAtOnce) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.feed("hello").text, "hello");
  StopMatcher only_empty({""});
  EXPECT_EQ(only_empty.feed("hello").text, "hello");
  EXPECT_EQ(only_empty.finish(), "");
}

RC_GTEST_PROP(StopMatcher, EverySplitGivesWhatTheWholeTextSays, ()) {
  // Two letters: beginnings and overlaps of stop strings everywhere.
  const auto word = rc::gen::container<std::string>(rc::gen::element('a', 'b'));
  const auto stops = *rc::gen::container<std::vector<std::string>>(word);
  const auto pieces = *rc::gen::container<std::vector<std::string>>(word);
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  const Outcome whole = expected(stops, text);
  RC_ASSERT(stream(stops, {text}) == whole);
  RC_ASSERT(stream(stops, pieces) == whole);
  RC_ASSERT(stream(stops, bytes_of(text)) == whole);
}

}  // namespace
}  // namespace quire
