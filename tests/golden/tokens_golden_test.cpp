// The token ids of the real models against those of independent tokenizers (tests/data/goldens).

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "quire/engine/tokenizer_data.h"
#include "quire/json/json.h"
#include "quire/model/gguf.h"
#include "quire/text/detokenizer.h"
#include "quire/text/tokenizer.h"
#include "tests/support/goldens.h"

namespace quire {
namespace {

using test::golden_ids;
using test::read_json;
using test::RealModel;

std::string printed(const std::vector<TokenId>& ids) {
  std::string out;
  for (TokenId id : ids) out += cat(id, " ");
  return out;
}

class TokensGolden : public testing::TestWithParam<RealModel> {
 protected:
  void SetUp() override {
    auto file = model::GgufFile::open(test::model_path(GetParam()));
    ASSERT_TRUE(file.ok()) << file.error().message;
    auto data = engine::tokenizer_data(*file);
    ASSERT_TRUE(data.ok()) << data.error().message;
    sentencepiece_ = data->model == "llama";
    auto tokenizer = Tokenizer::create(*std::move(data));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    tokenizer_ = *std::move(tokenizer);
  }

  void expect_ids(const std::string& text, SpecialTokens special, const std::vector<TokenId>& wanted) {
    auto found = tokenizer_->encode(text, special);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(printed(*found), printed(wanted)) << text;
  }

  /// What decoding the ids of `text` gives: to a SentencePiece-style tokenizer U+2581 is a space.
  std::string decoded_form(std::string text) const {
    const std::string mark = "\xE2\x96\x81";
    if (!sentencepiece_) return text;
    for (std::size_t at; (at = text.find(mark)) != std::string::npos;) text.replace(at, mark.size(), " ");
    return text;
  }

  std::string streamed(const std::vector<TokenId>& ids) const {
    Detokenizer detokenizer(*tokenizer_);
    std::string out;
    for (TokenId id : ids) out += detokenizer.push(id);
    return out + detokenizer.finish();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  bool sentencepiece_ = false;
};

TEST_P(TokensGolden, TheIdsOfEveryTextAreEqualAndDecodeToIt) {
  const json::Value rows = read_json(test::golden_path(GetParam(), "tokens.json"));
  ASSERT_GT(rows.as_array().size(), 380u);
  for (const json::Value& row : rows.as_array()) {
    const std::string& text = row.find("text")->as_string();
    const std::vector<TokenId> ids = golden_ids(*row.find("ids"));
    expect_ids(text, SpecialTokens::as_text, ids);
    EXPECT_EQ(tokenizer_->decode(ids), decoded_form(text));
    EXPECT_EQ(streamed(ids), decoded_form(text));
  }
}

TEST_P(TokensGolden, OfDisputedTextsTheOriginalTokenizerIsFollowed) {
  // tokenizer.h says why: the original is `tokenizers` but for Gemma's runs of more than 31 spaces.
  const json::Value rows = read_json(test::golden_path(GetParam(), "tokens-disputed.json"));
  for (const json::Value& row : rows.as_array()) {
    const std::string& text = row.find("text")->as_string();
    const bool long_run = sentencepiece_ && text.find(std::string(32, ' ')) != std::string::npos;
    expect_ids(text, SpecialTokens::as_text, golden_ids(*row.find(long_run ? "llama.cpp" : "tokenizers")));
  }
}

TEST_P(TokensGolden, RenderedChatsHaveTheirControlTokensParsed) {
  if (sentencepiece_) {
    // No chat template in the file: its control tokens alone.
    expect_ids("<bos>hi<eos>", SpecialTokens::parsed, {{2}, tokenizer_->find("hi").value(), {1}});
    return;
  }
  const json::Value rows = read_json(test::golden_path(GetParam(), "chats.json"));
  ASSERT_FALSE(rows.as_array().empty());
  for (const json::Value& row : rows.as_array()) {
    const std::vector<TokenId> ids = golden_ids(*row.find("ids"));
    expect_ids(row.find("rendered")->as_string(), SpecialTokens::parsed, ids);
    EXPECT_EQ(tokenizer_->decode(ids, {.control_tokens = ControlTokens::show}), row.find("rendered")->as_string());
  }
}

TEST_P(TokensGolden, EveryTokenOfTheVocabularyDecodesToValidText) {
  for (std::int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    ASSERT_EQ(tokenizer_->decode(std::vector<TokenId>{{id}}, {.control_tokens = ControlTokens::show}),
              replace_invalid_utf8(tokenizer_->token_bytes({id})));
  }
}

TEST_P(TokensGolden, TheEndTokensAreTheModels) {
  std::vector<std::string> names;
  for (TokenId id : tokenizer_->end_tokens()) names.emplace_back(tokenizer_->token_bytes(id));
  std::sort(names.begin(), names.end());
  const std::vector<std::string> chatml = {"<|endoftext|>", "<|im_end|>"};
  const std::vector<std::string> gemma = {"<end_of_turn>", "<eos>"};
  EXPECT_EQ(names, sentencepiece_ ? gemma : chatml);
  EXPECT_EQ(tokenizer_->add_bos(), sentencepiece_);
}

INSTANTIATE_TEST_SUITE_P(Golden, TokensGolden, testing::Values(test::kSmolLm2, test::kGemma270m, test::kQwen05b),
                         [](const auto& test) { return std::string(test.param.test_name); });

}  // namespace
}  // namespace quire
