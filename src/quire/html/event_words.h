#pragma once
// How the kinds of request events are written. Internal to html.

#include <array>
#include <string_view>

#include "quire/html/events.h"

namespace quire::html {

struct RequestWords {
  std::string_view event;
  bool has_end = false;
  std::string_view tokens;  ///< the field's name; empty: the kind has none
  std::string_view detail;
};

/// In the order of RequestEventKind.
inline constexpr std::array<RequestWords, 7> kRequestWords = {{{"queued", false, "prompt_tokens", ""},
                                                               {"started", false, "cached_tokens", ""},
                                                               {"chunk", true, "tokens", ""},
                                                               {"first_token", false, "", ""},
                                                               {"preempted", false, "", "kind"},
                                                               {"restored", true, "", ""},
                                                               {"finished", false, "output_tokens", "reason"}}};

}  // namespace quire::html
