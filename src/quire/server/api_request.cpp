#include "quire/server/api_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "quire/base/cat.h"
#include "quire/json/reader.h"
#include "quire/server/beam_fields.h"
#include "quire/text/chat_template.h"

namespace quire::server {
namespace {

using json::field_error;
using json::IntRange;
using json::NumberRange;
using json::ObjectReader;
using json::Value;

/// A feature that is not there yet. The field is accepted only where it asks for nothing.
struct NotBuilt {
  std::string_view name;
  double neutral_number = 0;  ///< a number that asks for nothing
};

constexpr NotBuilt kNotBuilt[] = {
    // OpenAI
    {"tools"},
    {"functions"},
    {"function_call"},
    {"audio"},
    {"prediction"},
    {"web_search_options"},
    {"suffix"},
    // structured output, by the names of several servers
    {"grammar"},
    {"json_schema"},
    {"guided_json"},
    {"guided_regex"},
    {"guided_choice"},
    {"guided_grammar"},
    {"structured_outputs"},
    {"regex"},
    // vLLM
    {"prompt_logprobs"},
    {"bad_words"},
    {"allowed_token_ids"},
    {"truncate_prompt_tokens"},
    {"include_stop_str_in_output"},
    {"continue_final_message"},
    {"documents"},
    {"prompt_embeds"},
    {"logits_processors"},
    // llama.cpp
    {"mirostat"},
    {"typical_p", 1},
    {"dynatemp_range"},
    {"dry_multiplier"},
    {"xtc_probability"},
    {"top_n_sigma", -1},
    {"n_probs"},
    {"n_keep"},
    {"image_data"},
    {"multimodal_data"},
    {"samplers"},
    {"lora"},
    {"t_max_predict_ms"},
};

// Accepted for the sake of clients that send them, without effect here.
constexpr std::string_view kWithoutEffect[] = {"user",
                                               "metadata",
                                               "store",
                                               "service_tier",
                                               "parallel_tool_calls",
                                               "prompt_cache_key",
                                               "cache_prompt",
                                               "request_id",
                                               "safety_identifier",
                                               "spaces_between_special_tokens",
                                               "id_slot",
                                               "keep_alive",
                                               "repeat_last_n"};

bool asks_for_nothing(const Value& value, double neutral_number) {
  if (auto truth = value.if_bool()) return !*truth;
  if (auto number = value.if_number()) return *number == neutral_number;
  if (const std::string* text = value.if_string()) return text->empty() || *text == "none";
  if (const json::Array* array = value.if_array()) return array->empty();
  if (const json::Object* object = value.if_object()) return object->empty();
  return true;
}

Error not_built(std::string_view field) { return field_error(field, "not supported by this server yet; leave it out"); }

Result<void> refuse_not_built(ObjectReader& reader) {
  for (const NotBuilt& feature : kNotBuilt) {
    const Value* value = reader.optional_value(feature.name);
    if (value && !asks_for_nothing(*value, feature.neutral_number)) return not_built(feature.name);
  }
  for (std::string_view name : kWithoutEffect) reader.has(name);
  if (reader.has("chat_template")) {
    return field_error("chat_template", "templates from requests are not taken; the model's own is used");
  }
  QUIRE_TRY(auto skip_special, reader.optional_bool("skip_special_tokens"));
  if (skip_special == false) return not_built("skip_special_tokens");
  QUIRE_TRY(auto tool_choice, reader.optional_choice("tool_choice", {"none", "auto", "required"}));
  if (tool_choice && *tool_choice != "none") return not_built("tool_choice");
  QUIRE_TRY(const json::Object* format, reader.optional_object("response_format"));
  if (format) {
    ObjectReader inner(*format, "response_format");
    QUIRE_TRY(auto type, inner.required_string("type"));
    if (type != "text") return field_error("response_format", "only the type 'text' is supported by this server yet");
  }
  QUIRE_TRY(const json::Array* modalities, reader.optional_array("modalities"));
  if (modalities) {
    for (const Value& item : *modalities) {
      if (item != Value("text")) return field_error("modalities", "only 'text' is supported by this server");
    }
  }
  return {};
}

Result<void> read_choice_count(ObjectReader& reader, CommonFields& fields) {
  QUIRE_TRY(auto count, reader.optional_int("n", {1, limits::kChoices}));
  fields.num_choices = static_cast<std::size_t>(count.value_or(1));
  return {};
}

Result<TokenId> read_token(const Value& value, const std::string& path, const ModelFacts& facts) {
  QUIRE_TRY(const std::int64_t id, json::read_int(value, path, {0, facts.vocab_size - 1}));
  return TokenId{static_cast<std::int32_t>(id)};
}

Result<std::vector<TokenId>> read_tokens(const json::Array& array, const std::string& path, const ModelFacts& facts) {
  std::vector<TokenId> tokens;
  tokens.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i) {
    // The path of an item is worded only when it is wrong.
    auto id = array[i].if_int();
    if (!id || *id < 0 || *id >= facts.vocab_size) return read_token(array[i], cat(path, "[", i, "]"), facts).error();
    tokens.push_back(TokenId{static_cast<std::int32_t>(*id)});
  }
  return tokens;
}

Result<std::string> read_stop(const Value& value, const std::string& path) {
  QUIRE_TRY(const std::string_view text, json::read_string(value, path, limits::kStopBytes));
  if (text.empty()) return field_error(path, "found an empty string, wanted at least one character");
  if (text.find('\0') != std::string_view::npos) return field_error(path, "found a NUL character");
  return std::string(text);
}

Result<void> read_stops(ObjectReader& reader, engine::GenerateRequest& request) {
  const Value* stop = reader.optional_value("stop");
  if (stop && stop->is_array()) {
    QUIRE_TRY(const json::Array* items, reader.optional_array("stop", limits::kStops));
    for (std::size_t i = 0; i < items->size(); ++i) {
      QUIRE_TRY(std::string text, read_stop((*items)[i], reader.path_of("stop", i)));
      request.stop.push_back(std::move(text));
    }
  } else if (stop) {
    if (!stop->is_string()) return json::wrong_kind("stop", *stop, "a string or an array of strings");
    QUIRE_TRY(std::string text, read_stop(*stop, "stop"));
    request.stop.push_back(std::move(text));
  }
  return {};
}

Result<void> read_logit_bias(ObjectReader& reader, const ModelFacts& facts, sampling::SamplingParams& sampling) {
  QUIRE_TRY(const json::Object* object, reader.optional_object("logit_bias", limits::kLogitBias));
  if (!object) return {};
  std::unordered_set<std::int32_t> seen;  // "7" and "07" are one token
  for (const json::Member& member : *object) {
    std::int32_t id = -1;
    const char* end = member.key.data() + member.key.size();
    const auto parsed = std::from_chars(member.key.data(), end, id);
    if (parsed.ec != std::errc() || parsed.ptr != end || id < 0 || id >= facts.vocab_size) {
      std::string shown;
      json::append_string(shown, std::string_view(member.key).substr(0, 60), true);
      return field_error("logit_bias",
                         cat("found the key ", shown, ", wanted a token id from 0 to ", facts.vocab_size - 1));
    }
    if (!seen.insert(id).second) return field_error("logit_bias", cat("token ", id, " is named twice"));
    QUIRE_TRY(const double bias, json::read_number(member.value, cat("logit_bias.", member.key), {-100, 100}));
    sampling.logit_bias.push_back({TokenId{id}, static_cast<float>(bias)});
  }
  return {};
}

/// The value under the first of several names; two of them with different values are refused.
template <class T, class Read>
Result<std::optional<T>> read_alias(std::initializer_list<std::string_view> names, Read read) {
  std::optional<T> found;
  std::string_view found_name;
  for (std::string_view name : names) {
    QUIRE_TRY(std::optional<T> value, read(name));
    if (!value) continue;
    if (found && *found != *value) return field_error(name, cat("differs from '", found_name, "'"));
    found = value;
    found_name = name;
  }
  return found;
}

Result<void> read_sampling(ObjectReader& reader, const ModelFacts& facts, CommonFields& fields) {
  sampling::SamplingParams& s = fields.generate.sampling;
  const auto number = [&](std::string_view name, NumberRange range, double& into) -> Result<void> {
    QUIRE_TRY(auto value, reader.optional_number(name, range));
    if (value) into = *value;
    return {};
  };
  QUIRE_TRY_VOID(number("temperature", {0, 100}, s.temperature));
  QUIRE_TRY_VOID(number("top_p", {.min = 0, .max = 1, .min_excluded = true}, s.top_p));
  QUIRE_TRY_VOID(number("min_p", {0, 1}, s.min_p));
  QUIRE_TRY_VOID(number("presence_penalty", {-2, 2}, s.presence_penalty));
  QUIRE_TRY_VOID(number("frequency_penalty", {-2, 2}, s.frequency_penalty));
  QUIRE_TRY(auto repetition, read_alias<double>({"repetition_penalty", "repeat_penalty"}, [&](std::string_view name) {
              return reader.optional_number(name, {.min = 0, .max = 10, .min_excluded = true});
            }));
  if (repetition) s.repetition_penalty = *repetition;
  QUIRE_TRY(auto top_k, reader.optional_int("top_k", {-1, INT32_MAX}));
  if (top_k) s.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(0, *top_k));
  QUIRE_TRY(auto seed, reader.optional_int("seed", {-1, INT64_MAX}));
  fields.seed_given = seed && *seed >= 0;
  if (fields.seed_given) s.seed = static_cast<std::uint64_t>(*seed);
  return read_logit_bias(reader, facts, s);
}

Result<void> read_lengths(ObjectReader& reader, engine::GenerateRequest& request) {
  const auto read = [&](std::string_view name) -> Result<std::optional<std::int64_t>> {
    QUIRE_TRY(auto value, reader.optional_int(name, {name == "n_predict" ? -1 : 0, limits::kMaxTokens}));
    if (value == -1) return std::optional<std::int64_t>();
    return value;
  };
  QUIRE_TRY(auto max_tokens, read_alias<std::int64_t>({"max_tokens", "max_completion_tokens", "n_predict"}, read));
  if (max_tokens) request.max_tokens = static_cast<std::int32_t>(*max_tokens);
  QUIRE_TRY(auto min_tokens, reader.optional_int("min_tokens", {0, limits::kMaxTokens}));
  if (min_tokens) request.min_tokens = static_cast<std::int32_t>(*min_tokens);
  if (max_tokens && min_tokens && *min_tokens > *max_tokens) {
    return field_error("min_tokens", cat("found ", *min_tokens, ", wanted at most max_tokens, which is ", *max_tokens));
  }
  return {};
}

Result<CommonFields> read_common(ObjectReader& reader, const ModelFacts& facts) {
  CommonFields fields;
  QUIRE_TRY_VOID(read_choice_count(reader, fields));
  QUIRE_TRY_VOID(refuse_not_built(reader));
  QUIRE_TRY(auto model, reader.optional_string("model", limits::kModelNameBytes));
  fields.model = model.value_or("");
  QUIRE_TRY(auto stream, reader.optional_bool("stream"));
  fields.stream = stream.value_or(false);
  QUIRE_TRY(const json::Object* stream_options, reader.optional_object("stream_options"));
  if (stream_options) {
    if (!fields.stream) return field_error("stream_options", "only allowed when 'stream' is true");
    ObjectReader inner(*stream_options, "stream_options");
    QUIRE_TRY(auto include_usage, inner.optional_bool("include_usage"));
    fields.include_usage = include_usage.value_or(false);
    fields.num_unknown += inner.unknown_fields().size();
  }
  QUIRE_TRY_VOID(read_sampling(reader, facts, fields));
  QUIRE_TRY_VOID(read_lengths(reader, fields.generate));
  QUIRE_TRY_VOID(read_stops(reader, fields.generate));
  QUIRE_TRY(const json::Array* stop_tokens, reader.optional_array("stop_token_ids", limits::kStopTokens));
  if (stop_tokens) {
    QUIRE_TRY(fields.generate.stop_tokens, read_tokens(*stop_tokens, "stop_token_ids", facts));
  }
  QUIRE_TRY(auto priority, reader.optional_int("priority", {INT32_MIN, INT32_MAX}));
  fields.generate.priority = static_cast<std::int32_t>(priority.value_or(0));
  QUIRE_TRY(auto cache_salt, reader.optional_string("cache_salt", limits::kCacheSaltBytes));
  fields.generate.cache_salt = cache_salt.value_or("");
  QUIRE_TRY(auto ignore_eos, reader.optional_bool("ignore_eos"));
  fields.generate.ignore_eos = ignore_eos.value_or(false);
  QUIRE_TRY(auto return_ids, reader.optional_bool("return_token_ids"));
  fields.return_token_ids = return_ids.value_or(false);
  QUIRE_TRY_VOID(read_beam_fields(reader, fields));
  if (!fields.generate.beams) fields.generate.num_branches = static_cast<std::int32_t>(fields.num_choices);
  return fields;
}

Result<void> check_logprobs(const engine::GenerateRequest& generate) {
  if (!generate.beams || !generate.top_logprobs) return {};
  return field_error("logprobs", "not beside use_beam_search: the score of each answer is given");
}

Result<std::string> read_content_parts(const json::Array& parts, const std::string& path, std::size_t& num_unknown) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string part_path = cat(path, "[", i, "]");
    QUIRE_TRY(const json::Object* part, json::read_object(parts[i], part_path));
    ObjectReader reader(*part, part_path);
    QUIRE_TRY(const std::string_view type, reader.required_string("type", 64));
    if (type != "text") {
      std::string shown;
      json::append_string(shown, type, true);
      return field_error(reader.path_of("type"),
                         cat("found ", shown, ", wanted \"text\": this server takes text only"));
    }
    QUIRE_TRY(const std::string_view piece, reader.required_string("text"));
    if (i > 0) text += '\n';
    text += piece;
    num_unknown += reader.unknown_fields().size();
  }
  return text;
}

Result<json::Object> read_message(const Value& value, const std::string& path, std::size_t& num_unknown) {
  QUIRE_TRY(const json::Object* object, json::read_object(value, path));
  ObjectReader reader(*object, path);
  QUIRE_TRY(const std::string_view role, reader.required_string("role", 256));
  if (role == "tool" || role == "function") {
    return field_error(reader.path_of("role"), cat("'", role, "' messages are not supported by this server yet"));
  }
  if (role != "system" && role != "developer" && role != "user" && role != "assistant") {
    std::string shown;
    json::append_string(shown, role.substr(0, 60), true);
    return field_error(reader.path_of("role"), cat("found ", shown, ", wanted system, developer, user or assistant"));
  }
  for (std::string_view name : {"tool_calls", "function_call", "audio"}) {
    const Value* calls = reader.optional_value(name);
    if (calls && !asks_for_nothing(*calls, 0)) return not_built(reader.path_of(name));
  }
  reader.has("refusal");
  const Value* content = reader.optional_value("content");
  if (!content) return field_error(reader.path_of("content"), "missing, wanted a string or an array of text parts");
  std::string text;
  if (content->is_array()) {
    QUIRE_TRY(const json::Array* parts, reader.required_array("content", limits::kContentParts));
    QUIRE_TRY(text, read_content_parts(*parts, reader.path_of("content"), num_unknown));
  } else if (content->is_string()) {
    text = content->as_string();
  } else {
    return json::wrong_kind(reader.path_of("content"), *content, "a string or an array of text parts");
  }
  QUIRE_TRY(auto name, reader.optional_string("name", 256));
  num_unknown += reader.unknown_fields().size();
  json::Object message{{"role", role == "developer" ? "system" : role}, {"content", std::move(text)}};
  if (name) message.append("name", *name);
  return message;
}

Result<json::Value> read_messages(ObjectReader& reader, std::size_t& num_unknown) {
  QUIRE_TRY(const json::Array* items, reader.required_array("messages", limits::kMessages));
  if (items->empty()) return field_error("messages", "found an empty array, wanted at least one message");
  json::Array messages;
  messages.reserve(items->size());
  for (std::size_t i = 0; i < items->size(); ++i) {
    QUIRE_TRY(json::Object message, read_message((*items)[i], reader.path_of("messages", i), num_unknown));
    messages.push_back(std::move(message));
  }
  return json::Value(std::move(messages));
}

Result<void> read_chat_input(ObjectReader& reader, const ModelFacts& facts, ChatRequest& request) {
  if (!facts.has_chat_template) {
    const std::string why = facts.chat_template_fault.empty()
                                ? "the model has no chat template"
                                : cat("the model's chat template cannot be used (", facts.chat_template_fault, ")");
    return field_error("messages",
                       why + ", so chat is not possible; render the prompt yourself and use /v1/completions");
  }
  QUIRE_TRY(request.messages, read_messages(reader, request.common.num_unknown));
  QUIRE_TRY(auto generation_prompt, reader.optional_bool("add_generation_prompt"));
  request.add_generation_prompt = generation_prompt.value_or(true);
  QUIRE_TRY(const json::Object* variables, reader.optional_object("chat_template_kwargs", 64));
  if (!variables) return {};
  for (const json::Member& variable : *variables)
    if (ChatTemplate::is_reserved_variable(variable.key))
      return field_error(cat("chat_template_kwargs.", variable.key),
                         "a name that the template gets from the request itself; leave it out");
  request.template_variables = *variables;
  return {};
}

/// Every item an integer: one prompt of token ids. Else each item is a prompt.
Result<std::vector<PromptInput>> read_prompt_array(const json::Array& items, const ModelFacts& facts) {
  std::vector<PromptInput> prompts;
  if (items.empty()) return field_error("prompt", "found an empty array, wanted text or token ids");
  if (items.front().is_number()) {
    QUIRE_TRY(std::vector<TokenId> tokens, read_tokens(items, "prompt", facts));
    prompts.emplace_back(std::move(tokens));
    return prompts;
  }
  if (items.size() > limits::kPrompts) {
    return field_error("prompt", cat("found ", items.size(), " prompts, wanted at most ", limits::kPrompts));
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string path = cat("prompt[", i, "]");
    if (const std::string* text = items[i].if_string()) {
      if (text->empty()) return field_error(path, "found an empty string, wanted at least one character");
      prompts.emplace_back(*text);
    } else if (const json::Array* ids = items[i].if_array()) {
      if (ids->empty()) return field_error(path, "found an empty array, wanted token ids");
      QUIRE_TRY(std::vector<TokenId> tokens, read_tokens(*ids, path, facts));
      prompts.emplace_back(std::move(tokens));
    } else {
      return json::wrong_kind(path, items[i], "a string or an array of token ids");
    }
  }
  return prompts;
}

Result<std::vector<PromptInput>> read_prompts(ObjectReader& reader, const ModelFacts& facts) {
  const Value* prompt = reader.optional_value("prompt");
  if (!prompt) return field_error("prompt", "missing, wanted a string, an array of strings, or token ids");
  if (const json::Array* items = prompt->if_array()) return read_prompt_array(*items, facts);
  if (!prompt->if_string()) return json::wrong_kind("prompt", *prompt, "a string, an array of strings, or token ids");
  const std::string& text = prompt->as_string();
  if (text.empty()) return field_error("prompt", "found an empty string, wanted at least one character");
  return std::vector<PromptInput>{text};
}

}  // namespace

Result<json::Value> parse_body(std::string_view body, std::size_t max_bytes) {
  auto value = json::parse(body, {.max_bytes = max_bytes, .max_depth = limits::kJsonDepth});
  if (!value) return fail("the body is not valid JSON: ", value.error().message);
  if (!value->is_object()) return fail("the body is ", json::kind_name(value->kind()), ", wanted a JSON object");
  return value;
}

Result<ChatRequest> read_chat_request(const json::Object& body, const ModelFacts& facts) {
  ObjectReader reader(body);
  ChatRequest request;
  QUIRE_TRY(request.common, read_common(reader, facts));
  engine::GenerateRequest& generate = request.common.generate;
  if (generate.max_tokens == 0) return field_error("max_tokens", "found 0, wanted at least 1");
  QUIRE_TRY(auto echo, reader.optional_bool("echo"));
  if (echo == true) return field_error("echo", "only /v1/completions can echo the prompt");
  QUIRE_TRY(auto logprobs, reader.optional_bool("logprobs"));
  QUIRE_TRY(auto top_logprobs, reader.optional_int("top_logprobs", {0, limits::kTopLogprobs}));
  if (top_logprobs && logprobs != true) return field_error("top_logprobs", "only allowed when 'logprobs' is true");
  if (logprobs == true) generate.top_logprobs = static_cast<std::int32_t>(top_logprobs.value_or(0));
  QUIRE_TRY_VOID(check_logprobs(generate));
  QUIRE_TRY_VOID(read_chat_input(reader, facts, request));
  request.common.num_unknown += reader.unknown_fields().size();
  return request;
}

Result<CompletionRequest> read_completion_request(const json::Object& body, const ModelFacts& facts) {
  ObjectReader reader(body);
  CompletionRequest request;
  QUIRE_TRY(request.common, read_common(reader, facts));
  engine::GenerateRequest& generate = request.common.generate;
  QUIRE_TRY(auto echo, reader.optional_bool("echo"));
  request.echo = echo.value_or(false);
  request.max_tokens_given = generate.max_tokens.has_value();
  if (!request.max_tokens_given) generate.max_tokens = std::max(16, generate.min_tokens);
  if (generate.max_tokens == 0 && !request.echo) {
    return field_error("max_tokens", "found 0, wanted at least 1 (0 is for 'echo')");
  }
  QUIRE_TRY(auto logprobs, reader.optional_int("logprobs", {0, limits::kTopLogprobs}));
  if (logprobs) generate.top_logprobs = static_cast<std::int32_t>(*logprobs);
  QUIRE_TRY_VOID(check_logprobs(generate));
  QUIRE_TRY(auto add_special, reader.optional_bool("add_special_tokens"));
  request.add_special_tokens = add_special.value_or(true);
  QUIRE_TRY(auto parse_special, reader.optional_bool("parse_special"));
  request.parse_special = parse_special.value_or(true);
  QUIRE_TRY(request.prompts, read_prompts(reader, facts));
  request.common.num_unknown += reader.unknown_fields().size();
  return request;
}

Result<TokenizeRequest> read_tokenize_request(const json::Object& body, const ModelFacts& facts) {
  ObjectReader reader(body);
  TokenizeRequest request;
  QUIRE_TRY(auto model, reader.optional_string("model", limits::kModelNameBytes));
  request.model = model.value_or("");
  if (reader.has("messages")) {
    ChatRequest chat;
    QUIRE_TRY_VOID(read_chat_input(reader, facts, chat));
    request.num_unknown = chat.common.num_unknown;
    request.input = std::move(chat);
  } else {
    const bool has_prompt = reader.has("prompt");
    if (!has_prompt && !reader.has("content")) {
      return field_error("prompt", "missing, wanted a string (or 'messages')");
    }
    QUIRE_TRY(const std::string_view text, reader.required_string(has_prompt ? "prompt" : "content"));
    request.input = std::string(text);
    request.add_special_tokens = has_prompt;
  }
  QUIRE_TRY(auto add_special, read_alias<bool>({"add_special_tokens", "add_special"},
                                               [&](std::string_view name) { return reader.optional_bool(name); }));
  if (add_special) request.add_special_tokens = *add_special;
  QUIRE_TRY(auto parse_special, reader.optional_bool("parse_special"));
  request.parse_special = parse_special.value_or(true);
  QUIRE_TRY(auto pieces, read_alias<bool>({"return_token_strs", "with_pieces"},
                                          [&](std::string_view name) { return reader.optional_bool(name); }));
  request.with_pieces = pieces.value_or(false);
  request.num_unknown += reader.unknown_fields().size();
  return request;
}

Result<DetokenizeRequest> read_detokenize_request(const json::Object& body, const ModelFacts& facts) {
  ObjectReader reader(body);
  DetokenizeRequest request;
  QUIRE_TRY(auto model, reader.optional_string("model", limits::kModelNameBytes));
  request.model = model.value_or("");
  QUIRE_TRY(const json::Array* tokens, reader.required_array("tokens"));
  QUIRE_TRY(request.tokens, read_tokens(*tokens, "tokens", facts));
  request.num_unknown = reader.unknown_fields().size();
  return request;
}

}  // namespace quire::server
