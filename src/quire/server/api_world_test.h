#pragma once
// What the tests of the API share: an Api over fakes, and how to talk to it.

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "quire/base/cat.h"
#include "quire/json/json.h"
#include "quire/server/api.h"
#include "quire/server/fakes_test.h"

namespace quire::server {

/// An Api over fakes, ready to serve.
struct ApiWorld {
  explicit ApiWorld(ApiOptions options = {.model_names = {"tiny", "other-name"}})
      : api(with_fakes(std::move(options)), tasks, metrics) {
    api.set_backend(&backend);
  }

  std::shared_ptr<FakeExchange> send(HttpRequest request) {
    auto exchange = std::make_shared<FakeExchange>();
    api.handle(std::move(request), exchange);
    tasks.run();
    return exchange;
  }
  std::shared_ptr<FakeExchange> post(const std::string& path, std::string body) {
    return send(make_post(path, std::move(body)));
  }
  void reply(std::size_t submission, const std::string& text, std::optional<engine::Finish> finish = std::nullopt,
             std::int32_t branch = 0) {
    backend.send(submission, text, std::move(finish), branch);
    tasks.run();
  }

  FakeTasks tasks;
  metrics::ServerMetrics metrics{"tiny"};
  FakeBackend backend;
  Api api;

 private:
  static ApiOptions with_fakes(ApiOptions options) {
    options.unix_time = [] { return 1'700'000'000; };
    options.num_connections = [] { return 0; };
    options.random = [] { return std::uint64_t{0xABCDEF0123456789}; };
    return options;
  }
};

inline constexpr const char* kChat = "/v1/chat/completions";
inline constexpr const char* kCompletions = "/v1/completions";

inline json::Value parsed(const std::string& text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *std::move(value) : json::Value();
}

inline std::string chat_body(const std::string& more = "") {
  return cat(R"({"messages":[{"role":"user","content":"Hi"}])", more.empty() ? "" : ",", more, "}");
}

inline std::string completion_body(const std::string& more = "") {
  return cat(R"({"prompt":"Hi")", more.empty() ? "" : ",", more, "}");
}

inline const json::Value& error_of(const json::Value& body) {
  static const json::Value kNone;
  const json::Value* error = body.find("error");
  EXPECT_NE(error, nullptr);
  return error ? *error : kNone;
}

inline void expect_error(const FakeExchange& exchange, int status, const std::string& param) {
  EXPECT_EQ(exchange.response.status, status) << exchange.response.body;
  const json::Value body = parsed(exchange.response.body);
  const json::Value& error = error_of(body);
  ASSERT_NE(error.find("message"), nullptr);
  EXPECT_FALSE(error.find("message")->as_string().empty());
  ASSERT_NE(error.find("type"), nullptr);
  ASSERT_NE(error.find("code"), nullptr);
  ASSERT_NE(error.find("param"), nullptr);
  if (param.empty()) {
    EXPECT_TRUE(error.find("param")->is_null()) << exchange.response.body;
  } else {
    EXPECT_EQ(*error.find("param"), json::Value(param)) << exchange.response.body;
  }
}

}  // namespace quire::server
