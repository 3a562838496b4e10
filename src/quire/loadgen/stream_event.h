#pragma once
// What one event of a completion stream says, of /v1/completions and /v1/chat/completions alike.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quire/base/result.h"

namespace quire::loadgen {

struct StreamEvent {
  bool has_text = false;                          ///< some choice has text that is not empty: a part of the answer
  bool finished = false;                          ///< some choice has a finish_reason
  bool done = false;                              ///< [DONE]
  std::optional<std::int64_t> completion_tokens;  ///< of `usage`
  std::optional<std::string> error;               ///< the server's message
};

/// Error: the data is neither JSON nor [DONE].
Result<StreamEvent> read_stream_event(std::string_view data);

/// The message of an error body, or the body itself, cut; for people.
std::string error_message(std::string_view body);

}  // namespace quire::loadgen
