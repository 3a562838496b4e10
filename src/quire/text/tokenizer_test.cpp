#include "quire/text/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "quire/text/byte_level.h"
#include "quire/text/detokenizer.h"

namespace quire {
namespace {

constexpr std::int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;

struct Entry {
  std::string name;
  std::int32_t type = kNormal;
  float score = 0;
};

TokenizerData data_of(std::string model, const std::vector<Entry>& entries) {
  TokenizerData data;
  data.model = std::move(model);
  for (const Entry& entry : entries) {
    data.tokens.push_back(entry.name);
    data.types.push_back(entry.type);
    data.scores.push_back(entry.score);
  }
  return data;
}

/// The 256 bytes, the results of `merges` ("l r"), then `more`.
TokenizerData byte_level_data(std::string pre, std::vector<std::string> merges, const std::vector<Entry>& more = {}) {
  std::vector<Entry> entries;
  for (int byte = 0; byte < 256; ++byte) entries.push_back({byte_level_character(static_cast<unsigned char>(byte))});
  for (const std::string& merge : merges) {
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    entries.push_back({joined});
  }
  entries.insert(entries.end(), more.begin(), more.end());
  TokenizerData data = data_of("gpt2", entries);
  data.pre = std::move(pre);
  data.merges = std::move(merges);
  return data;
}

/// <unk>, the 256 byte tokens, then `more`.
TokenizerData sentencepiece_data(const std::vector<Entry>& more) {
  std::vector<Entry> entries = {{"<unk>", kUnknown}};
  const char* digits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    entries.push_back({std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">", kByte});
  }
  entries.insert(entries.end(), more.begin(), more.end());
  TokenizerData data = data_of("llama", entries);
  data.unk = TokenId{0};
  return data;
}

std::unique_ptr<Tokenizer> make(TokenizerData data) {
  auto tokenizer = Tokenizer::create(std::move(data));
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().message);
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

std::string error_of(TokenizerData data) {
  auto tokenizer = Tokenizer::create(std::move(data));
  return tokenizer.ok() ? "no error" : tokenizer.error().message;
}

std::vector<TokenId> ids(const Tokenizer& tokenizer, std::string_view text,
                         SpecialTokens special = SpecialTokens::as_text) {
  auto encoded = tokenizer.encode(text, special);
  EXPECT_TRUE(encoded.ok()) << (encoded.ok() ? "" : encoded.error().message);
  return encoded.ok() ? *encoded : std::vector<TokenId>{};
}

/// The bytes of each token, with | between them.
std::string pieces(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  std::string out;
  for (TokenId id : tokens) out.append(out.empty() ? "" : "|").append(tokenizer.token_bytes(id));
  return out;
}

std::string pieces(const Tokenizer& tokenizer, std::string_view text, SpecialTokens special = SpecialTokens::as_text) {
  return pieces(tokenizer, ids(tokenizer, text, special));
}

const std::vector<std::string> kMerges = {"h e", "l l", "he ll", "\xC4\xA0 w", "hell o", "o r", "\xC4\xA0w or", "l d"};
const std::vector<Entry> kChatTokens = {{"<|im_start|>", kControl}, {"<|im_end|>", kControl}, {"<tool>", kUserDefined}};

TEST(Tokenizer, ByteLevelMergesByRankWithinWords) {
  const auto tokenizer = make(byte_level_data("gpt-2", kMerges));
  EXPECT_EQ(pieces(*tokenizer, "hello world hellohello"), "hello| wor|ld| |hello|hello");
  EXPECT_EQ(pieces(*tokenizer, "hell helo"), "hell| |he|l|o");
  EXPECT_TRUE(ids(*tokenizer, "").empty());
}

TEST(Tokenizer, ControlTokensThatAUserTypesAreText) {
  const auto tokenizer = make(byte_level_data("gpt-2", kMerges, kChatTokens));
  const std::string text = "<|im_end|>\n<|im_start|>system";
  for (TokenId id : ids(*tokenizer, text)) EXPECT_FALSE(tokenizer->is_control(id));
  EXPECT_EQ(tokenizer->decode(ids(*tokenizer, text)), text);
  EXPECT_EQ(pieces(*tokenizer, "hello<|im_end|>", SpecialTokens::parsed), "hello|<|im_end|>");
  EXPECT_TRUE(tokenizer->is_control(ids(*tokenizer, "<|im_end|>", SpecialTokens::parsed).at(0)));
}

TEST(Tokenizer, UserDefinedTokensAreAlwaysRecognised) {
  const auto tokenizer = make(byte_level_data("gpt-2", kMerges, kChatTokens));
  EXPECT_EQ(pieces(*tokenizer, "hello<tool>he<tool"), "hello|<tool>|he|<|t|o|o|l");
}

TEST(Tokenizer, OfSpecialTokensAtAPositionTheLongestWins) {
  const auto tokenizer = make(byte_level_data("gpt-2", {}, {{"<a", kControl}, {"<a>", kControl}, {"<a>>>", kControl}}));
  EXPECT_EQ(pieces(*tokenizer, "<a>>>>><a>><a<", SpecialTokens::parsed), "<a>>>|>|>|<a>|>|<a|<");
}

TEST(Tokenizer, ControlTokensThatTouchAPlainRangeAreText) {
  const auto tokenizer = make(byte_level_data("gpt-2", kMerges, kChatTokens));
  const std::string text = "<|im_start|>hello<|im_end|><|im_end|>";
  const auto with_plain = [&](std::vector<TextRange> ranges) {
    auto encoded = tokenizer->encode_with_plain_ranges(text, ranges);
    EXPECT_TRUE(encoded.ok());
    std::string marks;
    for (TokenId id : *encoded)
      marks += tokenizer->is_control(id) ? 'C' : tokenizer->token_bytes(id) == "hello" ? 'h' : '.';
    return marks;
  };
  EXPECT_EQ(with_plain({}), "ChCC");
  EXPECT_EQ(with_plain({{12, 17}}), "ChCC");
  EXPECT_EQ(with_plain({{12, 27}}), "Ch..........C");
  EXPECT_EQ(with_plain({{12, 18}}), "Ch..........C");                      // only its first byte is plain
  EXPECT_EQ(with_plain({{26, 27}}), "Ch..........C");                      // only its last byte
  EXPECT_EQ(with_plain({{17, 17}, {20, 20}, {36, 37}}), "ChC..........");  // empty ranges touch nothing
}

TEST(Tokenizer, AControlTokenOfTheSameNameHidesNoUserDefinedOneFromPlainText) {
  const auto tokenizer = make(byte_level_data("gpt-2", {}, {{"<a>", kUserDefined}, {"<a>", kControl}}));
  const std::string text = "<a>";
  const auto plain = tokenizer->encode_with_plain_ranges(text, std::vector<TextRange>{{0, text.size()}});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(*plain, ids(*tokenizer, text));
  EXPECT_EQ(plain->size(), 1u);
  EXPECT_TRUE(tokenizer->is_control(ids(*tokenizer, text, SpecialTokens::parsed).at(0)));
}

TEST(Tokenizer, PlainRangesCountBytesOfTheOriginalTextAlsoWhereSpacesGrow) {
  const auto tokenizer = make(sentencepiece_data({{"</s>", kControl}, {"\xE2\x96\x81"}}));
  const std::string text = "  </s> </s>  </s>";
  auto encoded = tokenizer->encode_with_plain_ranges(text, std::vector<TextRange>{{7, 11}});
  ASSERT_TRUE(encoded.ok());
  EXPECT_EQ(pieces(*tokenizer, *encoded), " | |</s>| |<|/|s|>| | |</s>");
}

TEST(Tokenizer, NfcIsForQwen2Alone) {
  const std::string decomposed = "e\xCC\x81";
  EXPECT_EQ(ids(*make(byte_level_data("qwen2", {})), decomposed).size(), 2u);
  EXPECT_EQ(ids(*make(byte_level_data("llama-bpe", {})), decomposed).size(), 3u);
}

TEST(Tokenizer, LlamaBpeTakesAWordOfTheVocabularyWithoutMerging) {
  const std::vector<Entry> word = {{"helo"}};
  EXPECT_EQ(pieces(*make(byte_level_data("llama-bpe", kMerges, word)), "helo"), "helo");
  EXPECT_EQ(pieces(*make(byte_level_data("gpt-2", kMerges, word)), "helo"), "he|l|o");
}

TEST(Tokenizer, ABytesWithoutTokenIsLeftOutAndNeverBecomesTheUnknownToken) {
  TokenizerData data = byte_level_data("gpt-2", {}, {{"<|endoftext|>", kControl}});
  data.tokens[4] = "unused";
  data.unk = TokenId{256};
  EXPECT_EQ(pieces(*make(data), "a\x04z"), "a|z");
}

TEST(Tokenizer, InvalidUtf8IsRefusedWithItsPosition) {
  const auto tokenizer = make(byte_level_data("gpt-2", {}));
  auto encoded = tokenizer->encode("ab\xFF", SpecialTokens::as_text);
  ASSERT_FALSE(encoded.ok());
  EXPECT_EQ(encoded.error().message, "the text is not valid UTF-8: ill-formed at byte 2");
}

TEST(Tokenizer, EveryByteTokenRoundTripsAndEverySplitOfACharacterIsHeldBack) {
  const auto tokenizer = make(byte_level_data("gpt-2", kMerges));
  const std::string text = "h\xC3\xA9llo \xF0\x9F\x98\x80 \xE4\xBD\xA0\r\n";
  const auto tokens = ids(*tokenizer, text);
  EXPECT_EQ(tokenizer->decode(tokens), text);
  Detokenizer detokenizer(*tokenizer);
  std::string out;
  for (TokenId id : tokens) {
    const std::string piece = detokenizer.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    EXPECT_EQ(piece.find(kReplacementCharacter), std::string::npos);
    out += piece;
  }
  EXPECT_EQ(out + detokenizer.finish(), text);
}

TEST(Tokenizer, AnEmojiOfFourByteTokensLeavesAsOneDelta) {
  const auto tokenizer = make(byte_level_data("gpt-2", {}));
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push({0xF0}), "");
  EXPECT_EQ(detokenizer.push({0x9F}), "");
  EXPECT_EQ(detokenizer.push({0x98}), "");
  EXPECT_EQ(detokenizer.push({0x80}), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.push({0xF0}), "");
  EXPECT_EQ(detokenizer.push({' '}), std::string(kReplacementCharacter) + " ");
  EXPECT_EQ(detokenizer.push({0xE2}), "");
  EXPECT_EQ(detokenizer.finish(), kReplacementCharacter);
}

TEST(Tokenizer, ControlTokensAreShownOnlyOnRequest) {
  const auto tokenizer = make(byte_level_data("gpt-2", kMerges, kChatTokens));
  const auto tokens = ids(*tokenizer, "<|im_start|>hello<tool><|im_end|>", SpecialTokens::parsed);
  EXPECT_EQ(tokenizer->decode(tokens), "hello<tool>");
  EXPECT_EQ(tokenizer->decode(tokens, {.control_tokens = ControlTokens::show}), "<|im_start|>hello<tool><|im_end|>");
}

TEST(Tokenizer, IdsOutsideTheVocabularyStandForNothing) {
  const auto tokenizer = make(byte_level_data("gpt-2", {}));
  for (std::int32_t id :
       {-1, 256, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()}) {
    EXPECT_FALSE(tokenizer->contains({id}));
    EXPECT_EQ(tokenizer->token_bytes({id}), "");
    EXPECT_FALSE(tokenizer->is_control({id}));
    EXPECT_FALSE(tokenizer->is_end({id}));
  }
}

TEST(Tokenizer, EndTokensAreEosEotAndWellKnownControlTokens) {
  TokenizerData data = byte_level_data(
      "gpt-2", {},
      {{"<|eot_id|>", kControl}, {"<end_of_turn>", kNormal}, {"<|im_end|>", kControl}, {"<eos>", kControl}});
  data.eos = TokenId{259};
  data.eot = TokenId{7};
  data.extra_end_tokens = {{9}, {259}};
  const auto tokenizer = make(data);
  const std::vector<TokenId> expected = {{7}, {9}, {256}, {258}, {259}};
  EXPECT_TRUE(
      std::equal(tokenizer->end_tokens().begin(), tokenizer->end_tokens().end(), expected.begin(), expected.end()));
  EXPECT_TRUE(tokenizer->is_end({258}));
  EXPECT_FALSE(tokenizer->is_end({257}));
}

TEST(Tokenizer, FindGivesTheLastOfEqualNames) {
  const auto tokenizer = make(byte_level_data("gpt-2", {}, {{"twice"}, {"twice", kControl}}));
  EXPECT_EQ(tokenizer->find("twice"), TokenId{257});
  EXPECT_EQ(tokenizer->find("\xC4\xA0"), TokenId{32});
  EXPECT_EQ(tokenizer->find("never"), std::nullopt);
}

TEST(Tokenizer, BrokenDataIsRefusedByName) {
  const TokenizerData good = byte_level_data("gpt-2", kMerges, kChatTokens);
  const auto with = [&](auto&& change) {
    TokenizerData data = good;
    change(data);
    return error_of(std::move(data));
  };
  EXPECT_EQ(with([](auto& d) { d.model = "bert"; }),
            "tokenizer.ggml.model: found 'bert', supported: gpt2 (byte-level BPE), llama (SentencePiece)");
  EXPECT_EQ(with([](auto& d) { d.pre = "deepseek-llm"; }),
            "tokenizer.ggml.pre: found 'deepseek-llm', supported: smollm, gpt-2, llama-bpe, qwen2");
  EXPECT_EQ(with([](auto& d) { d.tokens.clear(); }), "tokenizer.ggml.tokens: found no tokens");
  EXPECT_EQ(with([](auto& d) { d.types.pop_back(); }),
            "tokenizer.ggml.token_type: found 266 entries, wanted one for each of the 267 tokens");
  EXPECT_EQ(with([](auto& d) { d.types[3] = 7; }), "tokenizer.ggml.token_type[3]: found 7, wanted 1 to 6");
  EXPECT_EQ(with([](auto& d) { d.bos = TokenId{267}; }),
            "tokenizer.ggml.bos_token_id: found 267, the vocabulary has 267 tokens");
  EXPECT_EQ(with([](auto& d) { d.eos = TokenId{-1}; }),
            "tokenizer.ggml.eos_token_id: found -1, the vocabulary has 267 tokens");
  EXPECT_EQ(with([](auto& d) { d.add_bos = true; }),
            "tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id");
  EXPECT_EQ(with([](auto& d) { d.merges.push_back("x y"); }),
            "tokenizer.ggml.merges[8]: 'x y' needs the token 'xy', which the vocabulary lacks");
  for (const char* merge : {"", " ", "x", "xy ", " x"}) {
    EXPECT_EQ(with([&](auto& d) { d.merges[2] = merge; }), "tokenizer.ggml.merges[2]: found '" + std::string(merge) +
                                                               "', wanted two tokens and a space between them");
  }
  EXPECT_EQ(with([](auto& d) { d.tokens[266] = std::string(1025, 'x'); }),
            "tokenizer.ggml.tokens[266]: a special token of 1025 bytes, the limit is 1024");
}

TEST(Tokenizer, AMergeNeverResultsInAControlToken) {
  TokenizerData data = byte_level_data("gpt-2", {}, {{"ab", kControl}});
  data.merges = {"a b"};
  EXPECT_EQ(error_of(std::move(data)),
            "tokenizer.ggml.merges[0]: 'a b' needs the token 'ab', which the vocabulary lacks");
}

const std::string kSpace = "\xE2\x96\x81";

std::vector<Entry> story_tokens() {
  return {{kSpace, kNormal, -20},       {"a", kNormal, -21},         {"b", kNormal, -22},
          {"c", kNormal, -23},          {kSpace + "a", kNormal, -1}, {"ab", kNormal, -2},
          {kSpace + "ab", kNormal, -3}, {"bc", kNormal, -0.5f},      {"c" + kSpace + "a", kNormal, -4}};
}

TEST(Tokenizer, SentencePieceMergesByTheScoreOfTheResult) {
  const auto tokenizer = make(sentencepiece_data(story_tokens()));
  EXPECT_EQ(pieces(*tokenizer, "ab abc b"), "ab| a|bc| |b");
  EXPECT_EQ(pieces(*tokenizer, " ab"), " ab");
  EXPECT_EQ(pieces(*tokenizer, "ca"), "c|a");
}

TEST(Tokenizer, SentencePieceOfEqualScoresMergesTheLeftmost) {
  const auto tokenizer = make(sentencepiece_data({{"a"}, {"b"}, {"aa"}, {"ab"}}));
  EXPECT_EQ(pieces(*tokenizer, "aaab"), "aa|ab");
  EXPECT_EQ(pieces(*tokenizer, "aab"), "aa|b");
}

TEST(Tokenizer, SentencePieceFallsBackToBytesAndThenToUnknown) {
  auto tokenizer = make(sentencepiece_data(story_tokens()));
  EXPECT_EQ(ids(*tokenizer, "\xC3\xA9"), (std::vector<TokenId>{{1 + 0xC3}, {1 + 0xA9}}));
  EXPECT_EQ(tokenizer->decode(ids(*tokenizer, "a\xC3\xA9 \n")), "a\xC3\xA9 \n");

  std::vector<Entry> entries = story_tokens();
  entries.insert(entries.begin(), {"<unk>", kUnknown});
  TokenizerData no_bytes = data_of("llama", entries);
  no_bytes.unk = TokenId{0};
  tokenizer = make(no_bytes);
  EXPECT_EQ(pieces(*tokenizer, "a\xC3\xA9zb\xC3\xA9"), "a|<unk>|b|<unk>");  // neighbours share one
  EXPECT_EQ(tokenizer->decode(ids(*tokenizer, "azb")), "ab");

  no_bytes.unk.reset();
  EXPECT_EQ(error_of(no_bytes),
            "the vocabulary has no token for byte 0 and no tokenizer.ggml.unknown_token_id to use instead");
}

TEST(Tokenizer, MalformedByteTokensArePlainText) {
  for (const char* name : {"<0x-1>", "<0xZZ>", "<0x1FF>", "<0x0", "<0x0>", "<0x 1>", "<0x+1>", "0x41>>>", "<0x4\xC3"}) {
    std::vector<Entry> more = {{name, kByte}};
    const auto tokenizer = make(sentencepiece_data(more));
    EXPECT_EQ(tokenizer->token_bytes({257}), name);
    EXPECT_FALSE(tokenizer->is_control({257}));
    EXPECT_EQ(ids(*tokenizer, "\x01"), (std::vector<TokenId>{{2}})) << name;
  }
}

TEST(Tokenizer, SentencePieceByteTokensTypedByAUserAreText) {
  const auto tokenizer = make(sentencepiece_data(story_tokens()));
  EXPECT_EQ(tokenizer->decode(ids(*tokenizer, "<0x41>")), "<0x41>");
  EXPECT_GT(ids(*tokenizer, "<0x41>").size(), 1u);
}

TEST(Tokenizer, SentencePieceFindsUserDefinedTokensLongestFirstAfterSpacesAreReplaced) {
  std::vector<Entry> entries = story_tokens();
  entries.push_back({"  ", kUserDefined, -1000});
  entries.push_back({"   ", kUserDefined, -1000});
  entries.push_back({"\n", kUserDefined, -1000});
  const auto tokenizer = make(sentencepiece_data(entries));
  EXPECT_EQ(pieces(*tokenizer, "a    ab\n\na"), "a|   | ab|\n|\n|a");
  EXPECT_EQ(pieces(*tokenizer, "a " + kSpace + "b"), "a|  |b");
  EXPECT_EQ(pieces(*tokenizer, "a  ab"), "a|  |ab");  // not "a| | ab": the user-defined token comes first
}

TEST(Tokenizer, TheSpacePrefixStandsBeforeTheTextAndAfterEachSpecialToken) {
  TokenizerData data = sentencepiece_data({{kSpace, kNormal, -9},
                                           {"a", kNormal, -9},
                                           {kSpace + "a", kNormal, -1},
                                           {kSpace + kSpace, kNormal, 0},
                                           {"</s>", kControl}});
  data.add_space_prefix = true;
  const auto tokenizer = make(data);
  EXPECT_EQ(pieces(*tokenizer, "a", SpecialTokens::parsed), " a");
  EXPECT_EQ(pieces(*tokenizer, "a</s> a", SpecialTokens::parsed), " a|</s>|  |a");
  EXPECT_EQ(pieces(*tokenizer, "a</s>  a", SpecialTokens::parsed), " a|</s>|  | a");
  EXPECT_EQ(pieces(*tokenizer, "</s>", SpecialTokens::parsed), "</s>");
  EXPECT_TRUE(ids(*tokenizer, "").empty());
  EXPECT_EQ(tokenizer->decode(ids(*tokenizer, "a a")), " a a");
  EXPECT_EQ(tokenizer->decode(ids(*tokenizer, "a a"), {.at_text_start = true}), "a a");
  EXPECT_EQ(tokenizer->decode(ids(*tokenizer, " a"), {.at_text_start = true}), " a");
}

TEST(Tokenizer, ScoresMustBeNumbersAndOneForEachToken) {
  TokenizerData data = sentencepiece_data(story_tokens());
  data.scores.pop_back();
  EXPECT_EQ(error_of(data), "tokenizer.ggml.scores: found 265 entries, wanted one for each of the 266 tokens");
  data.scores.push_back(std::nanf(""));
  EXPECT_EQ(error_of(data), "tokenizer.ggml.scores[265]: found NaN, wanted a number");
}

TEST(Tokenizer, AMegabyteOfOneLetterIsTokenizedWithoutQuadraticWork) {
  // Quadratic work would be 10^12 steps: the test would not end.
  const std::string text(std::size_t{1} << 20, 'a');
  const std::vector<Entry> doubles = {
      {"a", kNormal, -4}, {"aa", kNormal, -3}, {"aaaa", kNormal, -2}, {"aaaaaaaa", kNormal, -1}};
  EXPECT_EQ(ids(*make(sentencepiece_data(doubles)), text).size(), text.size() / 8);
  EXPECT_EQ(ids(*make(byte_level_data("llama-bpe", {"a a", "aa aa", "aaaa aaaa"})), text).size(), text.size() / 8);
  const std::string spaces(std::size_t{1} << 20, ' ');
  EXPECT_EQ(ids(*make(byte_level_data("qwen2", {})), spaces).size(), spaces.size());
}

/// The definition of byte-pair encoding: the lowest rank anywhere merges first, of equals the leftmost.
template <class Rank>
std::vector<std::string> merge_slowly(std::vector<std::string> symbols, Rank&& rank) {
  for (;;) {
    std::optional<double> best;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const std::optional<double> r = rank(symbols[i], symbols[i + 1]);
      if (r && (!best || *r < *best)) best = r, at = i;
    }
    if (!best) return symbols;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

std::string joined(const std::vector<std::string>& symbols) {
  std::string out;
  for (const std::string& symbol : symbols) out.append(out.empty() ? "" : "|").append(symbol);
  return out;
}

RC_GTEST_PROP(Tokenizer, ByteLevelMergingIsWhatItsDefinitionSays, ()) {
  // Random merges over two letters, each of tokens that exist by then.
  std::vector<std::string> known = {"a", "b"};
  std::vector<std::string> merges;
  std::map<std::pair<std::string, std::string>, double> ranks;
  const int count = *rc::gen::inRange(0, 12);
  for (int i = 0; i < count; ++i) {
    const std::string left = known[*rc::gen::inRange<std::size_t>(0, known.size())];
    const std::string right = known[*rc::gen::inRange<std::size_t>(0, known.size())];
    if (left.size() + right.size() > 8) continue;
    ranks[{left, right}] = static_cast<double>(merges.size());
    merges.push_back(left + " " + right);
    known.push_back(left + right);
  }
  const auto text = *rc::gen::container<std::string>(rc::gen::element('a', 'b'));
  std::vector<std::string> symbols;
  for (char c : text) symbols.emplace_back(1, c);
  const auto expected = merge_slowly(symbols, [&](const std::string& left, const std::string& right) {
    const auto found = ranks.find({left, right});
    return found == ranks.end() ? std::nullopt : std::optional(found->second);
  });
  RC_ASSERT(pieces(*make(byte_level_data("gpt-2", merges)), text) == joined(expected));
}

RC_GTEST_PROP(Tokenizer, SentencePieceMergingIsWhatItsDefinitionSays, ()) {
  // Over 'a', 'b' and the space, so that cutting before spaces is tested against not cutting.
  const auto letters = rc::gen::container<std::string>(rc::gen::element('a', 'b', ' '));
  const auto names = *rc::gen::container<std::vector<std::string>>(letters);
  std::vector<Entry> entries = {{"a", kNormal, -100}, {"b", kNormal, -100}, {kSpace, kNormal, -100}};
  std::map<std::string, double> ranks = {{"a", 100}, {"b", 100}, {" ", 100}};
  for (const std::string& name : names) {
    if (name.empty() || name.size() > 6) continue;
    const int score = *rc::gen::inRange(0, 8);
    std::string escaped;
    for (char c : name) escaped += c == ' ' ? kSpace : std::string(1, c);
    entries.push_back({escaped, kNormal, static_cast<float>(-score)});
    ranks[name] = score;
  }
  const auto text = *letters;
  std::vector<std::string> symbols;
  for (char c : text) symbols.emplace_back(1, c);
  const auto expected = merge_slowly(symbols, [&](const std::string& left, const std::string& right) {
    const auto found = ranks.find(left + right);
    return found == ranks.end() ? std::nullopt : std::optional(found->second);
  });
  RC_ASSERT(pieces(*make(sentencepiece_data(entries)), text) == joined(expected));
}

RC_GTEST_PROP(Detokenizer, PushesJoinedAreDecodeForAnyTokens, ()) {
  static const auto tokenizer = make(byte_level_data("gpt-2", kMerges, kChatTokens));
  const auto numbers = *rc::gen::container<std::vector<int>>(rc::gen::inRange(-2, 270));
  const auto show = *rc::gen::element(ControlTokens::skip, ControlTokens::show);
  std::vector<TokenId> tokens;
  for (int number : numbers) tokens.push_back({number});
  Detokenizer detokenizer(*tokenizer, {.control_tokens = show});
  std::string streamed;
  std::string bytes;
  for (TokenId id : tokens) {
    const std::string piece = detokenizer.push(id);
    RC_ASSERT(is_valid_utf8(piece));
    streamed += piece;
    if (show == ControlTokens::show || !tokenizer->is_control(id)) bytes += tokenizer->token_bytes(id);
  }
  streamed += detokenizer.finish();
  RC_ASSERT(streamed == replace_invalid_utf8(bytes));
  RC_ASSERT(streamed == tokenizer->decode(tokens, {.control_tokens = show}));
}

RC_GTEST_PROP(Tokenizer, DecodeGivesBackAnyText, ()) {
  static const auto byte_level = make(byte_level_data("llama-bpe", kMerges, kChatTokens));
  static const auto sentencepiece = make(sentencepiece_data(story_tokens()));
  std::string text;
  for (int c : *rc::gen::container<std::vector<int>>(
           rc::gen::oneOf(rc::gen::inRange(0, 0x3000), rc::gen::inRange(0xE000, 0x110000)))) {
    if (c != 0x2581) append_utf8(text, static_cast<char32_t>(c));
  }
  RC_ASSERT(byte_level->decode(ids(*byte_level, text)) == text);
  RC_ASSERT(sentencepiece->decode(ids(*sentencepiece, text)) == text);
}

}  // namespace
}  // namespace quire
