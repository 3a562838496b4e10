#pragma once
// Answer: turns the tokens of one request into deltas: text without broken characters and without stop strings, tokens,
// scores, the finish. Owned and used by the engine's thread.

#include <optional>
#include <string>
#include <vector>

#include "quire/engine/request.h"
#include "quire/text/detokenizer.h"
#include "quire/text/stop_strings.h"

namespace quire::engine {

class Answer {
 public:
  Answer(RequestId id, const GenerateRequest& request, const Tokenizer& tokenizer);

  void set_cached_tokens(std::int32_t count) { delta_.usage.cached_tokens = count; }
  /// Takes a sampled token. True if its text completed a stop string: the request is to be ended.
  bool add(OutputToken token);
  void add_scores(std::vector<ScoreRow> rows);
  /// The end, for reasons other than a stop string. Flushes held text.
  void finish(Finish finish);
  /// The end, by the stop string that add() reported.
  void finish_by_stop_string();

  /// True if there is something to deliver.
  bool has_delta() const;
  /// What came since the last call.
  Delta take_delta();

 private:
  std::vector<std::string> stops_;
  Detokenizer detokenizer_;
  StopMatcher matcher_;
  std::int32_t min_tokens_;
  std::int32_t next_score_;  ///< first position not yet delivered: a recomputed prompt gives its scores again
  Delta delta_;
};

}  // namespace quire::engine
