#include "quire/server/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/server/work_queue.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

// What a client may send ahead of its answer; then reading pauses.
constexpr std::size_t kMaxPipelinedBytes = 64 << 10;
// What is read and thrown away after an early refusal, so that the client sees the answer rather than a reset.
constexpr std::size_t kMaxLingerBytes = 16 << 20;

std::string hex(std::size_t number) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  do {
    out.insert(out.begin(), kDigits[number % 16]);
    number /= 16;
  } while (number > 0);
  return out;
}

struct Shared;
class Connection;

/// The handler's side of one request. Outlives the connection if the handler keeps it; then every call is void.
class ConnectionExchange final : public Exchange {
 public:
  explicit ConnectionExchange(std::weak_ptr<Connection> connection) : connection_(std::move(connection)) {}

  void respond(HttpResponse response) override;
  void start_stream(HttpResponse head, std::string filler) override;
  void send(std::string_view bytes) override;
  void end_stream() override;
  void on_gone(std::function<void()> callback) override { on_gone_ = std::move(callback); }
  bool gone() const override { return gone_; }

  /// The connection is lost: later calls do nothing.
  void lose(asio::io_context& io) {
    if (std::exchange(gone_, true) || ended_ || !on_gone_) return;
    asio::post(io, std::exchange(on_gone_, {}));
  }
  bool ended() const { return ended_; }

 private:
  std::shared_ptr<Connection> live() const { return gone_ || ended_ ? nullptr : connection_.lock(); }

  std::weak_ptr<Connection> connection_;
  std::function<void()> on_gone_;
  bool gone_ = false, ended_ = false, streaming_ = false;
};

/// What all connections share; the I/O thread's, except for what says otherwise.
struct Shared {
  explicit Shared(HttpServerOptions o) : options(std::move(o)) {}

  HttpServerOptions options;
  HttpServer::Handler handler;
  asio::io_context io{1};
  std::unordered_set<std::shared_ptr<Connection>> connections;  ///< shared with the operations in flight
  std::size_t body_bytes = 0;
  std::atomic<std::size_t> num_connections{0};  ///< any thread

  std::mutex quiet_mutex;  ///< any thread, over the two below
  std::condition_variable quiet;
  std::size_t num_busy = 0;

  void set_busy(bool busy) {
    std::lock_guard lock(quiet_mutex);
    busy ? ++num_busy : --num_busy;
    if (num_busy == 0) quiet.notify_all();
  }
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Shared& shared, tcp::socket socket) : shared_(shared), socket_(std::move(socket)) {}

  void start() {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    next_request();
  }

  void refuse_at_once(int status, std::string_view message) {
    begin_request();
    fail_request(status, message);
  }

  void close() {
    if (closed_) return;
    closed_ = true;
    error_code ignored;
    socket_.close(ignored);
    release_body();
    if (exchange_) exchange_->lose(shared_.io);
    exchange_.reset();
    set_busy(false);
    shared_.connections.erase(shared_from_this());
    shared_.num_connections = shared_.connections.size();
  }

  void check_deadline(Clock::time_point now) {
    if (closed_) return;
    if (!writing_.empty() && now > write_deadline_) return close();
    if (exchange_) {
      if (!filler_.empty() && now > filler_at_) send_stream(filler_);
      return;
    }
    if (phase_ == Phase::answer || now <= deadline_) return;
    // A started request is told; an idle or lingering connection just ends.
    if (phase_ == Phase::request && started_) return fail_request(408, "the request took too long to arrive");
    close();
  }

  // From the exchange.
  void respond(const HttpResponse& response, bool head_only_allowed) {
    write_head(response, cat("Content-Length: ", response.body.size(), "\r\n"));
    if (!(head_only_allowed && is_head_)) pending_ += response.body;
    finish_response();
  }

  void start_stream(const HttpResponse& head, std::string filler) {
    chunked_ = !http_1_0_;
    if (!chunked_) keep_alive_ = false;
    streaming_ = true;
    write_head(head, chunked_ ? "Transfer-Encoding: chunked\r\n" : "");
    filler_ = std::move(filler);
    filler_at_ = Clock::now() + shared_.options.filler_interval;
    flush();
  }

  void send_stream(std::string_view bytes) {
    if (bytes.empty()) return;
    if (pending_.size() + writing_.size() - written_ > shared_.options.max_stream_backlog_bytes) return close();
    if (chunked_) pending_.append(hex(bytes.size())).append("\r\n");
    pending_ += bytes;
    if (chunked_) pending_ += "\r\n";
    filler_at_ = Clock::now() + shared_.options.filler_interval;
    flush();
  }

  void end_stream() {
    if (chunked_) pending_ += "0\r\n\r\n";
    finish_response();
  }

  Shared& shared() { return shared_; }

 private:
  enum class Phase { request, answer, linger };

  void begin_request() {
    parser_ = std::make_unique<HttpParser>(shared_.options.limits);
    phase_ = Phase::request;
    started_ = false;
    keep_alive_ = true;
    http_1_0_ = is_head_ = chunked_ = streaming_ = false;
    filler_.clear();
    deadline_ = Clock::now() + shared_.options.idle_timeout;
  }

  void next_request() {
    begin_request();
    if (first_request_) deadline_ = Clock::now() + shared_.options.head_timeout;
    first_request_ = false;
    process();
    read();
  }

  void read() {
    if (closed_ || reading_) return;
    if (phase_ == Phase::answer && in_.size() >= kMaxPipelinedBytes) return;
    reading_ = true;
    socket_.async_read_some(asio::buffer(chunk_), [self = shared_from_this()](error_code ec, std::size_t size) {
      self->reading_ = false;
      self->on_read(ec, size);
    });
  }

  void on_read(error_code ec, std::size_t size) {
    if (closed_) return;
    if (ec) return close();
    if (phase_ == Phase::linger) {
      lingered_ += size;
      if (lingered_ > kMaxLingerBytes) return close();
      return read();
    }
    in_.append(chunk_.data(), size);
    if (phase_ == Phase::request) process();
    read();
  }

  /// Gives the parser what has come.
  void process() {
    if (closed_ || phase_ != Phase::request || in_.empty()) return;
    if (!started_) {
      started_ = true;
      deadline_ = Clock::now() + shared_.options.head_timeout;
    }
    const bool in_head = parser_->state() == HttpParser::State::head;
    in_.erase(0, parser_->parse(in_));
    switch (parser_->state()) {
      case HttpParser::State::head:
        return;
      case HttpParser::State::body:
        return on_body_part(in_head);
      case HttpParser::State::complete:
        return dispatch();
      case HttpParser::State::failed:
        return fail_request(parser_->error_status(), parser_->error_message());
    }
  }

  void on_body_part(bool head_is_new) {
    if (head_is_new) body_start_ = Clock::now();
    shared_.body_bytes += parser_->body_bytes() - counted_body_;
    counted_body_ = parser_->body_bytes();
    if (shared_.body_bytes > shared_.options.max_body_bytes_in_flight) {
      return fail_request(503, "the server holds as many request bodies as it may; try again");
    }
    deadline_ = body_start_ + shared_.options.body_timeout +
                std::chrono::milliseconds(counted_body_ * 1000 / shared_.options.min_body_rate);
    if (parser_->take_continue()) {
      pending_ += "HTTP/1.1 100 Continue\r\n\r\n";
      flush();
    }
  }

  void release_body() {
    shared_.body_bytes -= counted_body_;
    counted_body_ = 0;
  }

  void dispatch() {
    HttpRequest request = parser_->take_request();
    phase_ = Phase::answer;
    keep_alive_ = request.keep_alive;
    http_1_0_ = request.http_1_0;
    is_head_ = request.method == "HEAD";
    set_busy(true);
    exchange_ = std::make_shared<ConnectionExchange>(weak_from_this());
    shared_.handler(std::move(request), exchange_);
  }

  /// Answers for the handler and closes: what follows on this connection cannot be trusted.
  void fail_request(int status, std::string_view message) {
    set_busy(true);
    keep_alive_ = false;
    phase_ = Phase::answer;
    respond(shared_.options.error_response(status, message), false);
  }

  void write_head(const HttpResponse& response, std::string_view framing) {
    pending_ += cat(http_1_0_ ? "HTTP/1.0 " : "HTTP/1.1 ", response.status, " ", reason_phrase(response.status),
                    "\r\nServer: quire\r\nContent-Type: ", response.content_type, "\r\n");
    for (const auto& [name, value] : response.headers) pending_ += cat(name, ": ", value, "\r\n");
    pending_ += framing;
    pending_ += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  }

  void finish_response() {
    exchange_.reset();
    release_body();
    finishing_ = true;
    flush();
  }

  void flush() {
    if (closed_ || !writing_.empty()) return;
    if (pending_.empty()) return on_flushed();
    writing_.swap(pending_);
    written_ = 0;
    write();
  }

  void write() {
    write_deadline_ = Clock::now() + shared_.options.write_timeout;
    socket_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                             [self = shared_from_this()](error_code ec, std::size_t size) {
                               if (self->closed_) return;
                               if (ec) return self->close();
                               self->written_ += size;
                               if (self->written_ < self->writing_.size()) return self->write();
                               self->writing_.clear();
                               self->written_ = 0;
                               self->flush();
                             });
  }

  void on_flushed() {
    if (!std::exchange(finishing_, false)) return;
    if (!keep_alive_) return linger();
    set_busy(false);
    // Not from within the caller: a pipelined request would recurse.
    asio::post(shared_.io, [self = shared_from_this()] {
      if (!self->closed_) self->next_request();
    });
  }

  void linger() {
    set_busy(false);
    phase_ = Phase::linger;
    deadline_ = Clock::now() + shared_.options.linger_timeout;
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    read();
  }

  void set_busy(bool busy) {
    if (std::exchange(busy_, busy) != busy) shared_.set_busy(busy);
  }

  Shared& shared_;
  tcp::socket socket_;
  std::array<char, 16 << 10> chunk_;
  std::string in_;  ///< received, not yet consumed
  std::unique_ptr<HttpParser> parser_;
  std::shared_ptr<ConnectionExchange> exchange_;  ///< shared with the handler, which may answer later
  std::string pending_, writing_;                 ///< to send next; being sent
  std::size_t written_ = 0;                       ///< bytes of writing_ that are out
  std::string filler_;
  Phase phase_ = Phase::request;
  bool first_request_ = true, started_ = false, reading_ = false, closed_ = false, busy_ = false, finishing_ = false;
  bool keep_alive_ = true, http_1_0_ = false, is_head_ = false, chunked_ = false, streaming_ = false;
  std::size_t counted_body_ = 0, lingered_ = 0;
  Clock::time_point deadline_, body_start_, write_deadline_, filler_at_;
};

void ConnectionExchange::respond(HttpResponse response) {
  auto connection = live();
  if (!connection || streaming_) return;
  ended_ = true;
  connection->respond(response, true);
}

void ConnectionExchange::start_stream(HttpResponse head, std::string filler) {
  auto connection = live();
  if (!connection || streaming_) return;
  streaming_ = true;
  connection->start_stream(head, std::move(filler));
}

void ConnectionExchange::send(std::string_view bytes) {
  auto connection = live();
  if (connection && streaming_) connection->send_stream(bytes);
}

void ConnectionExchange::end_stream() {
  auto connection = live();
  if (!connection || !streaming_) return;
  ended_ = true;
  connection->end_stream();
}

}  // namespace

struct HttpServer::State {
  explicit State(HttpServerOptions options)
      : shared(std::move(options)), acceptor(shared.io), retry(shared.io), sweep(shared.io) {}

  Shared shared;
  tcp::acceptor acceptor;
  asio::steady_timer retry, sweep;
  std::uint16_t port = 0;
  std::unique_ptr<WorkQueue> workers;
  std::thread thread;

  void accept() {
    acceptor.async_accept([this](error_code ec, tcp::socket socket) {
      if (ec == asio::error::operation_aborted) return;
      if (ec) {  // out of file descriptors, most likely: let some connections end
        retry.expires_after(std::chrono::milliseconds(100));
        retry.async_wait([this](error_code aborted) {
          if (!aborted) accept();
        });
        return;
      }
      add(std::move(socket));
      accept();
    });
  }

  void add(tcp::socket socket) {
    const bool full = shared.connections.size() >= shared.options.max_connections;
    auto connection = std::make_shared<Connection>(shared, std::move(socket));
    if (shared.connections.size() >= 2 * shared.options.max_connections) return;  // refused ones that linger
    if (shared.connections.empty()) arm_sweep();
    shared.connections.insert(connection);
    shared.num_connections = shared.connections.size();
    if (full) {
      connection->refuse_at_once(503, "too many connections; try again");
    } else {
      connection->start();
    }
  }

  void arm_sweep() {
    sweep.expires_after(shared.options.sweep_interval);
    sweep.async_wait([this](error_code aborted) {
      if (aborted) return;
      const auto now = Clock::now();
      const std::vector<std::shared_ptr<Connection>> all(shared.connections.begin(), shared.connections.end());
      for (const auto& connection : all) connection->check_deadline(now);
      if (!shared.connections.empty()) arm_sweep();
    });
  }

  void close_all() {
    error_code ignored;
    acceptor.close(ignored);
    retry.cancel();
    sweep.cancel();
    const std::vector<std::shared_ptr<Connection>> all(shared.connections.begin(), shared.connections.end());
    for (const auto& connection : all) connection->close();
  }
};

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
HttpServer::~HttpServer() { stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpServerOptions options) {
  QUIRE_CHECK(options.error_response != nullptr);
  error_code ec;
  const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  const auto address = asio::ip::make_address(host, ec);
  if (ec) return fail("host '", options.host, "': wanted an IP address or 'localhost'");
  const tcp::endpoint endpoint(address, options.port);
  const std::string where = cat(options.host, " port ", options.port);
  auto state = std::make_unique<State>(std::move(options));
  state->acceptor.open(endpoint.protocol(), ec);
  if (!ec) state->acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) state->acceptor.bind(endpoint, ec);
  if (!ec) state->acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (ec == asio::error::address_in_use) {
    return fail("cannot listen on ", where, ": the port is taken by another program; choose another with --port, or ",
                "--port 0 for any free one");
  }
  if (ec == asio::error::access_denied) return fail("cannot listen on ", where, ": ports below 1024 need rights");
  if (ec) return fail("cannot listen on ", where, ": ", ec.message());
  state->port = state->acceptor.local_endpoint(ec).port();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

void HttpServer::start(Handler handler) {
  State& state = *state_;
  QUIRE_CHECK(!state.thread.joinable());
  state.shared.handler = std::move(handler);
  state.workers = std::make_unique<WorkQueue>(state.shared.options.num_workers);
  state.accept();
  state.thread = std::thread([&state] { state.shared.io.run(); });
}

std::uint16_t HttpServer::port() const { return state_->port; }

void HttpServer::post(std::function<void()> task) { asio::post(state_->shared.io, std::move(task)); }

void HttpServer::offload(std::function<void()> task) { state_->workers->add(std::move(task)); }

bool HttpServer::wait_quiet(std::chrono::milliseconds timeout) {
  Shared& shared = state_->shared;
  std::unique_lock lock(shared.quiet_mutex);
  return shared.quiet.wait_for(lock, timeout, [&] { return shared.num_busy == 0; });
}

std::size_t HttpServer::num_connections() const { return state_->shared.num_connections; }

void HttpServer::stop() {
  if (!state_->thread.joinable()) return;
  state_->workers->stop();
  asio::post(state_->shared.io, [this] { state_->close_all(); });
  // With every socket and timer closed, run() returns once the last handler has.
  state_->thread.join();
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

}  // namespace quire::server
