#pragma once
// Histogram: counts of unsigned integers (nanoseconds, most of the time) in fixed memory: 1,024 buckets an octave, so
// that a quantile is at most 1/1024 above the exact one; values under 2,048 are exact. All in integers: the same on
// every machine.

#include <cstdint>
#include <vector>

namespace quire {

class Histogram {
 public:
  void add(std::uint64_t value, std::uint64_t times = 1);

  std::uint64_t count() const { return count_; }
  std::uint64_t min() const { return count_ > 0 ? min_ : 0; }
  std::uint64_t max() const { return max_; }
  /// Values that are certainly larger: those of the buckets above the one of `value`.
  std::uint64_t count_above(std::uint64_t value) const;
  /// 0 without values.
  double mean() const { return count_ > 0 ? static_cast<double>(sum_) / static_cast<double>(count_) : 0.0; }

  /// The nearest-rank quantile: the smallest value that at least per_mille / 1000 of the values do not exceed, rounded
  /// up to its bucket's end (never above max()). 0 without values. per_mille in 0..1000.
  std::uint64_t quantile(std::uint32_t per_mille) const;

 private:
  std::vector<std::uint64_t> buckets_;  ///< grows to the largest value's bucket: at most 56 * 1,024
  std::uint64_t count_ = 0;
  std::uint64_t min_ = ~std::uint64_t{0}, max_ = 0;
  unsigned __int128 sum_ = 0;
};

}  // namespace quire
