#pragma once
// SyntheticSource: so many requests with arrivals from a process and lengths from a sampler. Arrivals and lengths have
// random numbers of their own, so that the same requests come at another rate.

#include <memory>

#include "quire/workload/arrivals.h"
#include "quire/workload/lengths.h"
#include "quire/workload/request_spec.h"

namespace quire {

class SyntheticSource final : public RequestSource {
 public:
  struct Options {
    std::uint64_t num_requests = 0;            ///< at most
    std::uint64_t end_ns = ~std::uint64_t{0};  ///< none arrives later
    std::uint64_t seed = 1;
    std::int32_t shared_prefix_tokens = 0;  ///< put in front of every prompt, the same for all
  };

  /// `lengths` outlives the source.
  SyntheticSource(const Options& options, ArrivalProcess arrivals, const LengthSampler& lengths);

  std::optional<RequestSpec> next() override;
  std::optional<std::uint64_t> num_requests() const override;

 private:
  Options options_;
  ArrivalProcess arrivals_;
  const LengthSampler& lengths_;
  Rng arrival_rng_, length_rng_;
  std::uint64_t num_made_ = 0;
};

}  // namespace quire
