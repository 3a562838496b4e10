// Byte-level BPE: words by the pre-tokenizer, bytes by rank.

#include <array>

#include "quire/text/bpe_merger.h"
#include "quire/text/byte_level.h"
#include "quire/text/normalize.h"
#include "quire/text/pretokenizer.h"
#include "quire/text/text_encoder.h"
#include "quire/text/token_table.h"

namespace quire {
namespace {

class ByteLevelEncoder final : public TextEncoder {
 public:
  explicit ByteLevelEncoder(PreTokenizer pre) : pre_(pre) {}

  Result<void> load(const TokenizerData& data) {
    TextTable names(data.tokens.size());
    for (std::size_t id = 0; id < data.tokens.size(); ++id) {
      if (!is_control_type(type_of(data, id))) names.add(data.tokens[id], static_cast<std::int32_t>(id));
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
      byte_tokens_[byte] = names.find(byte_level_character(static_cast<unsigned char>(byte)));
    }
    if (pre_ == PreTokenizer::llama_bpe) load_words(data);
    return load_merges(data, names);
  }

  void encode(std::string_view text, std::vector<TokenId>& out) const override {
    if (pre_ != PreTokenizer::qwen2) return encode_normalized(text, out);
    encode_normalized(normalize_nfc(text), out);
  }

 private:
  Result<void> load_merges(const TokenizerData& data, const TextTable& names) {
    merges_ = PairTable(data.merges.size());
    std::string joined;
    for (std::size_t rank = 0; rank < data.merges.size(); ++rank) {
      const std::string_view merge = data.merges[rank];
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == merge.size()) {
        return fail("tokenizer.ggml.merges[", rank, "]: found '", merge,
                    "', wanted two tokens and a space between them");
      }
      const std::string_view left = merge.substr(0, space);
      const std::string_view right = merge.substr(space + 1);
      joined.assign(left).append(right);
      const std::int32_t left_id = names.find(left);
      const std::int32_t right_id = names.find(right);
      const std::int32_t merged = names.find(joined);
      if (left_id < 0 || right_id < 0 || merged < 0) {
        const std::string_view missing = left_id < 0 ? left : right_id < 0 ? right : std::string_view(joined);
        return fail("tokenizer.ggml.merges[", rank, "]: '", merge, "' needs the token '", missing,
                    "', which the vocabulary lacks");
      }
      merges_.add(left_id, right_id, {static_cast<std::uint32_t>(rank), merged});
    }
    return {};
  }

  void load_words(const TokenizerData& data) {
    word_bytes_.reserve(data.tokens.size());
    words_ = TextTable(data.tokens.size());
    for (std::size_t id = 0; id < data.tokens.size(); ++id) {
      if (!is_text_type(type_of(data, id))) continue;
      auto bytes = byte_level_bytes(data.tokens[id]);
      if (!bytes || bytes->empty()) continue;
      word_bytes_.push_back(std::move(*bytes));  // never reallocates: the table refers to these
      words_.add(word_bytes_.back(), static_cast<std::int32_t>(id));
    }
  }

  void encode_normalized(std::string_view text, std::vector<TokenId>& out) const {
    BpeMerger merger;
    std::vector<BpeSymbol> symbols;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = word_end(pre_, text, begin);
      const std::string_view word = text.substr(begin, end - begin);
      begin = end;
      const std::int32_t whole = words_.find(word);
      if (whole >= 0) {
        out.push_back({whole});
        continue;
      }
      symbols.clear();
      for (std::size_t i = 0; i < word.size(); ++i) {
        const std::int32_t token = byte_tokens_[static_cast<unsigned char>(word[i])];
        const auto at = static_cast<std::uint32_t>(i);
        if (token >= 0) symbols.push_back({token, at, at + 1});
      }
      merger.merge(symbols, [&](const BpeSymbol& a, const BpeSymbol& b) { return merges_.find(a.token, b.token); });
      for (const BpeSymbol& symbol : symbols) out.push_back({symbol.token});
    }
  }

  PreTokenizer pre_;
  std::array<std::int32_t, 256> byte_tokens_{};  ///< negative: no token stands for the byte
  PairTable merges_;
  std::vector<std::string> word_bytes_;
  TextTable words_;  ///< whole words that need no merging; empty unless llama-bpe
};

}  // namespace

Result<std::unique_ptr<TextEncoder>> make_byte_level_encoder(const TokenizerData& data) {
  const auto pre = pretokenizer_named(data.pre);
  if (!pre) {
    return fail("tokenizer.ggml.pre: found '", data.pre, "', supported: ", kPreTokenizerNames);
  }
  auto encoder = std::make_unique<ByteLevelEncoder>(*pre);
  QUIRE_TRY_VOID(encoder->load(data));
  return std::unique_ptr<TextEncoder>(std::move(encoder));
}

}  // namespace quire
