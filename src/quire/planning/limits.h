#pragma once
// Limits on latencies, as an operator states them: "ttft_p95=1s,itl_p99=100ms".
//
//     METRIC_WHICH=TIME, with commas between them; each pair of metric and which at most once
//     metric      ttft        arrival to first token
//                 itl         between two tokens of a request
//                 e2e         arrival to last token
//                 queue       arrival to first step
//                 normalized  e2e over output tokens
//     which       p1 to p99.9 in tenths, mean, max
//     time        a number above 0 with us, ms, s or min; at most 1e6 s

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/sim/simulation.h"

namespace quire::planning {

enum class Metric { ttft, itl, e2e, queue, normalized };

struct Limit {
  static constexpr std::uint32_t kMean = 0;  ///< per_mille of the mean; 1000 is the maximum
  Metric metric = Metric::ttft;
  std::uint32_t per_mille = 950;
  std::uint64_t limit_ns = 0;
  friend bool operator==(const Limit&, const Limit&) = default;
};

/// An error names what was found and what was wanted.
Result<std::vector<Limit>> parse_limits(std::string_view text);

/// "ttft_p95", and with its time "ttft_p95=1s".
std::string name_of(const Limit& limit);
std::string to_string(const Limit& limit);
std::string to_string(const std::vector<Limit>& limits);

const Histogram& times_of(Metric metric, const SimulationResult& result);

/// What the limit is compared with; 0 without values.
std::uint64_t found_ns(const Limit& limit, const SimulationResult& result);

}  // namespace quire::planning
