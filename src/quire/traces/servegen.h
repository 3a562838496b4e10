#pragma once
// ServeGen's client-wise workloads: for each client a CSV of windows (start in s, requests/s, coefficient of variation,
// Gamma or Weibull, two parameters that are not used here) and a JSON object of length distributions by the hour they
// begin. Clients are sampled independently and merged. A window begins anew; a silent one has rate 0. Input and output
// lengths are drawn independently. A client whose lengths are empty at that time takes those of the next time that has
// some; one that has none at all sends nothing.

#include <span>

#include "quire/traces/bytes.h"
#include "quire/workload/trace.h"

namespace quire {

struct ServeGenOptions {
  std::uint64_t seed = 1;
  std::uint64_t begin_s = 0, end_s = 24 * 3600;  ///< of the day; the trace's time 0 is begin_s
};

/// Members named .../chunk-CLIENT-trace.csv and .../chunk-CLIENT-dataset.json. At most 20 million requests.
Result<Trace> read_servegen(std::string_view file, std::span<const TarMember> members, const ServeGenOptions& options);

}  // namespace quire
