#include "quire/sampling/best_first.h"

#include <algorithm>
#include <limits>

namespace quire::sampling {
namespace {

constexpr float kFirstBand = 4.0f;  // e^-4: what is below is unlikely to be read
constexpr float kLowest = std::numeric_limits<float>::lowest();

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
    at_ = 0;
    for (std::size_t i = 0; i < logits_.size(); ++i) {
      if (logits_[i] >= lower && logits_[i] < upper_) buffer_.push_back({logits_[i], static_cast<std::int32_t>(i)});
    }
    upper_ = lower;
    width_ *= 2;
    if (buffer_.empty()) continue;
    std::sort(buffer_.begin(), buffer_.end(), [](const Candidate& a, const Candidate& b) {
      return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    });
    return true;
  }
  return false;
}

const Candidate* BestFirst::next() {
  if (at_ == buffer_.size() && !gather_next_band()) return nullptr;
  return &buffer_[at_++];
}

}  // namespace quire::sampling
