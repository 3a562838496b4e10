#pragma once
// Sampler: draws the tokens of one sequence. The order of operations on a row of logits:
//   logit bias, banned tokens, repetition / presence / frequency penalties, temperature, min-p, top-k, top-p, draw.
// Top-p is taken over what min-p and top-k left. The draw walks the cumulative probabilities in the order (logit
// descending, id ascending) with one random number keyed by (seed, position), so a seed gives the same tokens in any
// batch. Logprobs are those of the model's own distribution, before any of it.
// Thread-safety: one thread at a time. A scratch may serve many samplers, one after another.

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "quire/base/ids.h"
#include "quire/ops/vector_ops.h"
#include "quire/sampling/best_first.h"
#include "quire/sampling/sampling_params.h"

namespace quire::sampling {

struct SamplerScratch {
  std::vector<float> logits;  ///< [vocab_size]
  std::vector<Candidate> candidates;
};

/// Where a token is drawn.
struct DrawAt {
  std::uint64_t position;                 ///< absolute; with the seed it decides the random number
  std::span<const TokenId> banned = {};   ///< never drawn
  std::span<const TokenId> assumed = {};  ///< count for the penalties as if observed: proposals before this position
};

class Sampler {
 public:
  /// The prompt counts for the repetition penalty only.
  Sampler(SamplingParams params, std::span<const TokenId> prompt);

  /// From a row of finite logits.
  TokenId sample(const ops::VectorOps& ops, std::span<const float> logits, const DrawAt& at,
                 SamplerScratch& scratch) const;

  /// Counts a token of the output for the penalties.
  void observe(TokenId token);

 private:
  struct Seen {
    bool in_prompt = false;
    std::int32_t output_count = 0;
  };
  bool changes_logits() const;
  float penalised(float logit, std::int32_t output_count) const;
  void apply_penalties(std::span<float> logits, std::span<const TokenId> assumed) const;
  TokenId draw(const ops::VectorOps& ops, std::span<const float> scaled, std::uint64_t position,
               std::vector<Candidate>& buffer) const;

  SamplingParams params_;
  bool has_penalties_;
  std::unordered_map<TokenId, Seen> seen_;  ///< filled only if there are penalties; order never matters
};

struct RankedLogprob {
  TokenId token;
  float logprob = 0;
};

/// Natural logarithms of a row's softmax.
class RowLogprobs {
 public:
  RowLogprobs(const ops::VectorOps& ops, std::span<const float> logits);
  float of(TokenId token) const;
  /// The n best, by logprob, then id.
  std::vector<RankedLogprob> best(std::int32_t n, std::vector<Candidate>& buffer) const;

 private:
  std::span<const float> logits_;
  float max_;
  double log_sum_exp_;
};

}  // namespace quire::sampling
