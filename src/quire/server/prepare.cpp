#include "quire/server/prepare.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "quire/base/cat.h"
#include "quire/json/json.h"
#include "quire/json/reader.h"
#include "quire/server/api_request.h"
#include "quire/server/logprobs.h"

namespace quire::server {
namespace {

// Normalisation (NFC, spaces) may shorten or lengthen a text before it is cut into tokens; never by more than this.
constexpr std::size_t kMaxNormalizationFactor = 4;

/// Either a value or the refusal.
template <class T>
using Outcome = std::variant<ApiError, T>;

/// Tokens that a prompt may have so that one more fits.
std::int64_t max_prompt_tokens(const ModelFacts& facts) { return std::min(facts.context, facts.kv_tokens) - 1; }

ApiError too_long(std::string_view field, std::string_view found, const ModelFacts& facts) {
  const bool by_context = facts.context <= facts.kv_tokens;
  ApiError error = invalid_field(
      field, cat("the prompt has ", found, " and one more must fit, but ",
                 by_context ? cat("the context is ", facts.context, " tokens")
                            : cat("the KV cache holds ", facts.kv_tokens, " tokens (--kv-memory makes it larger)")));
  error.code = "context_length_exceeded";
  return error;
}

std::optional<ApiError> check_length(std::string_view field, std::size_t num_tokens, const ModelFacts& facts) {
  if (static_cast<std::int64_t>(num_tokens) <= max_prompt_tokens(facts)) return std::nullopt;
  return too_long(field, cat(num_tokens, " tokens"), facts);
}

/// Refuses before tokenising what can only be too long.
std::optional<ApiError> check_bytes(std::string_view field, std::size_t num_bytes, const ModelFacts& facts) {
  const std::size_t min_tokens = num_bytes / (facts.max_token_bytes * kMaxNormalizationFactor);
  if (static_cast<std::int64_t>(min_tokens) <= max_prompt_tokens(facts)) return std::nullopt;
  return too_long(field, cat(num_bytes, " bytes, more than ", min_tokens, " tokens,"), facts);
}

std::optional<ApiError> check_model(const std::string& model, const PrepareContext& context) {
  const auto& names = context.model_names;
  if (model.empty() || std::find(names.begin(), names.end(), model) != names.end()) return std::nullopt;
  return model_not_found(model, names);
}

Call make_call(Call::Kind kind, const CommonFields& common, const PrepareContext& context) {
  Call call;
  call.kind = kind;
  call.model = context.model_names.front();
  call.seed = common.seed_given ? common.generate.sampling.seed : context.drawn_seed;
  call.stream = common.stream;
  call.include_usage = common.include_usage;
  call.logprobs = common.generate.top_logprobs.has_value();
  call.return_token_ids = common.return_token_ids;
  call.choices_per_prompt = common.num_choices;
  return call;
}

Outcome<std::vector<TokenId>> chat_tokens(const ChatRequest& request, const Backend& backend) {
  std::size_t bytes = 0;
  for (const json::Value& message : request.messages.as_array()) bytes += message.find("content")->as_string().size();
  if (auto error = check_bytes("messages", bytes, backend.facts())) return *error;
  auto ids = backend.encode_chat({.messages = request.messages,
                                  .add_generation_prompt = request.add_generation_prompt,
                                  .variables = request.template_variables ? &*request.template_variables : nullptr});
  if (!ids) {
    return ApiError{.status = 400,
                    .message = cat("the chat template refuses these messages: ", ids.error().message),
                    .param = "messages",
                    .code = "chat_template_error"};
  }
  return *std::move(ids);
}

Outcome<std::vector<TokenId>> text_tokens(const std::string& text, bool parse_special, bool add_special,
                                          const Backend& backend) {
  if (auto error = check_bytes("prompt", text.size(), backend.facts())) return *error;
  auto ids = backend.encode(text, parse_special ? SpecialTokens::parsed : SpecialTokens::as_text);
  if (!ids) return invalid_field("prompt", ids.error().message);
  return add_special ? backend.with_bos(*std::move(ids)) : *std::move(ids);
}

Outcome<Call::Prompt> completion_prompt(const CompletionRequest& request, const PromptInput& input,
                                        const Backend& backend) {
  const ModelFacts& facts = backend.facts();
  Call::Prompt prompt{.request = request.common.generate};
  if (const auto* text = std::get_if<std::string>(&input)) {
    auto ids = text_tokens(*text, request.parse_special, request.add_special_tokens, backend);
    if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
    prompt.request.prompt = std::get<1>(std::move(ids));
    if (request.echo) prompt.echo_text = *text;
  } else {
    prompt.request.prompt = std::get<std::vector<TokenId>>(input);
  }
  const std::vector<TokenId>& ids = prompt.request.prompt;
  if (ids.empty()) return invalid_field("prompt", "it has no tokens, wanted at least one");
  if (auto error = check_length("prompt", ids.size(), facts)) return *error;
  if (request.echo && prompt.echo_text.empty()) prompt.echo_text = backend.decode(ids, ControlTokens::show);
  if (!request.max_tokens_given) {
    const std::int64_t room = max_prompt_tokens(facts) + 1 - static_cast<std::int64_t>(ids.size());
    prompt.request.max_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(*prompt.request.max_tokens, room));
  }
  const bool echo_logprobs = request.echo && request.common.generate.top_logprobs;
  if (echo_logprobs) prompt.request.scoring = {.from = 0, .top = *request.common.generate.top_logprobs};
  if (echo_logprobs || request.common.return_token_ids) prompt.ids = ids;
  return prompt;
}

HttpResponse tokens_response(const std::vector<TokenId>& ids, bool with_pieces, const Backend& backend) {
  std::string body;
  json::Writer w(body);
  w.begin_object().field("count", ids.size()).field("max_model_len", backend.facts().context);
  w.key("tokens").begin_array();
  for (TokenId id : ids) w.value(id.value);
  w.end_array();
  if (with_pieces) {
    w.key("token_strs").begin_array();
    for (TokenId id : ids) w.value(token_text(backend, id));
    w.end_array();
  }
  w.end_object();
  return {.status = 200, .body = std::move(body)};
}

}  // namespace

Prepared prepare_chat(std::string_view body, const PrepareContext& context) {
  auto value = parse_body(body, context.max_body_bytes);
  if (!value) return {invalid_request(value.error())};
  auto request = read_chat_request(value->as_object(), context.backend.facts());
  if (!request) return {invalid_request(request.error())};
  const std::size_t unknown = request->common.num_unknown;
  if (auto error = check_model(request->common.model, context)) return {*error, unknown};
  auto ids = chat_tokens(*request, context.backend);
  if (auto* error = std::get_if<ApiError>(&ids)) return {std::move(*error), unknown};
  std::vector<TokenId>& tokens = std::get<1>(ids);
  if (tokens.empty()) return {invalid_field("messages", "the rendered prompt has no tokens"), unknown};
  if (auto error = check_length("messages", tokens.size(), context.backend.facts())) return {*error, unknown};

  Call call = make_call(Call::Kind::chat, request->common, context);
  Call::Prompt prompt{.request = std::move(request->common.generate)};
  prompt.request.prompt = std::move(tokens);
  prompt.request.sampling.seed = call.seed;
  if (call.return_token_ids) prompt.ids = prompt.request.prompt;
  call.prompts.push_back(std::move(prompt));
  return {std::move(call), unknown};
}

Prepared prepare_completion(std::string_view body, const PrepareContext& context) {
  auto value = parse_body(body, context.max_body_bytes);
  if (!value) return {invalid_request(value.error())};
  auto request = read_completion_request(value->as_object(), context.backend.facts());
  if (!request) return {invalid_request(request.error())};
  const std::size_t unknown = request->common.num_unknown;
  if (auto error = check_model(request->common.model, context)) return {*error, unknown};

  Call call = make_call(Call::Kind::completion, request->common, context);
  call.echo = request->echo;
  if (request->prompts.size() * call.choices_per_prompt > limits::kPrompts) {
    return {invalid_field("n", cat("found ", call.choices_per_prompt, " for each of ", request->prompts.size(),
                                   " prompts, wanted at most ", limits::kPrompts, " answers in all")),
            unknown};
  }
  for (std::size_t i = 0; i < request->prompts.size(); ++i) {
    auto prompt = completion_prompt(*request, request->prompts[i], context.backend);
    if (auto* error = std::get_if<ApiError>(&prompt)) return {std::move(*error), unknown};
    // A drawn seed differs from prompt to prompt, so that the same prompt sent twice gives two samples.
    const std::size_t first = request->common.seed_given ? 0 : i * call.choices_per_prompt;
    call.prompts.push_back(std::get<1>(std::move(prompt)));
    call.prompts.back().request.sampling.seed = sampling::branch_seed(call.seed, first);
  }
  return {std::move(call), unknown};
}

Prepared prepare_tokenize(std::string_view body, const PrepareContext& context) {
  const Backend& backend = context.backend;
  auto value = parse_body(body, context.max_body_bytes);
  if (!value) return {invalid_request(value.error())};
  auto request = read_tokenize_request(value->as_object(), backend.facts());
  if (!request) return {invalid_request(request.error())};
  if (auto error = check_model(request->model, context)) return {*error, request->num_unknown};
  const auto* chat = std::get_if<ChatRequest>(&request->input);
  Outcome<std::vector<TokenId>> ids;
  if (chat) {
    ids = chat_tokens(*chat, backend);
  } else {
    // Counting is allowed beyond the context.
    const std::string& text = std::get<std::string>(request->input);
    auto encoded = backend.encode(text, request->parse_special ? SpecialTokens::parsed : SpecialTokens::as_text);
    if (!encoded) return {invalid_field("prompt", encoded.error().message), request->num_unknown};
    ids = request->add_special_tokens ? backend.with_bos(*std::move(encoded)) : *std::move(encoded);
  }
  if (auto* error = std::get_if<ApiError>(&ids)) return {std::move(*error), request->num_unknown};
  return {tokens_response(std::get<1>(ids), request->with_pieces, backend), request->num_unknown};
}

Prepared prepare_detokenize(std::string_view body, const PrepareContext& context) {
  auto value = parse_body(body, context.max_body_bytes);
  if (!value) return {invalid_request(value.error())};
  auto request = read_detokenize_request(value->as_object(), context.backend.facts());
  if (!request) return {invalid_request(request.error())};
  if (auto error = check_model(request->model, context)) return {*error, request->num_unknown};
  const std::string text = context.backend.decode(request->tokens, ControlTokens::show);
  std::string out;
  json::Writer w(out);
  w.begin_object().field("prompt", text).field("content", text).end_object();
  return {HttpResponse{.status = 200, .body = std::move(out)}, request->num_unknown};
}

}  // namespace quire::server
