#include "quire/text/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire {
namespace {

using Words = std::vector<std::string>;

Words split(PreTokenizer kind, std::string_view text) {
  Words words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = word_end(kind, text, begin);
    EXPECT_GT(end, begin);
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

TEST(PreTokenizer, OnlyTheNamesOfTheListAreKnown) {
  for (const char* name : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) EXPECT_TRUE(pretokenizer_named(name)) << name;
  for (const char* name : {"", "default", "gpt2", "llama-bp", "qwen"}) EXPECT_FALSE(pretokenizer_named(name)) << name;
}

TEST(PreTokenizer, Gpt2KeepsOneSpaceWithTheWord) {
  EXPECT_EQ(split(PreTokenizer::gpt2, "Hello  world 123abc, ok?!"),
            (Words{"Hello", " ", " world", " 123", "abc", ",", " ok", "?!"}));
}

TEST(PreTokenizer, Gpt2ContractionsAreLowerCase) {
  EXPECT_EQ(split(PreTokenizer::gpt2, "it's I'll we'RE '"), (Words{"it", "'s", " I", "'ll", " we", "'", "RE", " '"}));
}

TEST(PreTokenizer, Gpt2GivesTheLastOfSeveralSpacesToWhatFollows) {
  EXPECT_EQ(split(PreTokenizer::gpt2, "a\n\n  b\t\tc \n"), (Words{"a", "\n\n ", " b", "\t", "\t", "c", " \n"}));
}

TEST(PreTokenizer, SmollmCutsNumberCharactersOneByOneFirst) {
  EXPECT_EQ(split(PreTokenizer::smollm, "a  12 b½ 3"), (Words{"a", "  ", "1", "2", " b", "½", " ", "3"}));
}

TEST(PreTokenizer, LlamaTakesNumbersByThree) {
  EXPECT_EQ(split(PreTokenizer::llama_bpe, "x 1234567 y"), (Words{"x", " ", "123", "456", "7", " y"}));
}

TEST(PreTokenizer, Qwen2TakesNumbersOneByOne) {
  EXPECT_EQ(split(PreTokenizer::qwen2, "x 123"), (Words{"x", " ", "1", "2", "3"}));
}

TEST(PreTokenizer, LlamaJoinsAnyOneCharacterToTheLettersAfterIt) {
  EXPECT_EQ(split(PreTokenizer::llama_bpe, "(foo)\tbar\nbaz .qux;.qux"),
            (Words{"(foo", ")", "\tbar", "\n", "baz", " .", "qux", ";.", "qux"}));
}

TEST(PreTokenizer, LlamaContractionsIgnoreCase) {
  EXPECT_EQ(split(PreTokenizer::llama_bpe, "IT'S I'Ll we'rE o'clock s'\xC5\xBFt"),
            (Words{"IT", "'S", " I", "'Ll", " we", "'rE", " o", "'clock", " s", "'\xC5\xBF", "t"}));
}

TEST(PreTokenizer, LlamaPunctuationTakesTheNewlinesAfterIt) {
  EXPECT_EQ(split(PreTokenizer::llama_bpe, "a;\r\n\r\n  b"), (Words{"a", ";\r\n\r\n", " ", " b"}));
  EXPECT_EQ(split(PreTokenizer::llama_bpe, "a  \n \n   b"), (Words{"a", "  \n \n", "  ", " b"}));
  EXPECT_EQ(split(PreTokenizer::llama_bpe, "a   "), (Words{"a", "   "}));
}

TEST(PreTokenizer, WhiteSpaceIsUnicodes) {
  EXPECT_EQ(split(PreTokenizer::gpt2,
                  "a\xC2\xA0"
                  "b\xE3\x80\x80\xE2\x80\xA8"
                  "c\xE2\x80\x8B"
                  "d"),
            (Words{"a", "\xC2\xA0", "b", "\xE3\x80\x80", "\xE2\x80\xA8", "c", "\xE2\x80\x8B", "d"}));
}

TEST(PreTokenizer, MarksAreNeitherLettersNorNumbers) {
  EXPECT_EQ(split(PreTokenizer::gpt2, "e\xCC\x81t"), (Words{"e", "\xCC\x81", "t"}));
  EXPECT_EQ(split(PreTokenizer::llama_bpe, "e\xCC\x81t"), (Words{"e", "\xCC\x81t"}));
}

}  // namespace
}  // namespace quire
