#pragma once
// BestFirst: the entries of a row of logits in the order of rule 15 of the arithmetic, logit descending, then id
// ascending, without sorting the whole vocabulary. Entries are gathered band by band below the maximum, and of a band
// twice as many are sorted each time, so that a reader who stops early pays for few. Entries of -infinity are left out.
// The row has no NaN.
// One reader; refers to the row and the buffer, which outlive it.

#include <cstdint>
#include <span>
#include <vector>

namespace quire::sampling {

struct Candidate {
  float logit = 0;
  std::int32_t id = 0;
};

class BestFirst {
 public:
  BestFirst(std::span<const float> logits, float max, std::vector<Candidate>& buffer);

  /// The next best entry, or null at the end.
  const Candidate* next();

 private:
  bool gather_next_band();
  void sort_more();

  std::span<const float> logits_;
  float max_;
  float upper_;  ///< all entries >= upper_ have been gathered
  float width_;
  std::vector<Candidate>& buffer_;
  std::size_t at_ = 0, sorted_ = 0;  ///< of the band: read; in their final order
};

}  // namespace quire::sampling
