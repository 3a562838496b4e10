#include "quire/engine/tokenizer_data.h"

#include <limits>
#include <utility>
#include <vector>

namespace quire::engine {
namespace {

using model::GgufArray;
using model::GgufFile;
using model::GgufValue;

constexpr std::int64_t kMaxTokenType = 6;  ///< byte

template <class T>
Result<const std::vector<T>*> array_of(const GgufFile& file, std::string_view key, std::string_view wanted) {
  const GgufValue* value = file.find_key(key);
  if (value == nullptr) return fail("key '", key, "' is missing; wanted ", wanted);
  const auto* array = std::get_if<GgufArray>(value);
  const auto* items = array == nullptr ? nullptr : std::get_if<std::vector<T>>(&array->values);
  if (items == nullptr) return fail("key '", key, "' has another type; wanted ", wanted);
  return items;
}

Result<std::optional<TokenId>> token_id(const GgufFile& file, std::string_view key) {
  QUIRE_TRY(std::optional<std::int64_t> id, file.get_optional_int(key));
  if (!id) return std::optional<TokenId>{};
  if (*id < 0 || *id > std::numeric_limits<std::int32_t>::max()) {
    return fail("key '", key, "': ", *id, " is not a token id");
  }
  return std::optional(TokenId{static_cast<std::int32_t>(*id)});
}

Result<bool> flag(const GgufFile& file, std::string_view key, bool otherwise) {
  QUIRE_TRY(std::optional<bool> value, file.get_optional_bool(key));
  return value.value_or(otherwise);
}

}  // namespace

Result<TokenizerData> tokenizer_data(const GgufFile& file) {
  TokenizerData data;
  QUIRE_TRY(std::string_view kind, file.get_string("tokenizer.ggml.model"));
  data.model = kind;
  QUIRE_TRY(std::optional<std::string_view> pre, file.get_optional_string("tokenizer.ggml.pre"));
  data.pre = pre.value_or("");
  const bool is_spm = data.model == "llama";

  QUIRE_TRY(auto tokens, array_of<std::string_view>(file, "tokenizer.ggml.tokens", "an array of strings"));
  data.tokens.assign(tokens->begin(), tokens->end());
  if (file.find_key("tokenizer.ggml.scores") != nullptr || is_spm) {
    QUIRE_TRY(auto scores, array_of<double>(file, "tokenizer.ggml.scores", "an array of floats"));
    data.scores.assign(scores->begin(), scores->end());
  }
  if (file.find_key("tokenizer.ggml.token_type") != nullptr) {
    QUIRE_TRY(auto types, array_of<std::int64_t>(file, "tokenizer.ggml.token_type", "an array of integers"));
    for (std::int64_t type : *types) {
      if (type < 0 || type > kMaxTokenType) {
        return fail("key 'tokenizer.ggml.token_type': found ", type, ", wanted 0 to ", kMaxTokenType);
      }
      data.types.push_back(static_cast<std::int32_t>(type));
    }
  }
  if (!is_spm) {
    QUIRE_TRY(auto merges, array_of<std::string_view>(file, "tokenizer.ggml.merges", "an array of strings"));
    data.merges.assign(merges->begin(), merges->end());
  }

  QUIRE_TRY(data.bos, token_id(file, "tokenizer.ggml.bos_token_id"));
  QUIRE_TRY(data.eos, token_id(file, "tokenizer.ggml.eos_token_id"));
  QUIRE_TRY(data.eot, token_id(file, "tokenizer.ggml.eot_token_id"));
  QUIRE_TRY(data.unk, token_id(file, "tokenizer.ggml.unknown_token_id"));
  QUIRE_TRY(data.pad, token_id(file, "tokenizer.ggml.padding_token_id"));
  QUIRE_TRY(data.add_bos, flag(file, "tokenizer.ggml.add_bos_token", is_spm));
  QUIRE_TRY(data.add_eos, flag(file, "tokenizer.ggml.add_eos_token", false));
  QUIRE_TRY(data.add_space_prefix, flag(file, "tokenizer.ggml.add_space_prefix", is_spm));
  return data;
}

Result<std::optional<std::string>> chat_template_source(const GgufFile& file) {
  QUIRE_TRY(std::optional<std::string_view> source, file.get_optional_string("tokenizer.chat_template"));
  if (!source) return std::optional<std::string>{};
  return std::optional(std::string(*source));
}

}  // namespace quire::engine
