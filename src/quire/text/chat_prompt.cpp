#include "quire/text/chat_prompt.h"

namespace quire {

Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer, const Rendered& rendered) {
  return tokenizer.encode_with_plain_ranges(rendered.text, rendered.from_input);
}

std::vector<TokenId> with_bos(const Tokenizer& tokenizer, std::vector<TokenId> ids) {
  const auto bos = tokenizer.bos();
  const bool wanted = tokenizer.add_bos() && bos && (ids.empty() || ids.front() != *bos);
  if (wanted) ids.insert(ids.begin(), *bos);
  return ids;
}

}  // namespace quire
