#include "quire/server/http_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/parser.hpp>

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire::server {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// A body in a string that grows as bytes arrive; Beast's own string body reserves what Content-Length announces.
struct GrowingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool isRequest, class Fields>
    reader(http::header<isRequest, Fields>&, value_type& body) : body_(body) {}
    template <class Length>
    void init(const Length&, error_code& ec) {
      ec = {};
    }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, error_code& ec) {
      ec = {};
      std::size_t total = 0;
      for (auto it = boost::asio::buffer_sequence_begin(buffers); it != boost::asio::buffer_sequence_end(buffers);
           ++it) {
        boost::asio::const_buffer piece = *it;
        body_.append(static_cast<const char*>(piece.data()), piece.size());
        total += piece.size();
      }
      return total;
    }
    void finish(error_code& ec) { ec = {}; }

   private:
    value_type& body_;
  };
};

bool is_host_value(std::string_view host) {
  return host.size() <= 255 && std::all_of(host.begin(), host.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
                  c == '_' || c == ':' || c == '[' || c == ']';
         });
}

}  // namespace

struct HttpParser::Beast {
  explicit Beast(const HttpLimits& limits) : max_extension(limits.max_chunk_extension_bytes) {
    parser.header_limit(static_cast<std::uint32_t>(limits.max_head_bytes));
    parser.body_limit(limits.max_body_bytes);
    parser.on_chunk_header(on_chunk);
  }

  std::size_t max_extension;
  http::request_parser<GrowingBody> parser;
  std::function<void(std::uint64_t, boost::beast::string_view, error_code&)> on_chunk =
      [this](std::uint64_t, boost::beast::string_view extension, error_code& ec) {
        if (extension.size() > max_extension) ec = http::error::bad_chunk_extension;
      };
};

HttpParser::HttpParser(const HttpLimits& limits) : limits_(limits), beast_(std::make_unique<Beast>(limits)) {}
HttpParser::~HttpParser() = default;

void HttpParser::fail(int status, std::string message) {
  state_ = State::failed;
  error_status_ = status;
  error_message_ = std::move(message);
}

bool HttpParser::take_continue() { return std::exchange(continue_due_, false); }

std::size_t HttpParser::body_bytes() const { return state_ == State::head ? 0 : beast_->parser.get().body().size(); }

std::size_t HttpParser::parse(std::string_view bytes) {
  std::size_t consumed = 0;
  if (state_ == State::head) consumed = parse_head(bytes);
  if (state_ == State::body) consumed += parse_body(bytes.substr(consumed));
  return consumed;
}

std::size_t HttpParser::parse_head(std::string_view bytes) {
  // RFC 9112, 2.2: an empty line before the request line is to be ignored.
  std::size_t skipped = 0;
  while (bytes.substr(skipped).starts_with("\r\n")) skipped += 2;
  bytes.remove_prefix(skipped);
  if (skipped > 0) searched_ = 0;

  const std::size_t end = bytes.find("\r\n\r\n", searched_);
  const std::string_view head = bytes.substr(0, end == std::string_view::npos ? end : end + 4);
  for (std::size_t i = searched_; i < head.size(); ++i) {
    if (head[i] == '\n' && (i == 0 || head[i - 1] != '\r'))
      return fail(400, "a line ends without a carriage return"), 0;
  }
  const std::size_t first_line = std::min(head.find('\r'), head.size());
  // Method and version take a few bytes beside the URL.
  if (first_line > limits_.max_url_bytes + 32) {
    fail(414, cat("the request line is longer than ", limits_.max_url_bytes, " bytes"));
    return 0;
  }
  if (head.size() > limits_.max_head_bytes) {
    fail(431, cat("the headers are longer than ", limits_.max_head_bytes, " bytes"));
    return 0;
  }
  if (end == std::string_view::npos) {
    searched_ = bytes.size() < 3 ? 0 : bytes.size() - 3;
    return skipped;
  }
  if (!check_head(head)) return 0;

  error_code ec;
  beast_->parser.put(boost::asio::const_buffer(head.data(), head.size()), ec);
  if (ec == http::error::body_limit) {
    fail(413, cat("the body is larger than ", limits_.max_body_bytes, " bytes"));
    return 0;
  }
  if (ec == http::error::bad_version) return fail(505, "wanted HTTP/1.0 or HTTP/1.1"), 0;
  if (ec || !beast_->parser.is_header_done()) {
    fail(400, cat("bad request head: ", ec ? ec.message() : std::string("incomplete")));
    return 0;
  }
  const auto& message = beast_->parser.get();
  if (message.version() != 10 && message.version() != 11) return fail(505, "wanted HTTP/1.0 or HTTP/1.1"), 0;
  const auto target = message.target();
  if (target.size() > limits_.max_url_bytes) {
    fail(414, cat("the URL has ", target.size(), " bytes, wanted at most ", limits_.max_url_bytes));
    return 0;
  }
  request_.method = std::string(message.method_string());
  const std::size_t question = target.find('?');
  request_.path = std::string(target.substr(0, question));
  if (question != boost::beast::string_view::npos) request_.query = std::string(target.substr(question + 1));
  for (const auto& field : message) {
    request_.headers.emplace_back(lower(std::string_view(field.name_string().data(), field.name_string().size())),
                                  std::string(field.value()));
  }
  request_.http_1_0 = message.version() == 10;
  request_.keep_alive = message.keep_alive();
  beast_->parser.eager(true);
  state_ = beast_->parser.is_done() ? State::complete : State::body;
  if (state_ == State::complete) continue_due_ = false;
  return skipped + head.size();
}

bool HttpParser::check_head(std::string_view head) {
  std::size_t fields = 0, hosts = 0, encodings = 0;
  bool is_1_0 = false, first = true;
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(line.size() + 2);
    if (line.empty()) break;
    if (std::exchange(first, false)) {
      is_1_0 = line.ends_with("HTTP/1.0");
      continue;
    }
    if (line.front() == ' ' || line.front() == '\t') return fail(400, "a header is folded over two lines"), false;
    if (++fields > limits_.max_header_fields) {
      return fail(431, cat("more than ", limits_.max_header_fields, " headers")), false;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return fail(400, "a header has no colon"), false;
    const std::string name = lower(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (name == "host") {
      if (++hosts > 1) return fail(400, "more than one Host header"), false;
      if (!is_host_value(value)) return fail(400, "the Host header is not a host name"), false;
    } else if (name == "transfer-encoding") {
      if (++encodings > 1) return fail(400, "more than one Transfer-Encoding header"), false;
      if (lower(value) != "chunked") return fail(501, "Transfer-Encoding: wanted exactly 'chunked'"), false;
      if (is_1_0) return fail(400, "Transfer-Encoding in an HTTP/1.0 request"), false;
    } else if (name == "expect") {
      if (lower(value) != "100-continue") return fail(417, "Expect: wanted '100-continue'"), false;
      continue_due_ = !is_1_0;
    }
  }
  if (hosts == 0 && !is_1_0) return fail(400, "the Host header is missing"), false;
  return true;
}

/// Beast gets a window of at most max_head_bytes at a time. Where it cannot move on with a full one, a chunk header or
/// the trailer is too long; and that does not depend on the pieces in which the bytes came.
std::size_t HttpParser::parse_body(std::string_view bytes) {
  std::size_t consumed = 0;
  while (state_ == State::body) {
    const std::string_view window = bytes.substr(consumed, limits_.max_head_bytes);
    const std::size_t advance = parse_body_window(window);
    consumed += advance;
    if (advance == 0 && state_ == State::body) {
      if (window.size() == limits_.max_head_bytes) fail(431, "the trailer is too long");
      break;
    }
  }
  return consumed;
}

std::size_t HttpParser::parse_body_window(std::string_view bytes) {
  if (bytes.empty()) return 0;
  // Beast 1.81 asserts when the last chunk of an empty body comes byte by byte. What is left of a chunked body always
  // has at least the five bytes "0\r\n\r\n", so waiting for as many never waits in vain.
  if (beast_->parser.chunked() && bytes.size() < 5) return 0;
  continue_due_ = false;  // the client has not waited for it
  error_code ec;
  const std::size_t consumed = beast_->parser.put(boost::asio::const_buffer(bytes.data(), bytes.size()), ec);
  if (ec == http::error::need_more) ec = {};
  if (ec == http::error::body_limit) {
    fail(413, cat("the body is larger than ", limits_.max_body_bytes, " bytes"));
  } else if (ec) {
    fail(400, cat("bad body: ", ec.message()));
  } else if (beast_->parser.is_done()) {
    state_ = State::complete;
  } else if (bytes.size() - consumed > limits_.max_chunk_extension_bytes + 64 &&
             bytes.substr(consumed, limits_.max_chunk_extension_bytes + 64).find("\r\n", 2) == std::string_view::npos) {
    fail(400, "a chunk header is too long");  // unfinished, and already longer than any that is taken
  }
  return consumed;
}

HttpRequest HttpParser::take_request() {
  QUIRE_CHECK(state_ == State::complete);
  request_.body = std::move(beast_->parser.get().body());
  return std::move(request_);
}

}  // namespace quire::server
