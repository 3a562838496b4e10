#include "quire/text/normalize.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "quire/text/utf8.h"

namespace quire {
namespace {

std::string text_of(const std::u32string& code_points) {
  std::string out;
  for (char32_t c : code_points) append_utf8(out, c);
  return out;
}

std::string nfc(const std::u32string& code_points) { return normalize_nfc(text_of(code_points)); }

TEST(NormalizeNfc, ComposesWhatUnicodeComposes) {
  EXPECT_EQ(nfc(U"e\u0301"), text_of(U"\u00E9"));
  EXPECT_EQ(nfc(U"\u1100\u1161\u11A8"), text_of(U"\uAC01"));   // Hangul
  EXPECT_EQ(nfc(U"\u212B"), text_of(U"\u00C5"));               // Angstrom sign
  EXPECT_EQ(nfc(U"\u0344"), text_of(U"\u0308\u0301"));         // excluded from composition
  EXPECT_EQ(nfc(U"a\u0301\u0316"), text_of(U"\u00E1\u0316"));  // marks are ordered first
  EXPECT_EQ(nfc(U"\u1E0B\u0323"), text_of(U"\u1E0D\u0307"));   // decomposed, ordered, composed
  EXPECT_EQ(nfc(U"\uFB01\u2460"), text_of(U"\uFB01\u2460"));   // compatibility characters stay
  EXPECT_EQ(nfc(U"\U0001D15E"), text_of(U"\U0001D157\U0001D165"));
}

TEST(NormalizeNfc, LeavesOtherTextAlone) {
  for (const char* text : {"", "plain", "na\xC3\xAFve \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80", "\xEF\xBF\xBD"}) {
    EXPECT_EQ(normalize_nfc(text), text);
  }
}

TEST(NormalizeNfc, OrdersALongRunOfMarksOfTwoClasses) {
  std::u32string marks(1, U'x');
  for (int i = 0; i < 50'000; ++i) marks += U"\u0301\u0316";
  std::u32string ordered(1, U'x');
  ordered += std::u32string(50'000, U'\u0316') + std::u32string(50'000, U'\u0301');
  EXPECT_EQ(nfc(marks), text_of(ordered));
}

RC_GTEST_PROP(NormalizeNfc, IsIdempotentAndBlindToTheOrderOfMarksOfDifferentClasses, ()) {
  const auto letters = *rc::gen::container<std::u32string>(rc::gen::element<char32_t>(
      'a', 'e', 0xE9, 0x1E0D, 0x301, 0x307, 0x316, 0x323, 0x1100, 0x1161, 0x11A8, 0xAC00, ' '));
  const std::string once = nfc(letters);
  RC_ASSERT(is_valid_utf8(once));
  RC_ASSERT(normalize_nfc(once) == once);
  // U+0301 is of class 230, U+0316 of class 220: at the end of a text they may trade places.
  RC_ASSERT(nfc(letters + U"x\u0301\u0316") == nfc(letters + U"x\u0316\u0301"));
}

}  // namespace
}  // namespace quire
