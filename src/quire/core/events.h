#pragma once
// What a request's owner is told. Events of one request come in order; RequestFinished is its last one and comes once.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "quire/base/ids.h"
#include "quire/sched/preemption.h"
#include "quire/sched/request.h"

namespace quire {

struct TokenSampled {
  RequestId request;
  TokenId token;
  std::int32_t index;  ///< 0 for the first generated token
  friend bool operator==(const TokenSampled&, const TokenSampled&) = default;
};

struct RequestFinished {
  RequestId request;
  FinishReason reason;
  TokenId stop_token;       ///< for FinishReason::stop_token: which one, not counted in num_tokens; otherwise -1
  std::int32_t num_tokens;  ///< generated tokens, as many as there were TokenSampled events
  friend bool operator==(const RequestFinished&, const RequestFinished&) = default;
};

/// The request gave up its memory and will resume later; what it generated is kept. Nothing to do: for metrics.
struct RequestPreempted {
  RequestId request;
  std::int32_t num_preemptions;  ///< of this request, this one included
  PreemptionKind kind = PreemptionKind::recompute_no_tiers;
  friend bool operator==(const RequestPreempted&, const RequestPreempted&) = default;
};

/// The request's first step is planned; once a request, and before its first token.
struct RequestStarted {
  RequestId request;
  std::int32_t cached_tokens;  ///< of its prompt: found in the prefix cache, not computed
  friend bool operator==(const RequestStarted&, const RequestStarted&) = default;
};

using Event = std::variant<TokenSampled, RequestFinished, RequestPreempted, RequestStarted>;

}  // namespace quire
