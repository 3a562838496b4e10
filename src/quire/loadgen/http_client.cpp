#include "quire/loadgen/http_client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include <chrono>
#include <utility>

namespace quire::loadgen {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

/// Of a whole answer. A stream of 100,000 tokens has some 30 MB.
constexpr std::uint64_t kMaxAnswerBytes = std::uint64_t{1} << 30;

/// What all calls share.
struct Server {
  Url url;
  HttpClientOptions options;
  tcp::resolver::results_type endpoints;
};

CallEnd end_of(const error_code& error) {
  if (error == beast::error::timeout) return CallEnd::timed_out;
  const bool is_http = error.category() == http::make_error_code(http::error::bad_status).category();
  if (is_http && error != http::error::end_of_stream && error != http::error::partial_message) {
    return CallEnd::bad_answer;
  }
  return CallEnd::connection_lost;
}

class Call : public std::enable_shared_from_this<Call> {
 public:
  Call(asio::io_context& io, const Server& server, HttpCall call, CallObserver observer)
      : server_(server), stream_(io), observer_(std::move(observer)) {
    request_.version(11);
    request_.method_string(call.method);
    request_.target(server.url.path + call.path);
    request_.set(http::field::host, server.url.authority());
    request_.set(http::field::user_agent, "quire-bench");
    request_.set(http::field::accept, "text/event-stream, application/json");
    request_.set(http::field::connection, "close");
    if (!server.options.api_key.empty()) request_.set(http::field::authorization, "Bearer " + server.options.api_key);
    if (!call.body.empty()) request_.set(http::field::content_type, "application/json");
    request_.body() = std::move(call.body);
    request_.prepare_payload();
    parser_.body_limit(kMaxAnswerBytes);
    parser_.eager(true);
  }

  void start() {
    deadline_ = Clock::now() + std::chrono::milliseconds(server_.options.timeout_ms);
    stream_.expires_at(
        std::min(deadline_, Clock::now() + std::chrono::milliseconds(server_.options.connect_timeout_ms)));
    stream_.async_connect(server_.endpoints, [self = shared_from_this()](error_code error, const tcp::endpoint&) {
      if (error) return self->end(CallEnd::no_connection, error.message());
      self->write();
    });
  }

 private:
  void write() {
    error_code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    stream_.expires_at(deadline_);
    http::async_write(stream_, request_, [self = shared_from_this()](error_code error, std::size_t) {
      // A server may refuse before it has read everything: its answer says more than the failed write.
      if (error == beast::error::timeout) return self->end(CallEnd::timed_out, error.message());
      self->read_head();
    });
  }

  void read_head() {
    http::async_read_header(stream_, buffer_, parser_, [self = shared_from_this()](error_code error, std::size_t) {
      if (error) return self->end(end_of(error), error.message());
      self->observer_.on_status(static_cast<int>(self->parser_.get().result_int()));
      self->read_on();
    });
  }

  void read_on() {
    take_body();
    if (parser_.is_done()) return end(CallEnd::complete, "");
    http::async_read_some(stream_, buffer_, parser_, [self = shared_from_this()](error_code error, std::size_t) {
      if (error) {
        self->take_body();
        return self->end(end_of(error), error.message());
      }
      self->read_on();
    });
  }

  void take_body() {
    const std::string piece = std::exchange(parser_.get().body(), {});
    if (!piece.empty()) observer_.on_body(piece);
  }

  void end(CallEnd how, const std::string& message) {
    error_code ignored;
    stream_.socket().close(ignored);
    observer_.on_end(how, message);
  }

  const Server& server_;
  beast::tcp_stream stream_;
  CallObserver observer_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  beast::flat_buffer buffer_;
  Clock::time_point deadline_;
};

class AsioClient final : public HttpClient {
 public:
  explicit AsioClient(Server server) : server_(std::move(server)) {}

  std::uint64_t now_ns() const override {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
  }

  void call(HttpCall call, CallObserver observer) override {
    auto started = std::make_shared<Call>(io_, server_, std::move(call), std::move(observer));
    asio::post(io_, [started] { started->start(); });
  }

  void at(std::uint64_t time_ns, std::function<void()> task) override {
    const Clock::time_point when{
        std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(static_cast<std::int64_t>(time_ns)))};
    auto timer = std::make_shared<asio::steady_timer>(io_, when);
    timer->async_wait([timer, task = std::move(task)](error_code) { task(); });
  }

  void run() override {
    io_.restart();
    io_.run();
  }

 private:
  Server server_;
  asio::io_context io_{1};
};

}  // namespace

Result<std::unique_ptr<HttpClient>> make_http_client(const Url& url, const HttpClientOptions& options) {
  asio::io_context io;
  tcp::resolver resolver(io);
  error_code error;
  auto endpoints = resolver.resolve(url.host, cat(url.port), error);
  if (error) return fail("host '", url.host, "' cannot be found: ", error.message());
  return std::unique_ptr<HttpClient>(new AsioClient({url, options, std::move(endpoints)}));
}

}  // namespace quire::loadgen
