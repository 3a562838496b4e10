#pragma once
// Tokenizer: text to token ids and back, from the vocabulary that a model file carries. Two kinds, by
// TokenizerData::model:
//
//  "gpt2"   byte-level BPE: the text is cut into words by the pre-tokenizer named in `pre`, each word's bytes are
//  merged
//           by the rank of `merges`. Pre-tokenizers: "smollm", "gpt-2", "llama-bpe", "qwen2" (a closed list; another
//           name is an error, since a near miss would give wrong ids without a sign of it). "qwen2" text is brought to
//           Unicode NFC first, as the original tokenizer does (llama.cpp does not). "llama-bpe" takes a word that is in
//           the vocabulary as it stands, without merging.
//  "llama"  SentencePiece-style BPE: spaces become U+2581, neighbours merge by the score of the result (the left one of
//           equal scores), characters without a token become byte tokens <0x00>..<0xFF>, or the unknown token where the
//           vocabulary has none. User-defined tokens are found in the text after spaces became U+2581, longest first,
//           and never merge with their neighbours.
//
// Choices, where other implementations differ or a reader might expect something else:
//  1. Control and unknown tokens (types 3 and 2) in a text are text, unless SpecialTokens::parsed. User-defined tokens
//     (type 4) are always recognised. At a position the longest token wins.
//  2. Gemma: user-defined tokens as above is what the original SentencePiece does. `tokenizers` differs from it where a
//     run of more than 31 spaces stands (its conversion merges runs by doubling: 16 + 16 + ...; the original, llama.cpp
//     and Quire take 31 + 31 + ...); llama.cpp differs where a text has U+2581 itself beside a space (it looks for
//     user-defined tokens before it replaces spaces).
//  3. add_space_prefix ("llama" only) puts U+2581 before the text and before each piece that follows a special token,
//     also where the piece begins with a space: what Hugging Face calls legacy, and what tokenizer.json of Llama 2 and
//     Mistral says.
//  4. "llama": U+2581 in a text and a space are the same, so decode(encode(text)) has a space for it. "qwen2": it is
//  the
//     NFC form of the text.
//  5. "gpt2": a byte that no token stands for is left out (SmolLM2 lacks 0x04, 0x06, 0x13, 0x14, 0x16, 0x1D and the
//  lead
//     bytes 0xF1, 0xF2 of unassigned planes), as in `tokenizers` and llama.cpp. The unknown token does not replace it:
//     in SmolLM2 that is <|endoftext|>, which no user's text may become.
//  6. A token written <0xHH> is a byte only if it has type 6 and exactly two hexadecimal digits; otherwise it is plain
//     text.
//  7. Of equal token texts the last one in the vocabulary is the one that encode() and find() give.
//
// Time: encode() is O(n log n) in the bytes of the text, whatever they are (times the length of the longest special
// token, at most kMaxSpecialTokenBytes, where the text looks like special tokens).
// Thread-safety: immutable after create(); all methods may be called from any thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/result.h"

namespace quire {

/// A tokenizer as plain data, in the terms of GGUF. Built by whoever reads the model file.
struct TokenizerData {
  std::string model;                ///< tokenizer.ggml.model: "gpt2" or "llama"
  std::string pre;                  ///< tokenizer.ggml.pre; empty if the file has none
  std::vector<std::string> tokens;  ///< [vocab_size]
  std::vector<float> scores;        ///< [vocab_size] for "llama"; may be empty for "gpt2"
  std::vector<std::int32_t> types;  ///< [vocab_size] 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte;
                                    ///< empty: all normal
  std::vector<std::string> merges;  ///< "left right", in order of rank; "gpt2" only
  std::optional<TokenId> bos, eos, eot, unk, pad;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  std::vector<TokenId> extra_end_tokens;  ///< more tokens that end a generation
};

/// What control tokens spelled out in a text are.
enum class SpecialTokens {
  as_text,  ///< text: for anything a user wrote
  parsed,   ///< control tokens: for text whose author may write them, such as a rendered template
};

enum class ControlTokens { skip, show };

struct DecodeOptions {
  ControlTokens control_tokens = ControlTokens::skip;
  /// The tokens stand at the start of a text rather than continue one: drop the space that encode() put in front
  /// (tokenizers with add_space_prefix only).
  bool at_text_start = false;
};

/// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class Tokenizer {
 public:
  /// Largest text of one encode().
  static constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;
  static constexpr std::size_t kMaxSpecialTokenBytes = 1024;

  /// Errors: another model or pre-tokenizer, arrays of unequal length, an id outside the vocabulary, a merge of unknown
  /// tokens, a byte that no token stands for (and no unknown token), an over-long special token.
  static Result<std::unique_ptr<Tokenizer>> create(TokenizerData data);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// The token ids of `text`; neither BOS nor EOS is added. Errors: ill-formed UTF-8 (names the position), more than
  /// kMaxTextBytes.
  Result<std::vector<TokenId>> encode(std::string_view text, SpecialTokens special) const;

  /// As encode(text, SpecialTokens::parsed), but a control token that touches one of the `plain` ranges is text. For a
  /// rendered chat template, where the ranges are what came from messages: the template's control tokens count, those
  /// that a message spells (wholly or in part) do not. Ranges are sorted, disjoint and within the text.
  Result<std::vector<TokenId>> encode_with_plain_ranges(std::string_view text, std::span<const TextRange> plain) const;

  /// The bytes that a token stands for: possibly part of a character; of a control token its name, as in
  /// "<|im_end|>". Valid as long as the tokenizer. Empty for an id outside the vocabulary.
  std::string_view token_bytes(TokenId id) const;

  /// True for control and unknown tokens, which stand for no text.
  bool is_control(TokenId id) const;

  /// The text of `ids`, always valid UTF-8: ill-formed bytes become U+FFFD (utf8.h). Equal to what a Detokenizer
  /// returns for them, joined.
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  std::int32_t vocab_size() const;
  bool contains(TokenId id) const { return id.value >= 0 && id.value < vocab_size(); }

  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> unk() const;
  std::optional<TokenId> pad() const;
  bool add_bos() const;
  bool add_eos() const;
  bool add_space_prefix() const;

  /// The ids that end a generation, sorted: eos, eot, extra_end_tokens, and those of these names that are control
  /// tokens of the vocabulary: <|im_end|> <|endoftext|> <|eot_id|> <|eom_id|> <|end_of_text|> <|end|> <|return|>
  /// <end_of_turn> <EOT> <|EOT|> <_EOT_> <|end_of_turn|> </s>.
  std::span<const TokenId> end_tokens() const;
  bool is_end(TokenId id) const;

  /// The token whose name in the vocabulary is `token` (byte-level vocabularies spell a space as U+0120).
  std::optional<TokenId> find(std::string_view token) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace quire
