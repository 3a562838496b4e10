#pragma once
// HttpServer: an HTTP/1.1 server on one I/O thread, which owns every socket, plus a few worker threads. Handlers run on
// the I/O thread and must not block; longer work goes to offload(), its result comes back by post(). So a health check
// never waits behind a stream or a long prompt.
//
// Invariants:
//  1. A connection carries one request at a time; further bytes wait (pipelining works, in order).
//  2. While a request is served a read is pending, so that a client that closes is noticed at once: the exchange is
//  gone
//     and its callback runs. A client that only shuts down its sending side counts as gone too.
//  3. (I13) Bytes waiting for a streaming client never exceed max_stream_backlog_bytes by more than one send(): a
//  slower
//     reader is disconnected. So is one that takes no byte for write_timeout.
//  4. Each phase has a deadline: the head from the first byte, the body by a minimum rate, an idle connection.
//  5. Over max_connections, or max_body_bytes_in_flight together, newcomers get 503.
//
// Thread-safety: post() and offload() from any thread; the rest from the thread that owns the server.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "quire/base/result.h"
#include "quire/server/http_message.h"
#include "quire/server/http_parser.h"

namespace quire::server {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  ///< an IP address, or "localhost"
  std::uint16_t port = 0;          ///< 0: any free port
  int num_workers = 2;
  HttpLimits limits;
  std::size_t max_connections = 1024;
  std::size_t max_stream_backlog_bytes = 1 << 20;
  std::size_t max_body_bytes_in_flight = 256 << 20;  ///< over all connections
  std::chrono::milliseconds head_timeout{10'000};
  std::chrono::milliseconds body_timeout{10'000};  ///< plus the time of its bytes at min_body_rate
  std::size_t min_body_rate = 16 << 10;            ///< bytes per second
  std::chrono::milliseconds idle_timeout{75'000};  ///< between requests
  std::chrono::milliseconds write_timeout{30'000};
  std::chrono::milliseconds filler_interval{15'000};  ///< of a stream that has nothing to say
  std::chrono::milliseconds linger_timeout{2'000};    ///< for a client to read the answer before a forced close
  std::chrono::milliseconds sweep_interval{250};      ///< how often deadlines are looked at

  /// Builds the answer to a request that never reached the handler.
  std::function<HttpResponse(int status, std::string_view message)> error_response;
};

class HttpServer final : public Tasks {
 public:
  using Handler = std::function<void(HttpRequest, std::shared_ptr<Exchange>)>;

  /// Binds and listens; nothing is accepted before start(). Errors name the address: a taken port, a bad host.
  static Result<std::unique_ptr<HttpServer>> listen(HttpServerOptions options);
  /// Stops.
  ~HttpServer() override;

  void start(Handler handler);
  std::uint16_t port() const;

  void post(std::function<void()> task) override;
  void offload(std::function<void()> task) override;

  /// Until no request is being answered and nothing is left to send, or the time is over; true if so.
  bool wait_quiet(std::chrono::milliseconds timeout);
  std::size_t num_connections() const;
  /// Closes everything and joins all threads. Tasks that have not begun never run.
  void stop();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// "OK" for 200, and so on.
std::string_view reason_phrase(int status);

}  // namespace quire::server
