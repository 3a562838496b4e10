#pragma once
// HttpParser: bytes of a connection to one HTTP/1.x request. Strict where requests are smuggled and where memory or
// time could be had for little: refuses what is ambiguous rather than repairing it.
//
//   400  bad syntax, bare line feeds, folded headers, a missing or doubled Host (HTTP/1.1), Content-Length beside
//        Transfer-Encoding, differing lengths, a long chunk extension
//   413  a body beyond the limit: by Content-Length before any of it is read, chunked as soon as it passes
//   414  a long request line      431  too long a head, or too many headers      417  an Expect other than 100-continue
//   501  a Transfer-Encoding other than exactly "chunked"                        505  a version other than 1.0 and 1.1
//
// Memory: the head and the body as received, nothing sized from what a client announces. One per request, not
// thread-safe.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "quire/server/http_message.h"

namespace quire::server {

struct HttpLimits {
  std::size_t max_url_bytes = 8 << 10;
  std::size_t max_head_bytes = 16 << 10;
  std::size_t max_header_fields = 64;
  std::size_t max_body_bytes = 8 << 20;
  std::size_t max_chunk_extension_bytes = 256;
};

class HttpParser {
 public:
  enum class State { head, body, complete, failed };

  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();

  /// Looks at the connection's unconsumed bytes and returns how many it has consumed; what is left is to be given again
  /// with more behind it. Once complete, the rest belongs to the next request.
  std::size_t parse(std::string_view bytes);

  State state() const { return state_; }
  /// True once, after the head of a request that waits for "100 Continue".
  bool take_continue();
  /// Bytes of body so far.
  std::size_t body_bytes() const;
  /// In state complete.
  HttpRequest take_request();
  /// In state failed: what to answer before closing.
  int error_status() const { return error_status_; }
  const std::string& error_message() const { return error_message_; }

 private:
  struct Beast;
  std::size_t parse_head(std::string_view bytes);
  std::size_t parse_body(std::string_view bytes);
  std::size_t parse_body_window(std::string_view window);
  bool check_head(std::string_view head);
  void fail(int status, std::string message);

  HttpLimits limits_;
  State state_ = State::head;
  std::size_t searched_ = 0;  ///< bytes of the head already looked through for its end
  bool continue_due_ = false;
  int error_status_ = 0;
  std::string error_message_;
  HttpRequest request_;
  std::unique_ptr<Beast> beast_;
};

}  // namespace quire::server
