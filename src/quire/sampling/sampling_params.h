#pragma once
// SamplingParams: how the next token is drawn from a row of logits. Plain data, validated by whoever reads it from
// outside.

#include <cstdint>
#include <vector>

#include "quire/base/ids.h"

namespace quire::sampling {

struct LogitBias {
  TokenId token;
  float bias = 0;  ///< added to the logit before anything else; finite
};

/// The seed of branch k of a request with this seed, modulo 2^63.
constexpr std::uint64_t branch_seed(std::uint64_t seed, std::uint64_t branch) { return (seed + branch) & INT64_MAX; }

struct SamplingParams {
  double temperature = 1.0;  ///< 0: greedy. Finite, >= 0
  std::int32_t top_k = 0;    ///< keep the k best; 0: all. Larger than the vocabulary: all
  double top_p = 1.0;        ///< keep the smallest set of best tokens whose probability reaches this; (0, 1]
  double min_p = 0.0;        ///< drop tokens less probable than this share of the best one; [0, 1]
  double repetition_penalty =
      1.0;  ///< > 0; divides positive and multiplies negative logits of tokens in prompt or output
  double presence_penalty = 0.0;   ///< subtracted once for a token that is in the output
  double frequency_penalty = 0.0;  ///< subtracted for each time a token is in the output
  std::vector<LogitBias> logit_bias;
  std::uint64_t seed = 0;  ///< with the absolute position it decides every random number
};

}  // namespace quire::sampling
