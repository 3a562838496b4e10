#include "quire/server/engine_backend.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "quire/text/chat_prompt.h"
#include "quire/text/chat_template.h"
#include "quire/text/tokenizer.h"

namespace quire::server {

EngineBackend::EngineBackend(engine::Engine& engine, std::int64_t max_waiting) : engine_(engine) {
  const engine::EngineInfo& info = engine.info();
  const Tokenizer& tokenizer = engine.tokenizer();
  facts_.vocab_size = tokenizer.vocab_size();
  facts_.context = info.context;
  facts_.kv_tokens = info.kv_tokens;
  facts_.max_waiting = max_waiting;
  facts_.max_running = std::max<std::int64_t>(1, info.max_batch_rows);
  facts_.has_chat_template = engine.chat_template() != nullptr;
  facts_.chat_template_fault = engine.info().chat_template_fault;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    facts_.max_token_bytes = std::max(facts_.max_token_bytes, tokenizer.token_bytes(TokenId{id}).size());
  }
}

Result<std::vector<TokenId>> EngineBackend::encode(std::string_view text, SpecialTokens special) const {
  return engine_.tokenizer().encode(text, special);
}

std::vector<TokenId> EngineBackend::with_bos(std::vector<TokenId> ids) const {
  return quire::with_bos(engine_.tokenizer(), std::move(ids));
}

Result<std::vector<TokenId>> EngineBackend::encode_chat(const ChatPrompt& prompt) const {
  const ChatTemplate* chat_template = engine_.chat_template();
  if (!chat_template) return fail("the model has no chat template");
  const Tokenizer& tokenizer = engine_.tokenizer();
  const auto text_of = [&](std::optional<TokenId> id) {
    return id ? std::string(tokenizer.token_bytes(*id)) : std::string();
  };
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const ChatInput input{
      .messages = prompt.messages,
      .add_generation_prompt = prompt.add_generation_prompt,
      .bos_token = text_of(tokenizer.bos()),
      .eos_token = text_of(tokenizer.eos()),
      .variables = prompt.variables,
      .now = civil_time(std::chrono::duration_cast<std::chrono::seconds>(now).count()),
  };
  QUIRE_TRY(const Rendered rendered, chat_template->render(input));
  QUIRE_TRY(std::vector<TokenId> ids, quire::encode_chat(tokenizer, rendered));
  return quire::with_bos(tokenizer, std::move(ids));
}

std::string EngineBackend::decode(std::span<const TokenId> ids, ControlTokens control) const {
  return engine_.tokenizer().decode(ids, {.control_tokens = control, .at_text_start = true});
}

std::string_view EngineBackend::token_bytes(TokenId id) const { return engine_.tokenizer().token_bytes(id); }
bool EngineBackend::is_control(TokenId id) const { return engine_.tokenizer().is_control(id); }

engine::SubmittedAll EngineBackend::submit_all(std::vector<engine::Submission> submissions) {
  return engine_.submit_all(std::move(submissions));
}

void EngineBackend::cancel(RequestId id) { engine_.cancel(id); }
engine::EngineStats EngineBackend::stats() const { return engine_.stats(); }

}  // namespace quire::server
