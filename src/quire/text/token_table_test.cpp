#include "quire/text/token_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "quire/text/byte_level.h"

namespace quire {
namespace {

RC_GTEST_PROP(TextTable, AnswersAsAMapDoes, ()) {
  const auto texts =
      *rc::gen::container<std::vector<std::string>>(rc::gen::container<std::string>(rc::gen::element('a', 'b', '\0')));
  TextTable table(texts.size());
  std::map<std::string, std::int32_t> map;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    table.add(texts[i], static_cast<std::int32_t>(i));
    map[texts[i]] = static_cast<std::int32_t>(i);
  }
  for (const auto& [text, id] : map) {
    RC_ASSERT(table.find(text) == id);
    RC_ASSERT(table.find(text + "c") == TextTable::kNone);
  }
}

TEST(TextTable, AnEmptyTableFindsNothing) {
  EXPECT_EQ(TextTable().find("a"), TextTable::kNone);
  EXPECT_EQ(TextTable(0).find("a"), TextTable::kNone);
}

RC_GTEST_PROP(PairTable, AnswersAsAMapDoes, ()) {
  const auto pairs = *rc::gen::container<std::vector<std::pair<std::uint8_t, std::uint8_t>>>(
      rc::gen::pair(rc::gen::inRange<std::uint8_t>(0, 9), rc::gen::inRange<std::uint8_t>(0, 9)));
  PairTable table(pairs.size());
  std::map<std::pair<int, int>, std::uint32_t> map;
  for (std::uint32_t i = 0; i < pairs.size(); ++i) {
    table.add(pairs[i].first, pairs[i].second, {i, 7});
    map[{pairs[i].first, pairs[i].second}] = i;
  }
  for (int left = 0; left < 10; ++left) {
    for (int right = 0; right < 10; ++right) {
      const Merge merge = table.find(left, right);
      const auto found = map.find({left, right});
      RC_ASSERT(merge.merged == (found == map.end() ? -1 : 7));
      if (found != map.end()) RC_ASSERT(merge.rank == found->second);
    }
  }
}

RC_GTEST_PROP(LongestMatcher, FindsTheLongestOfTheAllowedTexts, ()) {
  const auto word = rc::gen::container<std::string>(rc::gen::element('a', 'b', '\xFF'));
  const auto texts = *rc::gen::container<std::vector<std::string>>(word);
  const auto text = *word;
  std::vector<LongestMatcher::Entry> entries;
  for (std::size_t i = 0; i < texts.size(); ++i) entries.push_back({texts[i], static_cast<std::int32_t>(i)});
  const LongestMatcher matcher(entries);
  const auto allowed = [](std::size_t length) { return length % 3 != 0; };
  std::size_t longest = 0;
  for (const std::string& entry : texts) {
    if (allowed(entry.size()) && text.substr(0, entry.size()) == entry) longest = std::max(longest, entry.size());
  }
  const auto match = matcher.find(text, [&](std::size_t length, std::int32_t) { return allowed(length); });
  RC_ASSERT(match.length == longest);
  if (longest > 0) RC_ASSERT(texts[static_cast<std::size_t>(match.id)] == text.substr(0, longest));
  if (longest > 0) RC_ASSERT(!matcher.never_begins(text[0]));
}

TEST(ByteLevel, TheAlphabetHasOneCharacterForEachByte) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name = byte_level_character(static_cast<unsigned char>(byte));
    EXPECT_EQ(byte_level_bytes(name), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(byte_level_character(' '), "\xC4\xA0");
  EXPECT_EQ(byte_level_character('\n'), "\xC4\x8A");
  EXPECT_EQ(byte_level_character('A'), "A");
  EXPECT_EQ(byte_level_character(0xAD), "\xC5\x83");
  EXPECT_EQ(byte_level_bytes(" "), std::nullopt);
  EXPECT_EQ(byte_level_bytes("a\xFF"), std::nullopt);
  EXPECT_EQ(byte_level_bytes("\xE4\xBD\xA0"), std::nullopt);
}

}  // namespace
}  // namespace quire
