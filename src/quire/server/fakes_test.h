#pragma once
// Test doubles: a backend that does what the test says, tasks that run when the test says, an exchange that records.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/json/json.h"
#include "quire/server/backend.h"
#include "quire/server/http_message.h"
#include "quire/text/utf8.h"

namespace quire::server {

/// Tokens 0..255 are bytes; then come three control tokens. Nothing answers by itself: the test sends deltas.
class FakeBackend : public Backend {
 public:
  static constexpr TokenId kBos{256}, kStart{257}, kEnd{258};

  struct Submission {
    RequestId id;
    engine::GenerateRequest request;
    engine::Engine::Callback callback;
    bool cancelled = false;
    std::int32_t num_finished = 0;

    std::int32_t num_branches() const { return request.beams ? request.beams->num_returned : request.num_branches; }
  };

  FakeBackend() {
    facts_ = {.vocab_size = 259,
              .context = 100,
              .kv_tokens = 1000,
              .max_token_bytes = 12,
              .max_waiting = 10,
              .max_running = 4,
              .has_chat_template = true};
  }

  const ModelFacts& facts() const override { return facts_; }

  Result<std::vector<TokenId>> encode(std::string_view text, SpecialTokens special) const override {
    std::vector<TokenId> ids;
    while (!text.empty()) {
      if (special == SpecialTokens::parsed && text.starts_with("<|im_start|>")) {
        ids.push_back(kStart);
        text.remove_prefix(12);
      } else {
        ids.push_back(TokenId{static_cast<unsigned char>(text.front())});
        text.remove_prefix(1);
      }
    }
    return ids;
  }

  std::vector<TokenId> with_bos(std::vector<TokenId> ids) const override {
    if (ids.empty() || ids.front() != kBos) ids.insert(ids.begin(), kBos);
    return ids;
  }

  /// start role ':' content end, for each message; raises for a user named "raise".
  Result<std::vector<TokenId>> encode_chat(const ChatPrompt& prompt) const override {
    std::vector<TokenId> ids;
    const auto add = [&](const std::string& text) {
      for (char c : text) ids.push_back(TokenId{static_cast<unsigned char>(c)});
    };
    for (const json::Value& message : prompt.messages.as_array()) {
      if (message.find("name") && *message.find("name") == json::Value("raise")) return fail("roles must alternate");
      ids.push_back(kStart);
      add(message.find("role")->as_string() + ":" + message.find("content")->as_string());
      ids.push_back(kEnd);
    }
    if (prompt.add_generation_prompt) ids.push_back(kStart);
    return with_bos(std::move(ids));
  }

  std::string decode(std::span<const TokenId> ids, ControlTokens control) const override {
    std::string bytes;
    for (TokenId id : ids) {
      if (!is_control(id) || control == ControlTokens::show) bytes += token_bytes(id);
    }
    return replace_invalid_utf8(bytes);
  }

  std::string_view token_bytes(TokenId id) const override {
    static const std::string kBytes = [] {
      std::string bytes(256, '\0');
      for (int i = 0; i < 256; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<char>(i);
      return bytes;
    }();
    if (id == kBos) return "<s>";
    if (id == kStart) return "<|im_start|>";
    if (id == kEnd) return "<|im_end|>";
    return std::string_view(kBytes).substr(static_cast<std::size_t>(id.value), 1);
  }

  bool is_control(TokenId id) const override { return id.value >= 256; }

  engine::SubmittedAll submit_all(std::vector<engine::Submission> wanted) override {
    if (refusal) return {{}, *refusal};
    engine::SubmittedAll submitted;
    for (auto& [request, callback] : wanted) {
      submitted.ids.push_back(RequestId{submissions.size() + 1});
      submissions.push_back({submitted.ids.back(), std::move(request), std::move(callback)});
    }
    return submitted;
  }

  void cancel(RequestId id) override { submissions.at(id.value - 1).cancelled = true; }
  engine::EngineStats stats() const override { return stats_; }

  /// Sends text as one token a byte, with usage kept up.
  void send(std::size_t submission, const std::string& text, std::optional<engine::Finish> finish = std::nullopt,
            std::int32_t branch = 0) {
    engine::Delta delta;
    delta.branch = branch;
    for (char c : text) {
      delta.tokens.push_back({.token = TokenId{static_cast<unsigned char>(c)}, .logprob = -0.5f});
    }
    delta.text = text;
    delta.finish = std::move(finish);
    send(submission, std::move(delta));
  }

  void send(std::size_t submission, engine::Delta delta) {
    Submission& to = submissions.at(submission);
    completed_[{submission, delta.branch}] += static_cast<std::int32_t>(delta.tokens.size());
    delta.request = to.id;
    to.num_finished += delta.finish.has_value();
    delta.ends_request = delta.finish && to.num_finished == to.num_branches();
    delta.usage = {.prompt_tokens = static_cast<std::int32_t>(to.request.prompt.size()),
                   .completion_tokens = completed_[{submission, delta.branch}]};
    to.callback(std::move(delta));
  }

  ModelFacts facts_;
  engine::EngineStats stats_;
  std::optional<engine::Refusal> refusal;  ///< of every submission
  std::deque<Submission> submissions;

 private:
  std::map<std::pair<std::size_t, std::int32_t>, std::int32_t> completed_;  ///< by submission and branch
};

class FakeTasks : public Tasks {
 public:
  void post(std::function<void()> task) override { tasks.push_back(std::move(task)); }
  void offload(std::function<void()> task) override { tasks.push_back(std::move(task)); }

  void run() {
    while (!tasks.empty()) {
      auto task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
  }

  std::deque<std::function<void()>> tasks;
};

class FakeExchange : public Exchange {
 public:
  void respond(HttpResponse r) override {
    if (vanished || ended) return;
    ended = true;
    response = std::move(r);
  }
  void start_stream(HttpResponse head, std::string) override {
    streaming = true;
    response = std::move(head);
  }
  void send(std::string_view bytes) override {
    if (!vanished && streaming && !ended) sent += bytes;
  }
  void end_stream() override { ended = true; }
  void on_gone(std::function<void()> callback) override { gone_callback = std::move(callback); }
  bool gone() const override { return vanished; }

  void vanish() {
    vanished = true;
    if (gone_callback) std::exchange(gone_callback, {})();
  }

  HttpResponse response;
  std::string sent;
  bool streaming = false, ended = false, vanished = false;
  std::function<void()> gone_callback;
};

inline HttpRequest make_get(std::string path) {
  return {.method = "GET", .path = std::move(path), .headers = {{"host", "localhost:8080"}}};
}

inline HttpRequest make_post(std::string path, std::string body) {
  return {.method = "POST",
          .path = std::move(path),
          .headers = {{"host", "127.0.0.1:8080"}, {"content-type", "application/json"}},
          .body = std::move(body)};
}

}  // namespace quire::server
