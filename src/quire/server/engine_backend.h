#pragma once
// EngineBackend: the Backend over an engine, which must outlive it.

#include "quire/server/backend.h"

namespace quire::server {

class EngineBackend final : public Backend {
 public:
  /// `max_waiting` as the engine was opened with.
  EngineBackend(engine::Engine& engine, std::int64_t max_waiting);

  const ModelFacts& facts() const override { return facts_; }
  Result<std::vector<TokenId>> encode(std::string_view text, SpecialTokens special) const override;
  std::vector<TokenId> with_bos(std::vector<TokenId> ids) const override;
  Result<std::vector<TokenId>> encode_chat(const ChatPrompt& prompt) const override;
  std::string decode(std::span<const TokenId> ids, ControlTokens control) const override;
  std::string_view token_bytes(TokenId id) const override;
  bool is_control(TokenId id) const override;
  engine::SubmittedAll submit_all(std::vector<engine::Submission> submissions) override;
  void cancel(RequestId id) override;
  engine::EngineStats stats() const override;

 private:
  engine::Engine& engine_;
  ModelFacts facts_;
};

}  // namespace quire::server
