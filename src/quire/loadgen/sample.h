#pragma once
// Sample: what one request met, as the client saw it. Times are nanoseconds of the client's clock.
//
// Tokens of an answer are taken from the server's `usage`, or, if it sends none, counted as events with text. Gaps lie
// between events with text: several of them that arrive in one read have gaps of 0 between them, as for any reader.

#include <cstdint>
#include <string>
#include <vector>

namespace quire::loadgen {

struct Sample {
  std::uint64_t number = 0;  ///< of the request
  std::int64_t prompt_tokens = 0, wanted_tokens = 0;
  std::int64_t output_tokens = 0;
  std::uint64_t due_ns = 0;    ///< when it should begin: latencies count from here, so that a late client hides nothing
  std::uint64_t sent_ns = 0;   ///< when it did
  std::uint64_t first_ns = 0;  ///< the first event with text; that of the end, if there was none
  std::uint64_t last_ns = 0;   ///< the last event with text
  std::uint64_t end_ns = 0;
  std::vector<std::uint64_t> gaps_ns;
  /// Why it failed: "HTTP 503", "no connection", "timed out", "connection lost", "bad answer", "server error", "cut
  /// off" (the stream ended without an end). Empty: it did not.
  std::string failure;
  std::string failure_message;

  bool completed() const { return failure.empty(); }
};

}  // namespace quire::loadgen
