#pragma once
// StopMatcher: watches the text of one stream for stop strings and holds back what could be the beginning of one.
// Invariants, whatever the split of the text into pieces:
//  1. the emitted strings joined are the text before the stop string, or all of the text (after finish()) if none
//  occurs;
//  2. the stop string that ends first in the text wins; of several that end at the same byte, the longest;
//  3. no byte of the matched stop string, and nothing after it, is emitted;
//  4. no more is held than the longest suffix of the text that begins a stop string, so what cannot be part of one
//     leaves at once;
//  5. if pieces and stop strings are valid UTF-8, so is each emitted string.
// Time: O(bytes x stop strings), O(1) amortised per byte and stop. One per stream; not thread-safe.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class StopMatcher {
 public:
  /// Limits on number and length are the caller's. An empty stop string never matches.
  explicit StopMatcher(std::vector<std::string> stops);

  struct Output {
    std::string text;                    ///< safe to emit
    std::optional<std::size_t> matched;  ///< index of the stop string that ended the text
  };

  /// After a match: no text, and the same match again.
  Output feed(std::string_view piece);

  /// The end of the stream: what was held. Empty after a match.
  std::string finish();

  std::optional<std::size_t> matched() const { return matched_; }

 private:
  struct Stop {
    std::string text;
    std::vector<std::uint32_t> border;  ///< [text.size()] longest proper prefix of text[0..i] that is its suffix too
    std::uint32_t state = 0;            ///< how many bytes of `text` the input's end matches
  };
  static void advance(Stop& stop, char byte);

  std::vector<Stop> stops_;
  std::string held_;
  std::optional<std::size_t> matched_;
};

}  // namespace quire
