// SentencePiece-style BPE: characters merge by the score of the token that results.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "quire/text/bpe_merger.h"
#include "quire/text/text_encoder.h"
#include "quire/text/token_table.h"
#include "quire/text/utf8.h"

namespace quire {
namespace {

/// A rank that orders as the score falls.
std::uint32_t rank_of_score(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);  // -0 becomes 0
  const std::uint32_t rising = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return ~rising;
}

class SentencePieceEncoder final : public TextEncoder {
 public:
  Result<void> load(const TokenizerData& data) {
    names_ = TextTable(data.tokens.size());
    ranks_.resize(data.tokens.size());
    byte_tokens_.fill(-1);
    unknown_ = data.unk ? data.unk->value : -1;
    for (std::size_t id = 0; id < data.tokens.size(); ++id) {
      const std::string& name = data.tokens[id];
      const TokenType type = type_of(data, id);
      const auto byte = type == TokenType::byte ? byte_token_value(name) : std::nullopt;
      if (std::isnan(data.scores[id])) return fail("tokenizer.ggml.scores[", id, "]: found NaN, wanted a number");
      ranks_[id] = rank_of_score(data.scores[id]);
      if (byte) {
        byte_tokens_[*byte] = static_cast<std::int32_t>(id);
      } else if (is_text_type(type) || type == TokenType::byte) {
        add_name(name, static_cast<std::int32_t>(id));
      }
    }
    std::sort(before_space_.begin(), before_space_.end());
    before_space_.erase(std::unique(before_space_.begin(), before_space_.end()), before_space_.end());
    const auto missing = std::find(byte_tokens_.begin(), byte_tokens_.end(), -1);
    if (missing != byte_tokens_.end() && unknown_ < 0) {
      return fail("the vocabulary has no token for byte ", missing - byte_tokens_.begin(),
                  " and no tokenizer.ggml.unknown_token_id to use instead");
    }
    return {};
  }

  void encode(std::string_view text, std::vector<TokenId>& out) const override {
    Scratch scratch;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = word_end(text, begin);
      encode_word(text.substr(begin, end - begin), scratch, out);
      begin = end;
    }
  }

 private:
  struct Scratch {
    BpeMerger merger;
    std::vector<BpeSymbol> symbols;
    bool after_unknown = false;  ///< the last token stands for an unknown character; the next one joins it
  };

  void add_name(std::string_view name, std::int32_t id) {
    if (name.empty()) return;
    names_.add(name, id);
    longest_name_ = std::max(longest_name_, name.size());
    for (std::size_t at = name.find(kEscapedSpace, 1); at != std::string_view::npos;
         at = name.find(kEscapedSpace, at + 1)) {
      before_space_.push_back(last_byte(name, at));
    }
  }

  static unsigned char last_byte(std::string_view text, std::size_t end) {
    return static_cast<unsigned char>(text[end - 1]);
  }

  /// The text is cut before each U+2581 that no token can join to what stands before it: small words merge faster, and
  /// with the same result.
  std::size_t word_end(std::string_view text, std::size_t begin) const {
    std::size_t at = text.find(kEscapedSpace, begin + 1);
    while (at != std::string_view::npos &&
           std::binary_search(before_space_.begin(), before_space_.end(), last_byte(text, at))) {
      at = text.find(kEscapedSpace, at + 1);
    }
    return std::min(at, text.size());
  }

  Merge find_merge(std::string_view text) const {
    if (text.size() > longest_name_) return {0, -1};
    const std::int32_t id = names_.find(text);
    return {id < 0 ? 0 : ranks_[static_cast<std::size_t>(id)], id};
  }

  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
    std::vector<BpeSymbol>& symbols = scratch.symbols;
    symbols.clear();
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t length = utf8_step(word.substr(at)).length;
      const std::int32_t token = names_.find(word.substr(at, length));
      symbols.push_back({token, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + length)});
      at += length;
    }
    scratch.merger.merge(symbols, [&](const BpeSymbol& a, const BpeSymbol& b) {
      return find_merge(word.substr(a.begin, b.end - a.begin));
    });
    for (const BpeSymbol& symbol : symbols) {
      if (symbol.token >= 0) {
        out.push_back({symbol.token});
        scratch.after_unknown = false;
      } else {
        encode_character_without_token(word.substr(symbol.begin, symbol.end - symbol.begin), scratch, out);
      }
    }
  }

  void encode_character_without_token(std::string_view character, Scratch& scratch, std::vector<TokenId>& out) const {
    const auto token_of = [this](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
    if (std::all_of(character.begin(), character.end(), [&](char byte) { return token_of(byte) >= 0; })) {
      for (char byte : character) out.push_back({token_of(byte)});
      scratch.after_unknown = false;
    } else if (!scratch.after_unknown) {
      out.push_back({unknown_});
      scratch.after_unknown = true;
    }
  }

  TextTable names_;                              ///< tokens that text may merge to
  std::vector<std::uint32_t> ranks_;             ///< [vocab_size]
  std::array<std::int32_t, 256> byte_tokens_{};  ///< negative: none
  std::int32_t unknown_ = -1;
  std::size_t longest_name_ = 0;             ///< in bytes
  std::vector<unsigned char> before_space_;  ///< sorted: last bytes of what precedes a U+2581 within a token
};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Result<std::unique_ptr<TextEncoder>> make_sentencepiece_encoder(const TokenizerData& data) {
  if (data.scores.size() != data.tokens.size()) {
    return fail("tokenizer.ggml.scores: found ", data.scores.size(), " entries, wanted one for each of the ",
                data.tokens.size(), " tokens");
  }
  auto encoder = std::make_unique<SentencePieceEncoder>();
  QUIRE_TRY_VOID(encoder->load(data));
  return std::unique_ptr<TextEncoder>(std::move(encoder));
}

std::string escape_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (char c : text) {
    if (c == ' ') {
      out += kEscapedSpace;
    } else {
      out += c;
    }
  }
  return out;
}

std::string unescape_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at; (at = text.find(kEscapedSpace)) != std::string_view::npos;) {
    out.append(text.substr(0, at));
    out += ' ';
    text.remove_prefix(at + kEscapedSpace.size());
  }
  out.append(text);
  return out;
}

std::optional<unsigned char> byte_token_value(std::string_view name) {
  if (name.size() != 6 || name.substr(0, 3) != "<0x" || name[5] != '>') return std::nullopt;
  const int high = hex_digit(name[3]);
  const int low = hex_digit(name[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<unsigned char>(high * 16 + low);
}

}  // namespace quire
