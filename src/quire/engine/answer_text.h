#pragma once
// AnswerText: the text of one continuation as its tokens come: whole characters, and nothing of a stop string. A copy
// goes on for itself, which is how beams fork.

#include <optional>
#include <string>

#include "quire/engine/request.h"
#include "quire/text/detokenizer.h"
#include "quire/text/stop_strings.h"

namespace quire::engine {

class AnswerText {
 public:
  AnswerText(const GenerateRequest& request, const Tokenizer& tokenizer)
      : detokenizer_(tokenizer), matcher_(request.stop), min_tokens_(request.min_tokens) {}

  /// The text that the token completes. Stop strings count once there are min_tokens tokens.
  std::string push(TokenId token);
  /// The end, for other reasons than a stop string: what was held. It may complete a stop string.
  std::string finish();

  /// Which stop string was found; nothing comes after it.
  std::optional<std::size_t> matched() const { return matcher_.matched(); }

 private:
  Detokenizer detokenizer_;
  StopMatcher matcher_;
  std::int32_t min_tokens_;
  std::int32_t num_tokens_ = 0;
};

}  // namespace quire::engine
