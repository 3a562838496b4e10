#pragma once
// A request as the deciding half sees it, and its states.
//
//     waiting ----> running ----> finished
//                   |    ^
//                   v    |
//                  preempted       waiting and preempted may also go straight to finished
//
// I8: states move only along these edges (checked, in production too); finished is terminal and holds no memory.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

enum class RequestState : std::uint8_t {
  waiting,    ///< never started
  running,    ///< has a sequence and, after its first step, memory
  preempted,  ///< gave its memory back; its tokens are recomputed when it resumes
  finished,
};
std::string_view to_string(RequestState state);
bool is_legal_edge(RequestState from, RequestState to);

enum class FinishReason : std::uint8_t {
  stop_token,         ///< sampled one of its stop tokens
  length,             ///< max_tokens reached, or what context and pool leave
  cancelled,          ///< by its owner: the client went away
  failed,             ///< the executor could not compute its row
  stopped_by_caller,  ///< ended well from outside: a stop string was found
};
std::string_view to_string(FinishReason reason);

inline constexpr std::int32_t kMaxBranches = 16;
inline constexpr std::int32_t kMaxLengthPenalty = 10;

/// When a beam search may end before max_tokens; see sched/beam_search.h.
enum class EarlyStopping : std::uint8_t {
  when_no_better,  ///< transformers' `false`
  when_full,       ///< `true`
  never,           ///< `"never"`
};

struct BeamParams {
  std::int32_t width = 1;         ///< beams that live at a time; 1 to kMaxBranches
  std::int32_t num_returned = 1;  ///< hypotheses wanted; 1 to width
  double length_penalty = 1;      ///< within +-kMaxLengthPenalty; > 0 favours long hypotheses
  EarlyStopping early_stopping = EarlyStopping::when_no_better;
};

/// What the owner asks for.
struct CoreRequest {
  RequestId id;                            ///< not in use by a live request
  std::vector<TokenId> prompt;             ///< not empty
  std::optional<std::int32_t> max_tokens;  ///< tokens to generate; unset: what context and pool leave. 0: the prompt is
                                           ///< computed for its logits, nothing is sampled, the reason is `length`
  std::vector<TokenId> stop_tokens;        ///< end of generation; reported as the reason, not as a token
  std::int32_t min_tokens = 0;             ///< stop tokens end the request only once it has generated this many
  std::optional<std::int32_t> logits_from;  ///< first position of the prompt whose logits are wanted; unset: the last
  std::int32_t priority = 0;                ///< lower is more urgent; for the policies that look at it (sched/policy.h)
  std::string salt;                         ///< requests of different salts share no cached content; any bytes
  std::int32_t num_branches = 1;            ///< independent continuations of the prompt; 1 to kMaxBranches
  std::optional<BeamParams> beams;          ///< a beam search instead, of at least one token; num_branches is then 1
};

/// Why a request can never run; nothing was changed.
struct Refusal {
  enum class Reason : std::uint8_t {
    bad_request,      ///< a field makes no sense; the message names it
    duplicate_id,     ///< a live request has this id
    exceeds_context,  ///< needed_tokens > limit_tokens, the context of the model
    exceeds_pool,  ///< needed_tokens > limit_tokens, what the whole KV pool holds; or all branches together need more
                   ///< blocks
  };
  Reason reason;
  std::string message;  ///< names the numbers
  std::int64_t prompt_tokens = 0;
  std::int64_t max_tokens = 0;     ///< as asked; 1 where unset, since one token must fit
  std::int64_t needed_tokens = 0;  ///< prompt_tokens + max_tokens, by each branch
  std::int64_t limit_tokens = 0;
};

}  // namespace quire
