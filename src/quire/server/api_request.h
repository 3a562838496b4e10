#pragma once
// From the JSON of a request to what is to be done: typed fields, ranges, limits. Nothing is tokenised, and nothing
// larger than the request is allocated. Errors name the field (json/reader.h).
//
// Both endpoints: model, stream, stream_options.include_usage, max_tokens (0 only in completions with echo),
// temperature [0, 100], top_p (0, 1], top_k (-1 and 0: all), min_p [0, 1], presence_penalty and frequency_penalty [-2,
// 2], repetition_penalty (0, 10], logit_bias {"id": -100..100}, seed (-1: drawn), stop (a string or up to 16, of 1 to
// 256 bytes without NUL), stop_token_ids, min_tokens, ignore_eos, return_token_ids, priority (32 bits), cache_salt (up
// to 256 bytes; requests of different salts never share cached prefixes); n (up to 16, and with several prompts up to
// 128 answers in all), best_of (only the same as n). Chat: messages, max_completion_tokens, logprobs with top_logprobs
// (up to 20), add_generation_prompt, chat_template_kwargs. Content is a string or an array of text parts, which are
// joined with a line feed, as vLLM and llama.cpp do; the role developer is given to the template as system.
// Completions: prompt (a string, strings, token ids, or arrays of token ids; up to 128 prompts), echo, logprobs (up to
// 20), add_special_tokens, parse_special; max_tokens is 16 by default, less where the context leaves less. Other names
// for the same: n_predict = max_tokens (-1: unset), repeat_penalty = repetition_penalty.
//
// Fields for features that are not there yet (kNotBuilt in the .cpp: tools, response_format, suffix, ...) are refused
// by name unless their value asks for nothing (null, false, an empty list, ...). Fields nobody knows are ignored and
// counted.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "quire/base/result.h"
#include "quire/engine/request.h"
#include "quire/json/json.h"
#include "quire/server/backend.h"

namespace quire::server {

namespace limits {
inline constexpr std::size_t kMessages = 4096;
inline constexpr std::size_t kContentParts = 1024;
inline constexpr std::size_t kPrompts = 128;
inline constexpr std::int64_t kChoices = kMaxBranches;
inline constexpr std::size_t kStops = 16;
inline constexpr std::size_t kStopBytes = 256;
inline constexpr std::size_t kStopTokens = 256;
inline constexpr std::size_t kLogitBias = 1024;
inline constexpr std::int64_t kTopLogprobs = 20;
inline constexpr std::int64_t kMaxTokens = INT32_MAX;
inline constexpr int kJsonDepth = 64;
inline constexpr std::size_t kModelNameBytes = 512;
inline constexpr std::size_t kCacheSaltBytes = 256;
}  // namespace limits

/// What both endpoints share.
struct CommonFields {
  std::string model;  ///< empty: not given
  bool stream = false;
  bool include_usage = false;
  std::size_t num_choices = 1;  ///< for each prompt
  bool seed_given = false;      ///< else one is to be drawn
  bool return_token_ids = false;
  std::size_t num_unknown = 0;       ///< fields that were ignored
  engine::GenerateRequest generate;  ///< all but the prompt and its scoring
};

struct ChatRequest {
  CommonFields common;
  json::Value messages;  ///< an array of {role, content[, name]}, content a string
  std::optional<json::Object> template_variables;
  bool add_generation_prompt = true;
};

using PromptInput = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  CommonFields common;
  std::vector<PromptInput> prompts;  ///< not empty; ids are in the vocabulary
  bool echo = false;
  bool max_tokens_given = false;
  bool add_special_tokens = true;
  bool parse_special = true;
};

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, ChatRequest> input;
  bool add_special_tokens = true;
  bool parse_special = true;
  bool with_pieces = false;
  std::size_t num_unknown = 0;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
  std::size_t num_unknown = 0;
};

/// The body as an object, within the limits; anything else is refused.
Result<json::Value> parse_body(std::string_view body, std::size_t max_bytes);

Result<ChatRequest> read_chat_request(const json::Object& body, const ModelFacts& facts);
Result<CompletionRequest> read_completion_request(const json::Object& body, const ModelFacts& facts);
/// `prompt` or `content` (text), or `messages`.
Result<TokenizeRequest> read_tokenize_request(const json::Object& body, const ModelFacts& facts);
Result<DetokenizeRequest> read_detokenize_request(const json::Object& body, const ModelFacts& facts);

}  // namespace quire::server
