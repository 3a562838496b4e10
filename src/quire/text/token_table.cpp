#include "quire/text/token_table.h"

#include <algorithm>

namespace quire {

LongestMatcher::LongestMatcher(std::vector<Entry> entries) {
  // char_traits compares bytes as unsigned, so strings sort as the narrowing by unsigned bytes needs.
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
  std::erase_if(entries, [](const Entry& entry) { return entry.text.empty(); });
  entries_ = std::move(entries);
  for (const Entry& entry : entries_) ++begin_[static_cast<unsigned char>(entry.text[0]) + std::size_t{1}];
  for (std::size_t byte = 1; byte < begin_.size(); ++byte) begin_[byte] += begin_[byte - 1];
}

void LongestMatcher::narrow(std::uint32_t& low, std::uint32_t& high, std::size_t depth, char byte) const {
  const auto wanted = static_cast<unsigned char>(byte);
  const auto at_depth = [depth](const Entry& entry) { return static_cast<unsigned char>(entry.text[depth]); };
  const auto from = std::partition_point(entries_.begin() + low, entries_.begin() + high,
                                         [&](const Entry& entry) { return at_depth(entry) < wanted; });
  const auto to = std::partition_point(from, entries_.begin() + high,
                                       [&](const Entry& entry) { return at_depth(entry) == wanted; });
  low = static_cast<std::uint32_t>(from - entries_.begin());
  high = static_cast<std::uint32_t>(to - entries_.begin());
}

}  // namespace quire
