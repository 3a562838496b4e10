#include "quire/text/detokenizer.h"

namespace quire {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DecodeOptions options)
    : tokenizer_(&tokenizer), options_(options), drop_space_(options.at_text_start && tokenizer.add_space_prefix()) {}

std::string Detokenizer::push(TokenId id) {
  if (options_.control_tokens == ControlTokens::skip && tokenizer_->is_control(id)) return {};
  std::string_view bytes = tokenizer_->token_bytes(id);
  if (drop_space_ && !bytes.empty() && !tokenizer_->is_control(id)) {
    drop_space_ = false;
    if (bytes.front() == ' ') bytes.remove_prefix(1);
  }
  return stream_.push(bytes);
}

std::string Detokenizer::finish() {
  drop_space_ = options_.at_text_start && tokenizer_->add_space_prefix();
  return stream_.finish();
}

}  // namespace quire
