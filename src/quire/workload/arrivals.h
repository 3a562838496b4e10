#pragma once
// Arrival processes, written as text:
//
//     poisson                 exponential gaps
//     gamma:CV                gamma-distributed gaps with this coefficient of variation; above 1: bursts
//     weibull:CV              the same with a Weibull distribution
//     on-off:ON,OFF           Poisson for ON seconds, silence for OFF seconds, in turn; the rate is the mean over both
//     even                    equal gaps
//     at-once                 all at the start
//
// Time is in integer nanoseconds; a gap is rounded to them.

#include <cstdint>
#include <string_view>

#include "quire/base/result.h"
#include "quire/base/rng.h"

namespace quire {

class ArrivalProcess {
 public:
  /// `rate` is the mean number of requests a second; not used by at-once.
  static Result<ArrivalProcess> parse(std::string_view text, double rate);
  /// Poisson with `rate` > 0 requests a second.
  static ArrivalProcess poisson(double rate);

  /// When the next request comes, since the start; at most kLateNs.
  std::uint64_t next_ns(Rng& rng);

 private:
  enum class Kind { poisson, gamma, weibull, on_off, even, at_once };

  double next_gap_s(Rng& rng);

  Kind kind_ = Kind::poisson;
  double mean_gap_s_ = 1;
  double shape_ = 1, scale_ = 1;
  std::uint64_t on_ns_ = 0, off_ns_ = 0;
  std::uint64_t busy_ns_ = 0;  ///< on-off: time so far without the silences
  std::uint64_t now_ns_ = 0;
};

}  // namespace quire
