#include "quire/server/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <mutex>
#include <vector>

#include "quire/base/cat.h"
#include "quire/server/api_error.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;

// Waits are bounded by this; nothing is measured with it.
constexpr int kPatienceMs = 20'000;

/// A raw client.
class Client {
 public:
  explicit Client(std::uint16_t port, int receive_buffer = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the server may close early
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  /// Until `text` has come, or the connection ends; all that has come since the last call.
  std::string read_until(std::string_view text) {
    std::string& all = received_;
    while (all.find(text) == std::string::npos && more()) {
    }
    const std::size_t at = all.find(text);
    const std::size_t size = at == std::string::npos ? all.size() : at + text.size();
    std::string taken = all.substr(0, size);
    all.erase(0, size);
    return taken;
  }

  std::string read_all() {
    while (more()) {
    }
    return std::exchange(received_, {});
  }

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

 private:
  bool more() {
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, kPatienceMs) <= 0) {
      ADD_FAILURE() << "nothing came";
      return false;
    }
    char buffer[65536];
    const ssize_t size = recv(fd_, buffer, sizeof buffer, 0);
    if (size <= 0) return false;
    received_.append(buffer, static_cast<std::size_t>(size));
    return true;
  }

  int fd_ = -1;
  std::string received_;
};

/// A server with a few paths: /echo gives the body back; /stream streams until told; /hold never answers.
struct Server {
  explicit Server(HttpServerOptions options = {}) {
    options.error_response = [](int status, std::string_view message) {
      return error_response({.status = status, .message = std::string(message)});
    };
    options.sweep_interval = 5ms;
    auto listening = HttpServer::listen(std::move(options));
    EXPECT_TRUE(listening.ok());
    http = *std::move(listening);
    http->start([this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
      handle(std::move(request), std::move(exchange));
    });
  }

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
    if (request.path == "/echo") return exchange->respond({.status = 200, .body = request.body});
    if (request.path == "/slow") {
      return http->offload([this, exchange]() mutable {
        http->post([exchange = std::move(exchange)] { exchange->respond({.status = 200, .body = "late"}); });
      });
    }
    exchange->on_gone([this] { gone.set_value(); });
    if (request.path == "/stream") exchange->start_stream({.content_type = "text/event-stream"}, ": still here\n\n");
    held.set_value(std::move(exchange));
  }

  /// Runs on the I/O thread and waits.
  void on_io(std::function<void()> task) {
    std::promise<void> done;
    http->post([&] {
      task();
      done.set_value();
    });
    done.get_future().get();
  }

  std::promise<std::shared_ptr<Exchange>> held;
  std::promise<void> gone;
  std::unique_ptr<HttpServer> http;
};

std::string get(const std::string& path) { return cat("GET ", path, " HTTP/1.1\r\nHost: a\r\n\r\n"); }

TEST(HttpServer, AnswersOneRequestAfterAnotherOnAConnection) {
  Server server;
  Client client(server.http->port());
  for (int i = 0; i < 3; ++i) {
    client.send(cat("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx", i));
    const std::string answer = client.read_until(cat("x", i));
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_NE(answer.find("Content-Length: 2\r\n"), std::string::npos);
    EXPECT_NE(answer.find("Connection: keep-alive\r\n"), std::string::npos);
  }
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  Server server;
  Client client(server.http->port());
  std::string all;
  for (int i = 0; i < 50; ++i) {
    all += i % 2 == 0 ? cat("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n#", 10 + i) : get("/slow");
  }
  client.send(all);
  for (int i = 0; i < 50; ++i) {
    const std::string wanted = i % 2 == 0 ? cat("#", 10 + i) : "late";
    EXPECT_TRUE(client.read_until(wanted).ends_with(wanted));
  }
}

TEST(HttpServer, ConnectionCloseIsHonoured) {
  Server server;
  Client client(server.http->port());
  client.send("GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_NE(client.read_all().find("Connection: close"), std::string::npos);
  Client old(server.http->port());
  old.send("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(old.read_all().starts_with("HTTP/1.0 200 OK"));
}

TEST(HttpServer, HeadHasNoBody) {
  Server server;
  Client client(server.http->port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody");
  const std::string answer = client.read_all();
  EXPECT_NE(answer.find("Content-Length: 4"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

TEST(HttpServer, ALargeBodyAfterExpectIsAskedFor) {
  Server server;
  Client client(server.http->port());
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(std::string(100'000, 'x') + "\r\n");  // and the stray line end that some clients send
  EXPECT_NE(client.read_until(std::string(100'000, 'x')).find("200 OK"), std::string::npos);
  client.send(get("/echo"));
  EXPECT_NE(client.read_until("\r\n\r\n").find("200 OK"), std::string::npos);
}

TEST(HttpServer, RefusalsReachTheClientBeforeTheConnectionCloses) {
  Server server;
  Client client(server.http->port());
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n");
  client.send(std::string(1 << 20, 'x'));  // it has not waited
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 413 Content Too Large\r\n")) << answer.substr(0, 100);
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  EXPECT_NE(answer.find(R"({"error":{"message":)"), std::string::npos);
}

TEST(HttpServer, NothingAfterASmuggledRequestIsRead) {
  Server server;
  Client client(server.http->port());
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
              get("/echo"));
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400")) << answer;
  EXPECT_EQ(answer.find("200 OK"), std::string::npos);
}

TEST(HttpServer, AStreamIsChunkedAndTheConnectionLivesOn) {
  Server server;
  Client client(server.http->port());
  client.send(get("/stream"));
  auto exchange = server.held.get_future().get();
  EXPECT_NE(client.read_until("\r\n\r\n").find("Transfer-Encoding: chunked"), std::string::npos);
  server.on_io([&] { exchange->send("data: one\n\n"); });
  EXPECT_EQ(client.read_until("\n\n\r\n"), "b\r\ndata: one\n\n\r\n");
  server.on_io([&] {
    exchange->end_stream();
    exchange->send("void");
  });
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "0\r\n\r\n");
  client.send(get("/echo"));
  EXPECT_TRUE(client.read_until("\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
}

TEST(HttpServer, AnOldClientsStreamEndsWithTheConnection) {
  Server server;
  Client client(server.http->port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  auto exchange = server.held.get_future().get();
  server.on_io([&] {
    exchange->send("data: one\n\n");
    exchange->end_stream();
  });
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.ends_with("\r\n\r\ndata: one\n\n")) << answer;
  EXPECT_EQ(answer.find("chunked"), std::string::npos);
}

TEST(HttpServer, ASilentStreamSendsItsFiller) {
  Server server({.filler_interval = 10ms});
  Client client(server.http->port());
  client.send(get("/stream"));
  EXPECT_NE(client.read_until(": still here\n\n").find(": still here"), std::string::npos);
}

TEST(HttpServer, AClosedClientIsNoticedWhileItsAnswerIsPending) {
  for (const char* path : {"/hold", "/stream"}) {
    for (bool abruptly : {false, true}) {
      Server server;
      Client client(server.http->port());
      client.send(get(path));
      auto exchange = server.held.get_future().get();
      abruptly ? client.reset() : client.close();
      server.gone.get_future().get();
      server.on_io([&] {
        EXPECT_TRUE(exchange->gone());
        exchange->send("void");
        exchange->respond({.status = 200});
      });
      EXPECT_TRUE(server.http->wait_quiet(std::chrono::milliseconds(kPatienceMs)));
    }
  }
}

TEST(HttpServer, AReaderThatFallsBehindIsDisconnected) {
  Server server({.max_stream_backlog_bytes = 64 << 10});
  Client client(server.http->port(), 4096);
  client.send(get("/stream"));
  auto exchange = server.held.get_future().get();
  const std::string event(10'000, 'x');
  bool gone = false;
  for (int i = 0; i < 10'000 && !gone; ++i) {
    server.on_io([&] {
      exchange->send(event);
      gone = exchange->gone();
    });
  }
  EXPECT_TRUE(gone) << "100 MB were taken in for a client that reads nothing";
  server.gone.get_future().get();
}

TEST(HttpServer, AReaderThatTakesNothingIsDisconnectedAtTheDeadline) {
  Server server({.max_stream_backlog_bytes = 64 << 20, .write_timeout = 50ms});
  Client client(server.http->port(), 4096);
  client.send(get("/stream"));
  auto exchange = server.held.get_future().get();
  server.on_io([&] { exchange->send(std::string(32 << 20, 'x')); });
  server.gone.get_future().get();
}

TEST(HttpServer, SlowRequestsAreEndedAtTheirDeadline) {
  Server hasty({.head_timeout = 50ms, .linger_timeout = 50ms});
  Client silent(hasty.http->port());
  EXPECT_EQ(silent.read_all(), "");
  // These must have sent their beginnings by then, however busy the machine is.
  Server server({.head_timeout = 1s, .body_timeout = 1s, .linger_timeout = 50ms});
  Client head(server.http->port());
  head.send("GET /echo HT");
  EXPECT_TRUE(head.read_all().starts_with("HTTP/1.1 408 Request Timeout"));
  Client body(server.http->port());
  body.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc");
  EXPECT_TRUE(body.read_all().starts_with("HTTP/1.1 408 Request Timeout"));
}

TEST(HttpServer, IdleConnectionsAreClosed) {
  Server server({.idle_timeout = 50ms});
  Client client(server.http->port());
  client.send(get("/echo"));
  EXPECT_TRUE(client.read_all().starts_with("HTTP/1.1 200 OK"));
}

TEST(HttpServer, ConnectionsBeyondTheCapGet503) {
  Server server({.max_connections = 2});
  Client first(server.http->port()), second(server.http->port());
  for (Client* client : {&first, &second}) {
    client->send(get("/echo"));
    EXPECT_TRUE(client->read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
  }
  Client third(server.http->port());
  EXPECT_TRUE(third.read_all().starts_with("HTTP/1.1 503"));
}

TEST(HttpServer, BodiesBeyondTheSharedCapGet503) {
  Server server({.max_body_bytes_in_flight = 100'000});
  Client first(server.http->port());
  first.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + std::string(500'000, 'x'));
  EXPECT_TRUE(first.read_all().starts_with("HTTP/1.1 503"));
  Client second(server.http->port());
  second.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_TRUE(second.read_until("hello").starts_with("HTTP/1.1 200")) << "its bytes were given back";
}

TEST(HttpServer, HealthIsAnsweredBesideManyStreamsAndBusyWorkers) {
  Server server;
  std::mutex mutex;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<Client>(server.http->port()));
    clients.back()->send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n");
  }
  std::unique_lock block(mutex);
  std::promise<void> both;
  for (int i = 0; i < 2; ++i) {
    server.http->offload([&] { std::lock_guard wait(mutex); });
  }
  Client health(server.http->port());
  health.send(get("/echo"));
  EXPECT_TRUE(health.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
}

TEST(HttpServer, StoppingClosesEverything) {
  auto server = std::make_unique<Server>();
  Client client(server->http->port());
  client.send(get("/stream"));
  auto exchange = server->held.get_future().get();
  server->http->stop();
  client.read_all();
  EXPECT_TRUE(exchange->gone());
  server.reset();
  exchange->send("void");
}

TEST(HttpServer, ATakenPortIsAnErrorThatSaysWhatToDo) {
  Server server;
  HttpServerOptions options{.port = server.http->port()};
  options.error_response = [](int, std::string_view) { return HttpResponse{}; };
  auto second = HttpServer::listen(options);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("--port"), std::string::npos);
  options.host = "not-an-address";
  auto third = HttpServer::listen(options);
  ASSERT_FALSE(third.ok());
  EXPECT_NE(third.error().message.find("not-an-address"), std::string::npos);
}

}  // namespace
}  // namespace quire::server
