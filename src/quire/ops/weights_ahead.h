#pragma once
// WeightsAhead: the weights that a worker reads next, so that memory need not rest while a product ends, at barriers
// and in the phases between products. What is fetched changes no result. One worker's; cheap to copy.

#include <cstddef>

namespace quire::ops {

class WeightsAhead {
 public:
  /// Nothing is known.
  WeightsAhead() = default;
  /// The worker's share begins with [data, data + bytes), which lives as long as this does.
  WeightsAhead(const std::byte* data, std::size_t bytes)
      : begin_(data), next_(data), end_(data + (bytes < kMaxBytes ? bytes : kMaxBytes)) {}

  /// Null if nothing is known.
  const std::byte* begin() const { return begin_; }

  /// Asks for the next few cache lines, for the second-level cache. False if there is nothing left to ask for.
  bool fetch() {
    if (next_ >= end_) return false;
    for (int line = 0; line < kLinesAtOnce; ++line, next_ += 64) {
      constexpr int kRead = 0, kSecondLevel = 2;
      __builtin_prefetch(next_, kRead, kSecondLevel);
    }
    return true;
  }

 private:
  static constexpr std::size_t kMaxBytes = 256 << 10;  ///< leaves most of a second-level cache to others
  static constexpr int kLinesAtOnce = 8;               ///< short enough to see the end of a wait at once

  const std::byte* begin_ = nullptr;
  const std::byte* next_ = nullptr;
  const std::byte* end_ = nullptr;
};

}  // namespace quire::ops
