#pragma once
// The encoding of text that holds no special tokens, one class for each kind of tokenizer. Internal to text/.
//
// Encoders refer to the TokenizerData that they are made from, which must outlive them unchanged. Immutable; encode()
// may be called from any thread.

#include <memory>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/result.h"
#include "quire/text/tokenizer.h"

namespace quire {

/// ggml's token types.
enum class TokenType : std::int32_t { undefined, normal, unknown, control, user_defined, unused, byte };

inline TokenType type_of(const TokenizerData& data, std::size_t id) {
  return data.types.empty() ? TokenType::normal : static_cast<TokenType>(data.types[id]);
}

inline bool is_control_type(TokenType type) { return type == TokenType::control || type == TokenType::unknown; }

/// Text may come out as this token by merging.
inline bool is_text_type(TokenType type) { return type == TokenType::normal || type == TokenType::undefined; }

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  /// Appends the tokens of `text` (valid UTF-8) to `out`.
  virtual void encode(std::string_view text, std::vector<TokenId>& out) const = 0;
};

/// TokenizerData::model "gpt2".
Result<std::unique_ptr<TextEncoder>> make_byte_level_encoder(const TokenizerData& data);

/// TokenizerData::model "llama". The encoder's text has U+2581 for spaces (escape_spaces).
Result<std::unique_ptr<TextEncoder>> make_sentencepiece_encoder(const TokenizerData& data);

inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";  ///< U+2581

/// `text` with U+2581 for each space, and back.
std::string escape_spaces(std::string_view text);
std::string unescape_spaces(std::string_view text);

/// The byte that a SentencePiece byte token's name, "<0x00>" to "<0xFF>", stands for; nullopt for any other name.
std::optional<unsigned char> byte_token_value(std::string_view name);

}  // namespace quire
