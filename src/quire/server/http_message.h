#pragma once
// HTTP as the handlers see it: no sockets and no HTTP library. A request is plain data; an Exchange is where its answer
// goes.

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::server {

struct HttpRequest {
  std::string method;  ///< "GET"
  std::string path;    ///< the target up to '?', exactly as sent: nothing is decoded or normalised
  std::string query;   ///< after '?', may be empty
  std::vector<std::pair<std::string, std::string>> headers;  ///< names in lower case, in the order sent
  std::string body;
  bool keep_alive = true;
  bool http_1_0 = false;

  /// The first header of that name (lower case); null if there is none.
  const std::string* header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return &value;
    }
    return nullptr;
  }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;  ///< beside content type, length and connection
  std::string body;
};

/// One request's answer: either respond(), or start_stream(), send() any number of times, end_stream(). Calls after the
/// end, or after the client has gone, do nothing. All methods belong to the I/O thread.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual void respond(HttpResponse response) = 0;

  /// Sends the head; `head.body` is not used. While nothing else is sent for a while, `filler` is (an SSE comment), so
  /// that proxies keep the connection.
  virtual void start_stream(HttpResponse head, std::string filler) = 0;
  virtual void send(std::string_view bytes) = 0;
  virtual void end_stream() = 0;

  /// `callback` runs once, later, if the client vanishes or reads too slowly before the answer has ended. Replaces an
  /// earlier callback; empty: none.
  virtual void on_gone(std::function<void()> callback) = 0;
  virtual bool gone() const = 0;
};

/// Where work runs. Both may be called from any thread.
class Tasks {
 public:
  virtual ~Tasks() = default;
  /// On the I/O thread, in order, soon; never within the call.
  virtual void post(std::function<void()> task) = 0;
  /// On a worker thread: for what takes longer than a moment, such as tokenising.
  virtual void offload(std::function<void()> task) = 0;
};

}  // namespace quire::server
