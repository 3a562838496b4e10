#include "quire/text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace quire {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  stops_.reserve(stops.size());
  for (std::string& text : stops) {
    Stop stop{std::move(text), {}};
    // The border table of Knuth, Morris and Pratt.
    stop.border.assign(stop.text.size(), 0);
    for (std::size_t i = 1; i < stop.text.size(); ++i) {
      std::uint32_t length = stop.border[i - 1];
      while (length > 0 && stop.text[i] != stop.text[length]) length = stop.border[length - 1];
      stop.border[i] = length + (stop.text[i] == stop.text[length] ? 1 : 0);
    }
    stops_.push_back(std::move(stop));
  }
}

void StopMatcher::advance(Stop& stop, char byte) {
  while (stop.state > 0 && stop.text[stop.state] != byte) stop.state = stop.border[stop.state - 1];
  if (stop.text[stop.state] == byte) ++stop.state;
}

StopMatcher::Output StopMatcher::feed(std::string_view piece) {
  if (matched_) return {{}, matched_};
  std::size_t longest = 0;  // bytes at the end of the text that begin a stop string
  for (std::size_t at = 0; at < piece.size(); ++at) {
    longest = 0;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      if (stop.text.empty()) continue;
      advance(stop, piece[at]);
      const bool complete = stop.state == stop.text.size();
      if (complete && (!matched_ || stop.text.size() > stops_[*matched_].text.size())) matched_ = i;
      longest = std::max<std::size_t>(longest, stop.state);
    }
    if (matched_) {
      held_.append(piece.substr(0, at + 1));
      held_.resize(held_.size() - stops_[*matched_].text.size());
      return {std::exchange(held_, {}), matched_};
    }
  }
  if (piece.empty()) return {};
  held_.append(piece);
  Output output{held_.substr(0, held_.size() - longest), std::nullopt};
  held_.erase(0, held_.size() - longest);
  return output;
}

std::string StopMatcher::finish() { return matched_ ? std::string() : std::exchange(held_, {}); }

}  // namespace quire
