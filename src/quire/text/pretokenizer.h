#pragma once
// Pre-tokenizers: where byte-level BPE cuts a text into words; merges never cross a cut. Hand-written equivalents of
// the regular expressions that the models were trained with, linear in the text whatever it is. Internal to text/.
//
// In the expressions \p{L} are letters (general categories L*), \p{N} numbers (N*), \s the White_Space characters:
//
//  gpt2       '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//  smollm     each number character by itself, then gpt2 on what lies between them
//  llama_bpe  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+
//             |\s+(?!\S)|\s+
//  qwen2      as llama_bpe, but numbers one by one: \p{N}
//
// Characters are classified by Unicode 15. Differential tests hold them to the PyPI package tokenizers
// (tests/differential/tokenizers_check.py).

#include <cstddef>
#include <optional>
#include <string_view>

namespace quire {

enum class PreTokenizer { gpt2, smollm, llama_bpe, qwen2 };

/// By the name in tokenizer.ggml.pre.
std::optional<PreTokenizer> pretokenizer_named(std::string_view name);

/// For messages.
inline constexpr std::string_view kPreTokenizerNames = "smollm, gpt-2, llama-bpe, qwen2";

/// The end of the word that begins at `begin` (begin < text.size(), a character boundary; text is valid UTF-8).
std::size_t word_end(PreTokenizer kind, std::string_view text, std::size_t begin);

}  // namespace quire
