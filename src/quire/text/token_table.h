#pragma once
// Hash tables of a tokenizer: token text to id, and pair of ids to merge. Open addressing, filled once at load (sized
// for the known number of entries), then read only. Internal to text/.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/hash.h"

namespace quire {

inline std::uint64_t hash_text(std::string_view text) {
  std::uint64_t state = text.size() * 0x9E3779B97F4A7C15ull;
  while (text.size() >= 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data(), 8);
    state = mix64(state ^ word) + 0x9E3779B97F4A7C15ull;
    text.remove_prefix(8);
  }
  std::uint64_t tail = 0;
  std::memcpy(&tail, text.data(), text.size());
  return mix64(state ^ tail);
}

/// Text to a number. Refers to the texts, which must outlive it. Of equal texts the last added counts.
class TextTable {
 public:
  static constexpr std::int32_t kNone = -1;

  TextTable() = default;
  explicit TextTable(std::size_t num_entries) : slots_(std::bit_ceil(num_entries * 2 + 2)) {}

  void add(std::string_view text, std::int32_t id) {
    Slot& slot = slots_[index_of(text)];
    slot = {text.data(), static_cast<std::uint32_t>(text.size()), id};
  }

  std::int32_t find(std::string_view text) const { return slots_.empty() ? kNone : slots_[index_of(text)].id; }

 private:
  struct Slot {
    const char* data = nullptr;
    std::uint32_t size = 0;
    std::int32_t id = kNone;
  };

  /// The slot that holds `text`, or the free one where it would go.
  std::size_t index_of(std::string_view text) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash_text(text) & mask;
    while (slots_[at].id != kNone && std::string_view(slots_[at].data, slots_[at].size) != text) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

struct Merge {
  std::uint32_t rank;   ///< lower merges first
  std::int32_t merged;  ///< the token that results; negative: the pair does not merge
};

/// Pair of token ids to merge. Of equal pairs the last added counts.
class PairTable {
 public:
  PairTable() = default;
  explicit PairTable(std::size_t num_entries) : slots_(std::bit_ceil(num_entries * 2 + 2)) {}

  void add(std::int32_t left, std::int32_t right, Merge merge) {
    const std::uint64_t key = key_of(left, right);
    slots_[index_of(key)] = {key, merge};
  }

  Merge find(std::int32_t left, std::int32_t right) const {
    if (slots_.empty()) return kNoMerge;
    return slots_[index_of(key_of(left, right))].merge;
  }

 private:
  static constexpr std::uint64_t kFree = ~0ull;  // no pair: ids are not negative
  static constexpr Merge kNoMerge{0, -1};
  struct Slot {
    std::uint64_t key = kFree;
    Merge merge = kNoMerge;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t index_of(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = mix64(key) & mask;
    while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

/// Finds the longest of a set of texts at a position: O(length of the match x log(number of texts)).
class LongestMatcher {
 public:
  struct Entry {
    std::string text;
    std::int32_t id;
  };
  struct Match {
    std::size_t length = 0;  ///< 0: none
    std::int32_t id = -1;
  };

  LongestMatcher() = default;
  /// Empty texts are left out; of equal texts the last one that find() may take counts.
  explicit LongestMatcher(std::vector<Entry> entries);

  /// True if no text begins with this byte.
  bool never_begins(char byte) const {
    const auto first = static_cast<unsigned char>(byte);
    return begin_[first] == begin_[first + 1];
  }

  /// The longest text that `text` begins with, among those that accept(length, id) allows.
  template <class Accept>
  Match find(std::string_view text, Accept&& accept) const {
    Match best;
    if (text.empty()) return best;
    const auto first = static_cast<unsigned char>(text[0]);
    std::uint32_t low = begin_[first];
    std::uint32_t high = begin_[first + 1];
    for (std::size_t depth = 1; low < high; ++depth) {
      // entries_[low, high) are those that share text[0, depth); the ones that end here are the first.
      for (; low < high && entries_[low].text.size() == depth; ++low) {
        if (accept(depth, entries_[low].id)) best = {depth, entries_[low].id};
      }
      if (depth == text.size()) break;
      narrow(low, high, depth, text[depth]);
    }
    return best;
  }

 private:
  void narrow(std::uint32_t& low, std::uint32_t& high, std::size_t depth, char byte) const;

  std::vector<Entry> entries_;  // sorted by text, as unsigned bytes
  std::vector<std::uint32_t> begin_ =
      std::vector<std::uint32_t>(257, 0);  // entries that begin with byte b: [begin_[b], begin_[b + 1])
};

}  // namespace quire
