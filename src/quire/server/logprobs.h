#pragma once
// Logprobs in the shapes that OpenAI's clients read. A token that is not valid UTF-8 by itself is written as
// "bytes:\xe2\x80" (its exact bytes stand beside it in chat); a second token with the same text in one top_logprobs
// object is written as "token_id:N", so that none is lost. Minus infinity, which JSON lacks, becomes -9999.

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "quire/engine/request.h"
#include "quire/server/backend.h"

namespace quire::server {

/// How a token is written where a string must stand for it. Valid UTF-8.
std::string token_text(const Backend& backend, TokenId id);

/// {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}], "refusal": null}
class ChatLogprobs {
 public:
  explicit ChatLogprobs(const Backend& backend) : backend_(&backend) {}

  void add(const engine::OutputToken& token);
  /// What came since the last call, as JSON.
  std::string take();

 private:
  const Backend* backend_;
  std::string items_;
};

/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; offsets count characters from the start of the choice's
/// text, an echoed prompt included.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const Backend& backend) : backend_(&backend) {}

  /// A token of an echoed prompt; the first has no logprob.
  void add_prompt_token(TokenId token, std::optional<float> logprob, std::span<const engine::TokenLogprob> top);
  void add(const engine::OutputToken& token);
  std::string take();

 private:
  void add_token(TokenId token, std::optional<float> logprob, std::span<const engine::TokenLogprob> top);

  const Backend* backend_;
  std::string tokens_, logprobs_, tops_, offsets_;
  std::size_t characters_ = 0;
};

}  // namespace quire::server
