#pragma once
// Backend: what the API needs of an engine. EngineBackend is the real one; tests have a scripted one.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/engine/engine.h"
#include "quire/json/json.h"
#include "quire/text/tokenizer.h"

namespace quire::server {

/// What request validation needs to know; constant once loaded.
struct ModelFacts {
  std::int64_t vocab_size = 0;
  std::int64_t context = 0;         ///< tokens a request may have at most
  std::int64_t kv_tokens = 0;       ///< tokens of one request that fill the KV cache
  std::size_t max_token_bytes = 1;  ///< of the longest token
  std::int64_t max_waiting = 0;
  std::int64_t max_running = 1;
  bool has_chat_template = false;
  std::string chat_template_fault;  ///< why there is none, if the model file has one
};

struct ChatPrompt {
  const json::Value& messages;  ///< an array of objects with role and content
  bool add_generation_prompt = true;
  const json::Object* variables = nullptr;  ///< chat_template_kwargs
};

class Backend {
 public:
  virtual ~Backend() = default;

  // From any thread.
  virtual const ModelFacts& facts() const = 0;
  virtual Result<std::vector<TokenId>> encode(std::string_view text, SpecialTokens special) const = 0;
  /// `ids` with a BOS in front, where the model wants one and it is not there yet.
  virtual std::vector<TokenId> with_bos(std::vector<TokenId> ids) const = 0;
  /// With BOS where wanted. Errors: what the template says.
  virtual Result<std::vector<TokenId>> encode_chat(const ChatPrompt& prompt) const = 0;
  /// Valid UTF-8.
  virtual std::string decode(std::span<const TokenId> ids, ControlTokens control) const = 0;
  virtual std::string_view token_bytes(TokenId id) const = 0;
  virtual bool is_control(TokenId id) const = 0;

  // As in engine::Engine; they return at once.
  virtual engine::SubmittedAll submit_all(std::vector<engine::Submission> submissions) = 0;
  virtual void cancel(RequestId id) = 0;
  virtual engine::EngineStats stats() const = 0;
};

}  // namespace quire::server
