#pragma once
// Generation: one call of a completions endpoint from its deltas to its answer, streamed or whole. Builds OpenAI's
// chat.completion and text_completion objects, byte for byte the same for the same deltas.
//
// A stream is: for each choice the role chunk (chat) or the echoed prompt (completions with echo), text chunks, and an
// empty chunk with finish_reason; then, if asked for, one chunk with usage and no choices; then [DONE]. An error after
// the start comes as {"error": ...} and [DONE].
//
// Usage counts each prompt once, however many choices it has.
//
// Beside OpenAI's fields: `seed` (sampling::branch_seed() says which choice used which),
// `stop_reason` of a choice (the stop string, the stop token's id, or null), and with return_token_ids `token_ids` and
// `prompt_token_ids`; of a beam search `beam_score`.
//
// The I/O thread's alone.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "quire/engine/request.h"
#include "quire/metrics/server_metrics.h"
#include "quire/server/api_error.h"
#include "quire/server/backend.h"
#include "quire/server/http_message.h"
#include "quire/server/logprobs.h"

namespace quire::server {

/// A call that is ready to be submitted.
struct Call {
  enum class Kind { chat, completion };
  struct Prompt {
    engine::GenerateRequest request;  ///< its branches are the choices
    std::string echo_text;            ///< completions with echo
    std::vector<TokenId> ids;         ///< where the answer repeats them: echo with logprobs, return_token_ids
  };

  Kind kind = Kind::chat;
  std::string id;            ///< "chatcmpl-..."
  std::string model;         ///< as the answer names it
  std::int64_t created = 0;  ///< Unix seconds
  std::uint64_t seed = 0;
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool echo = false;
  bool return_token_ids = false;
  std::size_t choices_per_prompt = 1;
  std::vector<Prompt> prompts;  ///< not empty; the choices of the first come first
};

class Generation {
 public:
  using Clock = std::chrono::steady_clock;

  Generation(Call call, const Backend& backend, Exchange& exchange, metrics::ServerMetrics& metrics);

  /// Sends the head of a streamed answer.
  void start();
  /// True when the answer is complete (or has failed): nothing more may come.
  bool on_delta(std::size_t choice, engine::Delta delta, Clock::time_point at);
  /// Ends the answer with an error.
  void fail(const ApiError& error);

  Call& call() { return call_; }

 private:
  using Logprobs = std::variant<std::monostate, ChatLogprobs, CompletionLogprobs>;
  struct Choice {
    bool opened = false, done = false;
    std::string text;
    Logprobs logprobs;
    std::vector<engine::ScoreRow> scores;
    std::vector<TokenId> token_ids;
    engine::Usage usage;
    engine::Finish finish;
    Clock::time_point last_token;
    bool has_token = false;
  };

  void open(std::size_t index, std::string& out);
  const Call::Prompt& prompt_of(std::size_t choice) const { return call_.prompts[choice / call_.choices_per_prompt]; }
  void add_scores(std::size_t index, std::vector<engine::ScoreRow> scores);
  void add_prompt_logprobs(std::size_t index);
  void take_tokens(Choice& choice, const engine::Delta& delta, Clock::time_point at);
  void finish_stream(std::string& out);
  void finish_whole();

  std::string object_head(std::string_view object) const;
  void append_chunk(std::string& out, std::size_t index, std::string_view body, std::string_view finish_reason) const;
  void append_role_chunk(std::string& out, std::size_t index) const;
  void append_text_chunk(std::string& out, std::size_t index, std::string_view text, std::size_t num_new_tokens);
  void append_finish_chunk(std::string& out, std::size_t index) const;
  std::string take_logprobs(Choice& choice) const;
  std::string usage_json() const;
  std::string stop_reason_json(const engine::Finish& finish) const;

  Call call_;
  Exchange& exchange_;
  metrics::ServerMetrics& metrics_;
  std::string chunk_head_;  ///< what every chunk begins with
  std::vector<Choice> choices_;
  std::size_t num_done_ = 0;
  bool ended_ = false;
};

}  // namespace quire::server
