#pragma once
// Lengths of prompts and answers, in tokens, from a distribution that is written as text:
//
//     fixed:N                 always N
//     uniform:LOW,HIGH        each length from LOW to HIGH equally often
//     exponential:MEAN        1 + an exponential of mean MEAN
//     lognormal:MU,SIGMA      e^(MU + SIGMA N(0, 1))
//     pareto:LOW,ALPHA        LOW / U^(1/ALPHA)
//
// followed by "@LOW-HIGH", if wanted: what lies outside is drawn again, as filters of data sets do. Values are cut to
// whole tokens, and less than 1 is 1. Without "@", a length lies in 1 to kMaxLength all the same. A filter that hardly
// any length passes is refused.

#include <cstdint>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/base/rng.h"

namespace quire {

class LengthDistribution {
 public:
  enum class Kind { fixed, uniform, exponential, lognormal, pareto };

  /// An error names what was found and what was wanted.
  static Result<LengthDistribution> parse(std::string_view text);

  std::int32_t sample(Rng& rng) const;

 private:
  Kind kind_ = Kind::fixed;
  double a_ = 1, b_ = 0;
  std::int64_t low_ = 1, high_ = 0;  ///< drawn again outside of these; high_ 0: no filter

  std::int64_t draw(Rng& rng) const;
  bool keeps(std::int64_t length) const { return high_ == 0 || (length >= low_ && length <= high_); }
};

/// Both lengths of a request. Where they hang together (pairs of a data set, a filter on their sum) this is the place.
struct LengthPair {
  std::int32_t prompt_tokens, output_tokens;
  friend bool operator==(const LengthPair&, const LengthPair&) = default;
};

class LengthSampler {
 public:
  virtual ~LengthSampler() = default;
  virtual LengthPair sample(Rng& rng) const = 0;
};

/// Both independent; pairs with a sum above max_total are drawn again (0: no limit). Whether enough pairs are left is
/// for check() to say.
class IndependentLengths final : public LengthSampler {
 public:
  IndependentLengths(LengthDistribution prompt, LengthDistribution output, std::int64_t max_total = 0)
      : prompt_(prompt), output_(output), max_total_(max_total) {}
  LengthPair sample(Rng& rng) const override;
  /// An error if hardly any pair keeps to max_total.
  Result<void> check() const;

 private:
  LengthPair draw(Rng& rng) const;
  bool keeps(const LengthPair& pair) const {
    return max_total_ == 0 || std::int64_t{pair.prompt_tokens} + pair.output_tokens <= max_total_;
  }

  LengthDistribution prompt_, output_;
  std::int64_t max_total_;
};

/// Pairs of a data set, each equally often. Not empty.
class EmpiricalLengths final : public LengthSampler {
 public:
  explicit EmpiricalLengths(std::vector<LengthPair> pairs) : pairs_(std::move(pairs)) {}
  LengthPair sample(Rng& rng) const override {
    return pairs_[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(pairs_.size()) - 1))];
  }

 private:
  std::vector<LengthPair> pairs_;
};

}  // namespace quire
