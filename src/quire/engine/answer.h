#pragma once
// Answer: turns the tokens of one branch of a request into deltas: text without broken characters and without stop
// strings, tokens, scores, the finish. Owned and used by the engine's thread.

#include <optional>
#include <string>
#include <vector>

#include "quire/engine/answer_text.h"
#include "quire/engine/request.h"

namespace quire::engine {

class Answer {
 public:
  Answer(RequestId id, std::int32_t branch, const GenerateRequest& request, const Tokenizer& tokenizer);

  void set_cached_tokens(std::int32_t count) { delta_.usage.cached_tokens = count; }
  /// Takes a sampled token. True if its text completed a stop string: the branch is to be ended. What the same step has
  /// drawn behind it is left out.
  bool add(OutputToken token);
  void add_scores(std::vector<ScoreRow> rows);
  /// The end: `finish`, or the stop string that was found, the last held text included.
  void finish(Finish finish);

  /// True if there is something to deliver.
  bool has_delta() const;
  /// What came since the last call.
  Delta take_delta();

 private:
  std::vector<std::string> stops_;
  AnswerText text_;
  std::int32_t next_score_;  ///< first position not yet delivered: a recomputed prompt gives its scores again
  Delta delta_;
};

}  // namespace quire::engine
