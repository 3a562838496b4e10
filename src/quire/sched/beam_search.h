#pragma once
// BeamSearch: which beams live, which hypotheses are finished, and when the search is over. Tokens and scores only; the
// memory of the beams is the scheduler's.
//
// The rules are those of Hugging Face transformers' beam search. In each step all continuations of all live beams are
// ranked by the sum of their logprobs. A stop token among the best `width` finishes its hypothesis, with the score
//     sum of logprobs / length ** length_penalty       (length: generated tokens, the stop token included)
// and one that ranks lower is dropped; the best `width` others live on. With max_tokens reached the best `width`
// finish, whatever their token. The best `width` finished ones are kept, and the search is over when there are so many
// and
//     early_stopping when_full       at once
//     early_stopping when_no_better  the best live beam, scored at its present length, is no better than the worst kept
//     early_stopping never           likewise, but scored at max_tokens if length_penalty > 0: what it might become
// or when no beam lives. Stop strings are seen from outside: finish() makes a live beam a hypothesis between steps; its
// place is filled again in the next step.
//
// Ties: by sum (or score), then by the parent's rank, then by token id; an earlier hypothesis before a later one. Sums
// are f64 sums of f32 logprobs, powers come from base/elementary.h: the same on every machine.
//
// Each live beam must offer its best width + (number of stop tokens) continuations: more can neither live nor finish.
// Candidates carry no history: a hypothesis' tokens are copied once, when it is kept.
//
// Thread-safety: none.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/ids.h"
#include "quire/sched/request.h"
#include "quire/sched/row_result.h"

namespace quire {

/// A live beam and what it offers.
struct LiveBeam {
  std::span<const TokenId> generated;
  double sum = 0;                         ///< of the logprobs of `generated`
  std::span<const Candidate> candidates;  ///< best first
};

/// A beam of the next step.
struct BeamChild {
  std::int32_t parent;  ///< index of a live beam
  TokenId token;
  double sum;
  friend bool operator==(const BeamChild&, const BeamChild&) = default;
};

struct Hypothesis {
  std::vector<TokenId> tokens;  ///< without the stop token
  double score;
  FinishReason reason;
  TokenId stop_token{-1};
};

class BeamSearch {
 public:
  /// What a request says about its end; max_tokens >= 1.
  struct Limits {
    std::int32_t max_tokens;
    std::int32_t min_tokens;           ///< a stop token before so many is a token like any other
    std::vector<TokenId> stop_tokens;  ///< sorted, each once
  };

  /// find_fault(params) has found none.
  BeamSearch(const BeamParams& params, Limits limits) : params_(params), limits_(std::move(limits)) {}

  /// One step from the live beams, best first, all of one length. The next beams, best first, at most `width`; empty
  /// if the search is over.
  std::vector<BeamChild> advance(std::span<const LiveBeam> beams);

  /// A live beam ends between steps. Afterwards ask is_over() with those that are left.
  void finish(const LiveBeam& beam, FinishReason reason);

  /// `best_sum` of the live beams, all of which have generated `length` tokens; nullopt: none lives.
  bool is_over(std::optional<double> best_sum, std::int32_t length) const;

  /// Continuations that a live beam must offer.
  std::int32_t num_candidates() const { return params_.width + static_cast<std::int32_t>(limits_.stop_tokens.size()); }
  const BeamParams& params() const { return params_; }

  /// The kept hypotheses, best first.
  const std::vector<Hypothesis>& finished() const { return finished_; }

 private:
  bool is_stop_token(TokenId token) const;
  double score(double sum, std::int32_t length) const;
  void keep(std::span<const TokenId> generated, std::optional<TokenId> last, double score, FinishReason reason,
            TokenId stop_token);

  const BeamParams params_;
  const Limits limits_;
  std::vector<Hypothesis> finished_;  ///< by score
};

/// What is wrong with the parameters, by name and with what was wanted.
std::optional<std::string> find_fault(const BeamParams& params);

}  // namespace quire
