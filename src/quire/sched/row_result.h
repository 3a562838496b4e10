#pragma once
// What became of a row of a batch plan (sched/batch_plan.h). Plain data, part of the command log.

#include <vector>

#include "quire/base/ids.h"

namespace quire {

struct Candidate {
  TokenId token{-1};
  float logprob = 0;  ///< natural logarithm, of the model's own distribution; finite. 0 where the token was drawn
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

struct RowResult {
  TokenId token{-1};    ///< the sampled token, >= 0; meaningful if the row has one output and has not failed
  bool failed = false;  ///< as for a non-finite value: this row's branch ends with an error, nobody else's
  /// Of a row with several outputs: the tokens drawn for branches 0, 1, ... [num_outputs]; or, of a ranked row, the
  /// best tokens, each once, by logprob, then id: [num_outputs], or fewer if the vocabulary has no more, at least 1.
  std::vector<Candidate> candidates = {};
  /// Of a row with proposals: what was drawn behind those that came true. token is proposal 0, more[i] is proposal
  /// i + 1, all but the last of them; so there are as many as came true. May be cut short, as where a value behind is
  /// not finite: what is left out is computed again.
  std::vector<TokenId> more = {};
  bool refused = false;  ///< the system had no memory for it: nothing was computed, its request tries again later
  friend bool operator==(const RowResult&, const RowResult&) = default;
};

}  // namespace quire
