#pragma once
// What a GGUF file says of its tokenizer and chat template, as the plain data that text/ is built from.

#include <optional>
#include <string>

#include "quire/base/result.h"
#include "quire/model/gguf.h"
#include "quire/text/tokenizer.h"

namespace quire::engine {

/// Reads the tokenizer.ggml.* keys. An error names the key, what was found and what was wanted. Where the file does not
/// say whether BOS is added, "llama" tokenizers add it and "gpt2" ones do not.
Result<TokenizerData> tokenizer_data(const model::GgufFile& file);

/// tokenizer.chat_template, if the file has one.
Result<std::optional<std::string>> chat_template_source(const model::GgufFile& file);

}  // namespace quire::engine
