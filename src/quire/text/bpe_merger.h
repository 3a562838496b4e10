#pragma once
// The merging of byte-pair encoding: of all neighbours that may merge, those of the lowest rank merge first (the
// leftmost of equal ones), until none is left. A heap keeps it O(n log n) in the number of symbols. Internal to text/.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "quire/text/token_table.h"

namespace quire {

struct BpeSymbol {
  std::int32_t token;   ///< negative: no token of the vocabulary; merges with nothing
  std::uint32_t begin;  ///< [begin, end): the bytes of the text that it covers
  std::uint32_t end;
};

/// Reusable scratch memory of merging; one per thread of use.
class BpeMerger {
 public:
  /// Merges `symbols` in place; what is left are the tokens. find(left, right) takes two neighbouring symbols, both of
  /// them tokens, and returns their Merge.
  template <class Find>
  void merge(std::vector<BpeSymbol>& symbols, Find&& find) {
    const std::size_t count = symbols.size();
    if (count < 2) return;
    links_.resize(count);
    heap_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      links_[i] = {static_cast<std::int32_t>(i) - 1, i + 1 < count ? static_cast<std::int32_t>(i) + 1 : kEnd};
    }
    const auto candidate = [&](std::int32_t left, std::int32_t right) -> bool {
      const BpeSymbol& a = symbols[static_cast<std::size_t>(left)];
      const BpeSymbol& b = symbols[static_cast<std::size_t>(right)];
      if (a.token < 0 || b.token < 0) return false;
      const Merge merge = find(a, b);
      if (merge.merged < 0) return false;
      heap_.push_back({std::uint64_t{merge.rank} << 32 | static_cast<std::uint32_t>(left), b.end, merge.merged});
      return true;
    };
    for (std::size_t i = 0; i + 1 < count; ++i) {
      candidate(static_cast<std::int32_t>(i), static_cast<std::int32_t>(i) + 1);
    }
    std::make_heap(heap_.begin(), heap_.end());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Candidate top = heap_.back();
      heap_.pop_back();
      const auto left = static_cast<std::int32_t>(top.key & 0xFFFFFFFF);
      Link& link = links_[static_cast<std::size_t>(left)];
      BpeSymbol& a = symbols[static_cast<std::size_t>(left)];
      // Symbols only grow to the right, or go. So the pair is the one that was meant exactly if its left symbol stands
      // and it ends where it ended then.
      if (a.token == kGone || link.next == kEnd) continue;
      const std::int32_t right = link.next;
      BpeSymbol& b = symbols[static_cast<std::size_t>(right)];
      if (b.end != top.end) continue;
      a.token = top.merged;
      a.end = b.end;
      b.token = kGone;
      link.next = links_[static_cast<std::size_t>(right)].next;
      if (link.next != kEnd) {
        links_[static_cast<std::size_t>(link.next)].previous = left;
        if (candidate(left, link.next)) std::push_heap(heap_.begin(), heap_.end());
      }
      if (link.previous != kEnd && candidate(link.previous, left)) std::push_heap(heap_.begin(), heap_.end());
    }
    std::erase_if(symbols, [](const BpeSymbol& symbol) { return symbol.token == kGone; });
  }

  static constexpr std::int32_t kUnknown = -1;  ///< for BpeSymbol::token

 private:
  static constexpr std::int32_t kEnd = -1;
  static constexpr std::int32_t kGone = -2;
  struct Link {
    std::int32_t previous;
    std::int32_t next;
  };
  struct Candidate {
    std::uint64_t key;  ///< rank, then position: the lowest comes first
    std::uint32_t end;  ///< of the right symbol
    std::int32_t merged;
    friend bool operator<(const Candidate& a, const Candidate& b) { return a.key > b.key; }
  };

  std::vector<Link> links_;
  std::vector<Candidate> heap_;
};

}  // namespace quire
