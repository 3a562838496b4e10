#include "quire/sim/histogram.h"

#include <algorithm>
#include <bit>

namespace quire {
namespace {

constexpr int kBits = 10;  ///< of the mantissa
constexpr std::uint64_t kPerOctave = std::uint64_t{1} << kBits;

std::size_t bucket_of(std::uint64_t value) {
  if (value < 2 * kPerOctave) return value;
  const int shift = std::bit_width(value) - 1 - kBits;
  return static_cast<std::size_t>((static_cast<std::uint64_t>(shift) << kBits) + (value >> shift));
}

/// The largest value of the bucket.
std::uint64_t end_of(std::size_t bucket) {
  if (bucket < 2 * kPerOctave) return bucket;
  const int shift = static_cast<int>(bucket >> kBits) - 1;
  const std::uint64_t mantissa = bucket - (static_cast<std::uint64_t>(shift) << kBits);
  return ((mantissa + 1) << shift) - 1;
}

}  // namespace

void Histogram::add(std::uint64_t value, std::uint64_t times) {
  if (times == 0) return;
  const std::size_t bucket = bucket_of(value);
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  buckets_[bucket] += times;
  count_ += times;
  sum_ += static_cast<unsigned __int128>(value) * times;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
}

std::uint64_t Histogram::count_above(std::uint64_t value) const {
  std::uint64_t count = 0;
  for (std::size_t i = bucket_of(value) + 1; i < buckets_.size(); ++i) count += buckets_[i];
  return count;
}

std::uint64_t Histogram::quantile(std::uint32_t per_mille) const {
  if (count_ == 0) return 0;
  const auto product = static_cast<unsigned __int128>(count_) * per_mille;
  const std::uint64_t rank = std::max<std::uint64_t>(1, static_cast<std::uint64_t>((product + 999) / 1000));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::clamp(end_of(i), min_, max_);
  }
  return max_;
}

}  // namespace quire
