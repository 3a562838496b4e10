#include "quire/text/utf8.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace quire {
namespace {

const std::string kR(kReplacementCharacter);

/// A decoder by another road: all code points are encoded, and a sequence is a character if it is one of those.
std::string encoded(char32_t code_point) {
  std::string out;
  append_utf8(out, code_point);
  return out;
}

bool is_scalar_value(char32_t c) { return c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF); }

TEST(Utf8, EveryScalarValueIsOneCharacter) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (!is_scalar_value(c)) continue;
    const std::string bytes = encoded(c);
    const Utf8Step step = utf8_step(bytes);
    ASSERT_EQ(step.kind, Utf8Step::Kind::character) << static_cast<unsigned>(c);
    ASSERT_TRUE(step.code_point == c) << static_cast<unsigned>(c);
    ASSERT_EQ(step.length, bytes.size());
    ASSERT_TRUE(is_valid_utf8(bytes));
  }
}

TEST(Utf8, EveryProperPrefixOfACharacterIsIncomplete) {
  for (char32_t c = 0x80; c <= 0x10FFFF; c += 7) {
    if (!is_scalar_value(c)) continue;
    const std::string bytes = encoded(c);
    for (std::size_t n = 1; n < bytes.size(); ++n) {
      const Utf8Step step = utf8_step(bytes.substr(0, n));
      ASSERT_EQ(step.kind, Utf8Step::Kind::incomplete) << static_cast<unsigned>(c);
      ASSERT_EQ(step.length, n);
    }
  }
}

TEST(Utf8, SurrogatesAndWhatIsAboveTheLastCodePointAreInvalid) {
  for (char32_t c = 0xD800; c <= 0xDFFF; ++c) ASSERT_EQ(first_invalid_utf8("ab" + encoded(c)), 2u);
  for (char32_t c = 0x110000; c < 0x120000; ++c) ASSERT_EQ(first_invalid_utf8(encoded(c)), 0u);
}

TEST(Utf8, OverlongFormsAreInvalid) {
  for (const char* bytes :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF"}) {
    EXPECT_EQ(first_invalid_utf8(bytes), 0u);
  }
}

TEST(Utf8, FirstInvalidPointsAtTheBeginningOfTheBadSequence) {
  EXPECT_EQ(first_invalid_utf8(""), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("h\xC3\xA9llo"), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("h\xC3\xA9\xF0\x9F\x98"), 3u);
  EXPECT_EQ(first_invalid_utf8("\x80"), 0u);
  EXPECT_EQ(first_invalid_utf8("abc\xFF"), 3u);
}

struct Replacement {
  std::string bytes;
  std::string text;
};

TEST(Utf8, EachMaximalSubpartBecomesOneReplacementCharacter) {
  // The first five are the examples of the Unicode standard, tables 3-8 to 3-11, and of its section 3.9.
  const std::vector<Replacement> cases = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
       "A",
       kR + kR + kR + kR + kR + kR + kR + kR + "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
       "A",
       kR + kR + kR + kR + kR + kR + kR + kR + "A"},
      {"\xF4\x91\x92\x93\xFF"
       "A\x80\xBF"
       "B",
       kR + kR + kR + kR + kR + "A" + kR + kR + "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
       "A",
       kR + kR + kR + kR + "A"},
      {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "a" + kR + kR + kR + "b" + kR + "c" + kR + kR + "d"},
      {"\xF0\x9F\x98", kR},
      {"\xF0\x9F\x98 ", kR + " "},
      {"\xE2\x82", kR},
      {"ok", "ok"},
      {"", ""},
  };
  for (const Replacement& c : cases) EXPECT_EQ(replace_invalid_utf8(c.bytes), c.text);
}

std::string through_stream(const std::vector<std::string>& pieces) {
  Utf8Stream stream;
  std::string out;
  for (const std::string& piece : pieces) {
    const std::string text = stream.push(piece);
    EXPECT_TRUE(is_valid_utf8(text));
    out += text;
  }
  return out + stream.finish();
}

TEST(Utf8Stream, AnySplitOfEverySequenceGivesTheSameText) {
  const std::string text =
      "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xFFz\xE2\x82\xF0\x9F\xED\xA0\x80\xF4\x8F\xBF\xBF\xF0\x9F\x98";
  const std::string whole = replace_invalid_utf8(text);
  for (std::size_t i = 0; i <= text.size(); ++i) {
    for (std::size_t j = i; j <= text.size(); ++j) {
      EXPECT_EQ(through_stream({text.substr(0, i), text.substr(i, j - i), text.substr(j)}), whole) << i << " " << j;
    }
  }
}

TEST(Utf8Stream, ACharacterLeavesWithItsLastByte) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xF0"), "");
  EXPECT_EQ(stream.push("\x9F"), "");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80"), "\xF0\x9F\x98\x80");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, AnUnfinishedCharacterBeforeASpaceIsOneReplacement) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xE2\x82"), "");
  EXPECT_EQ(stream.push(" "), kR + " ");
  EXPECT_EQ(stream.push("\xE2\x82"), "");
  EXPECT_EQ(stream.finish(), kR);
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("\xAC"), kR);
}

RC_GTEST_PROP(Utf8Stream, RandomBytesInRandomPiecesGiveTheReplacedWhole, ()) {
  // Bytes that are often parts of characters.
  const auto byte = rc::gen::map(rc::gen::element(0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0,
                                                  0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF),
                                 [](int b) { return static_cast<char>(b); });
  const auto pieces = *rc::gen::container<std::vector<std::string>>(rc::gen::container<std::string>(byte));
  std::string whole;
  for (const std::string& piece : pieces) whole += piece;
  const std::string text = replace_invalid_utf8(whole);
  RC_ASSERT(is_valid_utf8(text));
  RC_ASSERT(through_stream(pieces) == text);
  RC_ASSERT(is_valid_utf8(whole) == (text == whole));
}

}  // namespace
}  // namespace quire
