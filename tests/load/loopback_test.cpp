// The load generator over real sockets: against Quire's own HTTP server, and against servers that misbehave.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "quire/json/json.h"
#include "quire/loadgen/load_run.h"
#include "quire/loadgen/sources.h"
#include "quire/loadgen/summary.h"
#include "quire/server/http_server.h"

namespace quire {
namespace {

using loadgen::LoadOptions;
using loadgen::LoadResult;
using loadgen::RequestWriter;

constexpr std::uint64_t kPatienceMs = 20'000;

std::unique_ptr<loadgen::HttpClient> client_of(std::uint16_t port, std::uint64_t timeout_ms = kPatienceMs) {
  auto client = loadgen::make_http_client({.host = "127.0.0.1", .port = port, .path = ""}, {.timeout_ms = timeout_ms});
  EXPECT_TRUE(client.ok());
  return *std::move(client);
}

LoadResult run(loadgen::HttpClient& client, std::size_t count, const LoadOptions& options) {
  std::vector<RequestSpec> specs(count);
  for (std::size_t i = 0; i < count; ++i) {
    specs[i].prompt_tokens = 20;
    specs[i].output_tokens = static_cast<std::int32_t>(1 + i % 5);
  }
  loadgen::OwnedSource source(std::move(specs));
  return loadgen::run_load(client, source, RequestWriter({.model = "m"}), options);
}

std::string text_event(bool last) {
  return cat(R"(data: {"choices":[{"text":"a","finish_reason":)", last ? "\"length\"" : "null", "}]}\n\n");
}

/// Answers like a model server: as many tokens as asked for, then usage.
class ModelServer {
 public:
  ModelServer() {
    server::HttpServerOptions options;
    options.error_response = [](int status, std::string_view) { return server::HttpResponse{.status = status}; };
    auto listening = server::HttpServer::listen(std::move(options));
    EXPECT_TRUE(listening.ok());
    http_ = *std::move(listening);
    http_->start([this](server::HttpRequest request, std::shared_ptr<server::Exchange> exchange) {
      if (request.path == "/v1/models") return exchange->respond({.status = 200, .body = R"({"data":[{"id":"m"}]})"});
      if (num_requests_++ % 10 == 9) {
        return exchange->respond({.status = 503, .body = R"({"error":{"message":"queue full"}})"});
      }
      exchange->start_stream({.content_type = "text/event-stream"}, ": filler\n\n");
      const auto body = json::parse(request.body);
      send(exchange, body->find("max_tokens")->as_int(), 0);
    });
  }
  std::uint16_t port() const { return http_->port(); }

 private:
  /// One token for each turn of the I/O thread, so that the streams interleave.
  void send(const std::shared_ptr<server::Exchange>& exchange, std::int64_t tokens, std::int64_t sent) {
    if (sent < tokens) {
      exchange->send(text_event(sent + 1 == tokens));
      return http_->post([this, exchange, tokens, sent] { send(exchange, tokens, sent + 1); });
    }
    exchange->send(cat(R"(data: {"choices":[],"usage":{"completion_tokens":)", tokens, "}}\n\ndata: [DONE]\n\n"));
    exchange->end_stream();
  }

  std::unique_ptr<server::HttpServer> http_;
  int num_requests_ = 0;
};

TEST(LoadLoopback, HundredsOfClientsAgainstTheProjectsOwnServer) {
  ModelServer server;
  auto client = client_of(server.port());
  ASSERT_EQ(*loadgen::ask_model(*client), "m");
  const LoadResult result = run(*client, 600, {.num_clients = 300});
  const auto summary = loadgen::summarise(result, {});
  EXPECT_EQ(summary.num_completed, 540u);
  EXPECT_EQ(summary.failures.at("HTTP 503").count, 60u);
  EXPECT_EQ(summary.failures.at("HTTP 503").example, "queue full");
  EXPECT_EQ(summary.num_short, 0u);
  std::int64_t wanted = 0;
  for (const auto& sample : result.samples) {
    if (!sample.completed()) continue;
    wanted += sample.wanted_tokens;
    EXPECT_LE(sample.due_ns, sample.first_ns);
    EXPECT_LE(sample.last_ns, sample.end_ns);
    EXPECT_EQ(static_cast<std::int64_t>(sample.gaps_ns.size()) + 1, sample.output_tokens);
  }
  EXPECT_EQ(summary.output_tokens, wanted);
}

TEST(LoadLoopback, AnOpenLoopReachesTheServerToo) {
  ModelServer server;
  auto client = client_of(server.port());
  const LoadResult result = run(*client, 50, {.loop = loadgen::Loop::open, .num_clients = 5, .num_warmup = 10});
  EXPECT_EQ(result.samples.size(), 40u);
}

/// Accepts connections one after another, reads the request and does with the socket what the script says.
class RawServer {
 public:
  using Script = std::function<void(int fd)>;

  explicit RawServer(std::vector<Script> scripts) : scripts_(std::move(scripts)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    socklen_t size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      for (const auto& script : scripts_) {
        const int fd = accept(listener_, nullptr, nullptr);
        script(fd);
        close(fd);
      }
    });
  }
  ~RawServer() {
    thread_.join();
    close(listener_);
  }
  std::uint16_t port() const { return port_; }

 private:
  std::vector<Script> scripts_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

void read_request(int fd) {
  std::string text;
  char buffer[4096];
  while (text.find("\"ignore_eos\":true}") == std::string::npos) {
    const ssize_t size = recv(fd, buffer, sizeof buffer, 0);
    if (size <= 0) return;
    text.append(buffer, static_cast<std::size_t>(size));
  }
}

void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

/// A script that sends text after the request has come.
RawServer::Script answer(std::string text) {
  return [text = std::move(text)](int fd) {
    read_request(fd);
    send_all(fd, text);
  };
}

std::string chunk(std::string_view text) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return size + std::string(text) + "\r\n";
}

const std::string kHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// The failure of each request against one script each, in order.
std::vector<std::string> failures(std::vector<RawServer::Script> scripts, std::uint64_t timeout_ms = kPatienceMs) {
  const std::size_t count = scripts.size();
  RawServer server(std::move(scripts));
  auto client = client_of(server.port(), timeout_ms);
  std::vector<std::string> out;
  for (const auto& sample : run(*client, count, {.num_clients = 1}).samples) out.push_back(sample.failure);
  return out;
}

TEST(LoadLoopback, AnyFramingOfAStreamIsRead) {
  const std::string events = text_event(false) + text_event(true) + "data: [DONE]\n\n";
  std::string bytewise = kHead;
  for (char c : events) bytewise += chunk(std::string(1, c));
  const auto found = failures({
      answer(kHead + chunk(events) + "0\r\n\r\n"),
      answer(bytewise + "0\r\n\r\n"),
      answer("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + events),
      answer("HTTP/1.1 200 OK\r\nContent-Length: " + cat(events.size()) + "\r\n\r\n" + events),
      [&](int fd) {
        read_request(fd);
        for (char c : bytewise + "0\r\n\r\n") send_all(fd, std::string(1, c));
      },
  });
  EXPECT_EQ(found, std::vector<std::string>(5));
}

TEST(LoadLoopback, EveryWayToFailIsNamed) {
  const auto found = failures({
      answer(kHead + chunk(text_event(false))),                // closed in mid-stream
      answer(kHead + chunk(text_event(false)) + "0\r\n\r\n"),  // ended, but not finished
      answer(""),                                              // closed without an answer
      answer("SSH-2.0-OpenSSH\r\n\r\n"),                       // not HTTP
      answer(kHead + "zz\r\n"),                                // no chunk
      answer("HTTP/1.1 429 Too Many\r\nContent-Length: 2\r\n\r\n{}"),
      answer("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n"),
      answer(kHead + chunk("data: {\"error\":{\"message\":\"x\"}}\n\n") + "0\r\n\r\n"),
      [](int fd) {  // refused before the body is read, and reset
        send_all(fd, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n");
        char byte;
        recv(fd, &byte, 1, 0);
      },
      [](int fd) {
        read_request(fd);
        send_all(fd, kHead + chunk(text_event(false)));
        const linger now{1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
      },
  });
  const std::vector<std::string> expected = {"connection lost", "cut off",        "connection lost", "bad answer",
                                             "bad answer",      "HTTP 429",       "bad answer",      "server error",
                                             "HTTP 413",        "connection lost"};
  EXPECT_EQ(found, expected);
}

TEST(LoadLoopback, AnAnswerThatDoesNotComeTimesOut) {
  const auto wait_for_close = [](int fd) {
    read_request(fd);
    char byte;
    recv(fd, &byte, 1, 0);
  };
  EXPECT_EQ(failures({wait_for_close}, 50), std::vector<std::string>{"timed out"});
}

TEST(LoadLoopback, NobodyListeningIsNoConnection) {
  std::uint16_t port = 0;
  {
    RawServer server({});
    port = server.port();
  }
  auto client = client_of(port);
  EXPECT_EQ(run(*client, 1, {}).samples.at(0).failure, "no connection");
  EXPECT_NE(loadgen::ask_model(*client).error().message.find("does not answer"), std::string::npos);
}

}  // namespace
}  // namespace quire
