#pragma once
// What goes into the engine and what comes out: plain data.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/ids.h"
#include "quire/sampling/sampling_params.h"
#include "quire/sched/request.h"

namespace quire::engine {

/// Logprobs of the prompt's own tokens, teacher-forced: one ScoreRow for each position from `from` to the last.
struct PromptScoring {
  std::int32_t from = 0;  ///< first position whose distribution is wanted; in [0, prompt size)
  std::int32_t top = 0;   ///< how many of the best tokens each row lists; at most the vocabulary
};

struct GenerateRequest {
  std::vector<TokenId> prompt;             ///< not empty; BOS included where it is wanted; ids in the vocabulary
  std::optional<std::int32_t> max_tokens;  ///< unset: what context and pool leave; 0: compute the prompt only
  std::int32_t min_tokens = 0;             ///< end tokens and stop strings count only from this many output tokens on
  std::vector<std::string> stop;           ///< text that ends the answer and is not part of it; none empty
  std::vector<TokenId> stop_tokens;        ///< beside the model's end tokens
  bool ignore_eos = false;                 ///< the model's end tokens are tokens like any other
  sampling::SamplingParams sampling;
  /// nullopt: no logprobs. Else the logprob of each output token and the best `n` alternatives (0: none; at most the
  /// vocabulary).
  std::optional<std::int32_t> top_logprobs;
  std::optional<PromptScoring> scoring;
  /// Answers to the one prompt, each with deltas of its own (Delta::branch); 1 to kMaxBranches. Branch k is what a
  /// request with the seed sampling::branch_seed(sampling.seed, k) gets, bit for bit.
  std::int32_t num_branches = 1;
  /// A beam search (sched/beam_search.h): its best hypotheses are the branches, each with all of its tokens in its only
  /// delta. Nothing is drawn: sampling must change no logits, and there are no logprobs of tokens. num_branches is 1.
  std::optional<BeamParams> beams;
  std::int32_t priority = 0;  ///< lower is more urgent; only the policies named after it look at it
  std::string cache_salt;     ///< requests of different salts never share cached prefixes; any bytes
};

struct TokenLogprob {
  TokenId token;
  float logprob = 0;  ///< natural logarithm, of the model's own distribution before penalties and temperature
};

/// One output token.
struct OutputToken {
  TokenId token;
  float logprob = 0;              ///< set if logprobs were asked for
  std::vector<TokenLogprob> top;  ///< by logprob, then id
};

struct ScoreRow {
  std::int32_t position = 0;          ///< the row is the distribution after prompt[0..position]
  std::optional<float> next_logprob;  ///< of prompt[position + 1]; nullopt at the end
  std::vector<TokenLogprob> top;      ///< by logprob, then id
};

enum class FinishReason {
  stop,       ///< an end token or a stop string
  length,     ///< max_tokens, or the end of the context
  cancelled,  ///< by the client, or at shutdown
  timed_out,  ///< waited longer in the queue than the engine allows; nothing was computed
  failed,     ///< the model gave a value that is not finite; the message says so
};

struct Finish {
  FinishReason reason = FinishReason::stop;
  std::optional<TokenId> stop_token;       ///< the user's stop token that matched
  std::optional<std::string> stop_string;  ///< the stop string that matched
  std::string message;                     ///< for `failed` and `cancelled`
  std::optional<double> score;             ///< of a beam: sum of logprobs / length ** length_penalty
};

/// Of one branch; prompt and cached tokens are the request's, the same for all its branches.
struct Usage {
  std::int32_t prompt_tokens = 0;
  std::int32_t completion_tokens = 0;  ///< tokens that are part of the answer, an end token not counted
  std::int32_t cached_tokens = 0;      ///< prompt tokens whose KV was found, not computed
};

struct Timings {
  std::uint64_t queue_ns = 0;    ///< from submit to the first step
  std::uint64_t prefill_ns = 0;  ///< from the first step to the first token
  std::uint64_t decode_ns = 0;   ///< from the first token to the end
};

/// A piece of an answer. The last one of a branch carries `finish`, and is the only one that does.
struct Delta {
  RequestId request;
  std::int32_t branch = 0;
  std::string text;  ///< valid UTF-8; may be empty
  std::vector<OutputToken>
      tokens;  ///< sampled since the last delta; text may lag behind while characters or stop strings are open
  std::vector<ScoreRow> scores;  ///< rising positions, over all deltas of branch 0; the others have none
  std::optional<Finish> finish;
  bool ends_request = false;  ///< with the last branch's `finish`: nothing more comes
  Usage usage;                ///< so far
  Timings timings;            ///< with `finish`
};

}  // namespace quire::engine
