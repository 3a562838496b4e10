#include "quire/engine/answer_text.h"

namespace quire::engine {

std::string AnswerText::push(TokenId token) {
  const bool may_stop = num_tokens_++ >= min_tokens_;
  std::string text = detokenizer_.push(token);
  return may_stop ? matcher_.feed(text).text : text;
}

std::string AnswerText::finish() {
  std::string text = matcher_.feed(detokenizer_.finish()).text;
  return text + matcher_.finish();
}

}  // namespace quire::engine
