#pragma once
// HttpClient: many HTTP/1.1 calls to one server at once, and timers, on the calling thread. Each call has a connection
// of its own, which is closed at the end: no call can fail because of an earlier one. Time is a steady clock's.
//
// An interface, so that a load can be driven in a test without sockets and clock. Not thread-safe: all callbacks run
// within run().

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "quire/base/result.h"
#include "quire/loadgen/url.h"

namespace quire::loadgen {

struct HttpCall {
  std::string method = "POST";
  std::string path;  ///< behind the path of the URL
  std::string body;  ///< JSON
};

enum class CallEnd {
  complete,         ///< the whole answer has come
  no_connection,    ///< refused, unreachable, out of sockets
  timed_out,        ///< not complete within the timeout
  connection_lost,  ///< before the answer was complete
  bad_answer,       ///< not HTTP, or too large
};

/// What a call meets, in order: perhaps a status, any number of pieces of the body, an end.
struct CallObserver {
  std::function<void(int status)> on_status;
  std::function<void(std::string_view bytes)> on_body;
  std::function<void(CallEnd end, const std::string& message)> on_end;
};

class HttpClient {
 public:
  virtual ~HttpClient() = default;
  virtual std::uint64_t now_ns() const = 0;
  /// Begins within run(), or when run() is called.
  virtual void call(HttpCall call, CallObserver observer) = 0;
  /// Runs the task at that time, or soon if it is over.
  virtual void at(std::uint64_t time_ns, std::function<void()> task) = 0;
  /// Until every call has ended and every task has run.
  virtual void run() = 0;
};

struct HttpClientOptions {
  std::uint64_t connect_timeout_ms = 10'000;
  std::uint64_t timeout_ms = 600'000;  ///< of a call, with connecting
  std::string api_key;                 ///< sent as a bearer token; empty: none
};

/// Looks the host up. An error names it.
Result<std::unique_ptr<HttpClient>> make_http_client(const Url& url, const HttpClientOptions& options);

}  // namespace quire::loadgen
