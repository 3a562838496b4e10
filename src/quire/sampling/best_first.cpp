#include "quire/sampling/best_first.h"

#include <algorithm>
#include <limits>

namespace quire::sampling {
namespace {

constexpr float kFirstBand = 4.0f;  // e^-4: what is below is unlikely to be read
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr std::size_t kSortedFirst = 64;

bool comes_first(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

}  // namespace

BestFirst::BestFirst(std::span<const float> logits, float max, std::vector<Candidate>& buffer)
    : logits_(logits), max_(max), upper_(std::numeric_limits<float>::infinity()), width_(kFirstBand), buffer_(buffer) {
  buffer_.clear();
}

bool BestFirst::gather_next_band() {
  while (upper_ > kLowest) {
    float lower = std::max(max_ - width_, kLowest);
    if (!(lower < upper_)) lower = kLowest;  // the width no longer moves the bound: take all the rest
    buffer_.clear();
    at_ = sorted_ = 0;
    for (std::size_t i = 0; i < logits_.size(); ++i) {
      if (logits_[i] >= lower && logits_[i] < upper_) buffer_.push_back({logits_[i], static_cast<std::int32_t>(i)});
    }
    upper_ = lower;
    width_ *= 2;
    if (!buffer_.empty()) return true;
  }
  return false;
}

void BestFirst::sort_more() {
  const std::size_t count = std::min(std::max(sorted_, kSortedFirst), buffer_.size() - sorted_);
  const auto first = buffer_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  const auto last = first + static_cast<std::ptrdiff_t>(count);
  if (last != buffer_.end()) std::nth_element(first, last, buffer_.end(), comes_first);
  std::sort(first, last, comes_first);
  sorted_ += count;
}

const Candidate* BestFirst::next() {
  if (at_ == buffer_.size() && !gather_next_band()) return nullptr;
  if (at_ == sorted_) sort_more();
  return &buffer_[at_++];
}

}  // namespace quire::sampling
