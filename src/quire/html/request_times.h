#pragma once
// The events of each request, brought together: its phases and its latencies. Internal to html.

#include <optional>
#include <vector>

#include "quire/html/events.h"

namespace quire::html {

/// One request's events, in order of time.
struct RequestHistory {
  RequestId request;
  std::vector<const RequestEvent*> events;

  /// What it did until it finished, or until `end_ns`. Of a prefill only its chunks are shown, if it has any.
  std::vector<PhaseSpan> phases(std::uint64_t end_ns) const;
};

/// In order of their first events; they point into `run`.
std::vector<RequestHistory> request_histories(const RunEvents& run);

/// Seconds.
struct LatencySamples {
  std::vector<double> first_token;     ///< from queued on; of requests with a first token
  std::vector<double> end_to_end;      ///< of finished ones
  std::vector<double> between_tokens;  ///< the mean of each finished one of more than one token
};
LatencySamples latencies(const std::vector<RequestHistory>& histories);

}  // namespace quire::html
