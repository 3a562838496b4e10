#pragma once
// Load: the requests that a plan is made for, without a rate: lengths, and what prompts share. LoadSource plays them at
// any rate, over and over where there are not enough.
//
// By name:
//     chat          first turns of ShareGPT conversations (data/README.md)
//     conversation  Mooncake's chat trace: long prompts, most of which go on from an earlier one
//     code          completions, made up with the moments of the logarithms of Azure's code trace of 2023: prompts
//                   lognormal:7.0,1.36@8-7437, answers lognormal:2.79,0.85@1-1899
//     batch         documents to summarise, made up: prompts lognormal:7.3,0.6@256-6144, answers lognormal:5,0.5@32-512
//     PROMPT/ANSWER two distributions of workload/lengths.h: "uniform:50,500/fixed:100"
//     a path        any file that traces/trace_file.h reads; its times are not used, only their order
// Lengths without an order of their own are shuffled by the seed.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/base/rng.h"
#include "quire/workload/arrivals.h"
#include "quire/workload/request_spec.h"

namespace quire::planning {

struct Load {
  std::string name, description;
  std::vector<RequestSpec> requests;  ///< not empty; arrival_ns is 0
  std::uint64_t num_left_out = 0;     ///< by drop_longer
  std::string default_limits;         ///< for parse_limits
};

Result<Load> open_load(std::string_view name, std::uint64_t seed);

/// Puts so many tokens in front of every prompt, the same for all. For loads without shared prefixes only.
Result<void> add_shared_prefix(Load& load, std::int32_t num_tokens);

/// Leaves out the requests that need more than so many tokens, prompt and answer. An error if none is left.
Result<void> drop_longer(Load& load, std::int64_t num_tokens);

double mean_prompt(const Load& load);
double mean_output(const Load& load);

/// The first num_requests of the load, from its beginning again where they do not suffice: then what prompts share is
/// named anew, so that no prompt goes on from a round before. `load` outlives the source.
class LoadSource final : public RequestSource {
 public:
  LoadSource(const Load& load, std::uint64_t num_requests, ArrivalProcess arrivals, std::uint64_t seed);
  std::optional<RequestSpec> next() override;
  std::optional<std::uint64_t> num_requests() const override { return num_requests_; }
  std::uint64_t last_arrival_ns() const { return last_ns_; }

 private:
  const Load& load_;
  std::uint64_t num_requests_, num_made_ = 0, last_ns_ = 0;
  ArrivalProcess arrivals_;
  Rng rng_;
};

}  // namespace quire::planning
