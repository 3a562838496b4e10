#include "quire/workload/arrivals.h"

#include <algorithm>

#include "quire/workload/numbers.h"
#include "quire/workload/request_spec.h"
#include "quire/workload/sampling.h"

namespace quire {
namespace {

constexpr double kNs = 1e9;
constexpr double kMaxGapSeconds = 9e9;  // so late that the sum is late, too; keeps it within 64 bits of nanoseconds

Error refusal(std::string_view text) {
  return fail("found '", text, "', wanted poisson, gamma:CV, weibull:CV, on-off:ON,OFF (seconds), even or at-once");
}

}  // namespace

ArrivalProcess ArrivalProcess::poisson(double rate) {
  ArrivalProcess out;
  out.mean_gap_s_ = 1.0 / rate;
  return out;
}

Result<ArrivalProcess> ArrivalProcess::parse(std::string_view text, double rate) {
  if (!(rate >= 1e-6 && rate <= 1e9)) return fail("found a rate of ", rate, " requests/s, wanted 0.000001 to 1e9");
  ArrivalProcess out = poisson(rate);
  const std::string_view name = text.substr(0, text.find(':'));
  if (name == text) {
    if (text == "poisson") return out;
    if (text == "even") return out.kind_ = Kind::even, out;
    if (text == "at-once") return out.kind_ = Kind::at_once, out;
    return refusal(text);
  }
  const auto parameters = split(text.substr(name.size() + 1), ',');
  const auto a = parse_number(parameters[0]), b = parse_number(parameters.back());
  if (!a || !b) return refusal(text);
  if (name == "on-off" && parameters.size() == 2 && *a >= 1e-3 && *a <= 1e6 && *b >= 0 && *b <= 1e6) {
    out.kind_ = Kind::on_off;
    out.on_ns_ = static_cast<std::uint64_t>(*a * kNs);
    out.off_ns_ = static_cast<std::uint64_t>(*b * kNs);
    out.mean_gap_s_ *= *a / (*a + *b);
    return out;
  }
  if (parameters.size() != 1 || !(*a >= 0.1 && *a <= 30)) return refusal(text);
  if (name == "gamma") {
    out.kind_ = Kind::gamma;
    out.shape_ = 1.0 / (*a * *a);
    out.scale_ = out.mean_gap_s_ / out.shape_;
    return out;
  }
  if (name != "weibull") return refusal(text);
  out.kind_ = Kind::weibull;
  out.shape_ = weibull_shape_for_cv(*a);
  out.scale_ = out.mean_gap_s_ / gamma_function(1.0 + 1.0 / out.shape_);
  return out;
}

double ArrivalProcess::next_gap_s(Rng& rng) {
  switch (kind_) {
    case Kind::poisson:
    case Kind::on_off:
      return sample_exponential(rng, mean_gap_s_);
    case Kind::gamma:
      return sample_gamma(rng, shape_, scale_);
    case Kind::weibull:
      return sample_weibull(rng, shape_, scale_);
    case Kind::even:
      return mean_gap_s_;
    case Kind::at_once:
      return 0;
  }
  return 0;
}

std::uint64_t ArrivalProcess::next_ns(Rng& rng) {
  const auto gap_ns = static_cast<std::uint64_t>(std::min(next_gap_s(rng), kMaxGapSeconds) * kNs + 0.5);
  if (kind_ != Kind::on_off) return now_ns_ = std::min(now_ns_ + gap_ns, kLateNs);
  busy_ns_ = std::min(busy_ns_ + gap_ns, kLateNs);
  const unsigned __int128 silent_ns = static_cast<unsigned __int128>(busy_ns_ / on_ns_) * off_ns_;
  return now_ns_ = silent_ns < kLateNs - busy_ns_ ? busy_ns_ + static_cast<std::uint64_t>(silent_ns) : kLateNs;
}

}  // namespace quire
