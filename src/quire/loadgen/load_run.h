#pragma once
// One run of a load against a server.
//
//   closed loop   so many clients; each sends its next request when the last one has ended. Arrival times of the
//                 workload are not used.
//   open loop     each request is sent at its arrival time, whatever the server has done with those before: so an
//                 overloaded server shows as waiting time instead of slowing down its own load.
//
// The first `num_warmup` requests are sent first, in a closed loop, and not counted; the clock starts when they have
// ended. After the last request that may begin, the run waits for those under way.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/result.h"
#include "quire/loadgen/http_client.h"
#include "quire/loadgen/request_writer.h"
#include "quire/loadgen/sample.h"
#include "quire/workload/request_spec.h"

namespace quire::loadgen {

enum class Loop { closed, open };

struct LoadProgress {
  std::uint64_t num_ended = 0;   ///< counted requests
  std::uint64_t elapsed_ns = 0;  ///< since counting began
};

struct LoadOptions {
  Loop loop = Loop::closed;
  std::uint64_t num_clients = 1;  ///< closed loop, and warm-up
  std::uint64_t num_warmup = 0;
  std::uint64_t num_requests = ~std::uint64_t{0};  ///< counted ones, at most
  std::uint64_t duration_ns = 0;                   ///< no counted one begins later; 0: no limit
  std::function<void(const LoadProgress&)> progress;
};

struct LoadResult {
  std::vector<Sample> samples;  ///< counted requests in the order of their ends
  std::uint64_t begin_ns = 0;   ///< of counting
  std::uint64_t end_ns = 0;     ///< of the last counted request
};

/// The request source and the client are the caller's and outlive the call. `source` ends or a limit must.
LoadResult run_load(HttpClient& client, RequestSource& source, const RequestWriter& writer, const LoadOptions& options);

/// The first model that GET /v1/models lists. An error says what came instead.
Result<std::string> ask_model(HttpClient& client);

}  // namespace quire::loadgen
