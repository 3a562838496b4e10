#include "quire/server/logprobs.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "quire/base/cat.h"
#include "quire/json/json.h"
#include "quire/text/utf8.h"

namespace quire::server {
namespace {

void append_logprob(std::string& out, float logprob) { append_text(out, std::isfinite(logprob) ? logprob : -9999.0f); }

void append_comma(std::string& list) {
  if (!list.empty()) list += ',';
}

void append_bytes(std::string& out, std::string_view bytes) {
  out += '[';
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    append_text(out, static_cast<int>(static_cast<unsigned char>(bytes[i])));
  }
  out += ']';
}

void append_chat_token(std::string& out, const Backend& backend, TokenId id, float logprob) {
  out += "{\"token\":";
  json::append_string(out, token_text(backend, id));
  out += ",\"logprob\":";
  append_logprob(out, logprob);
  out += ",\"bytes\":";
  append_bytes(out, backend.token_bytes(id));
}

}  // namespace

std::string token_text(const Backend& backend, TokenId id) {
  const std::string_view bytes = backend.token_bytes(id);
  if (is_valid_utf8(bytes)) return std::string(bytes);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "bytes:";
  for (char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += "\\x";
    out += kDigits[byte / 16];
    out += kDigits[byte % 16];
  }
  return out;
}

void ChatLogprobs::add(const engine::OutputToken& token) {
  append_comma(items_);
  append_chat_token(items_, *backend_, token.token, token.logprob);
  items_ += ",\"top_logprobs\":[";
  for (std::size_t i = 0; i < token.top.size(); ++i) {
    if (i > 0) items_ += ',';
    append_chat_token(items_, *backend_, token.top[i].token, token.top[i].logprob);
    items_ += '}';
  }
  items_ += "]}";
}

std::string ChatLogprobs::take() {
  std::string out = cat("{\"content\":[", items_, "],\"refusal\":null}");
  items_.clear();
  return out;
}

void CompletionLogprobs::add_prompt_token(TokenId token, std::optional<float> logprob,
                                          std::span<const engine::TokenLogprob> top) {
  add_token(token, logprob, top);
}

void CompletionLogprobs::add(const engine::OutputToken& token) { add_token(token.token, token.logprob, token.top); }

void CompletionLogprobs::add_token(TokenId token, std::optional<float> logprob,
                                   std::span<const engine::TokenLogprob> top) {
  const std::string text = token_text(*backend_, token);
  append_comma(tokens_);
  json::append_string(tokens_, text);
  append_comma(logprobs_);
  logprob ? append_logprob(logprobs_, *logprob) : void(logprobs_ += "null");
  append_comma(offsets_);
  append_text(offsets_, characters_);
  append_comma(tops_);
  if (logprob) {
    std::vector<std::string> keys;
    const auto add_entry = [&](TokenId id, float value) {
      std::string key = token_text(*backend_, id);
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) key = cat("token_id:", id);
      tops_ += keys.empty() ? "" : ",";
      json::append_string(tops_, key);
      tops_ += ':';
      append_logprob(tops_, value);
      keys.push_back(std::move(key));
    };
    tops_ += '{';
    bool listed = false;
    for (const engine::TokenLogprob& entry : top) {
      add_entry(entry.token, entry.logprob);
      listed = listed || entry.token == token;
    }
    if (!listed) add_entry(token, *logprob);
    tops_ += '}';
  } else {
    tops_ += "null";
  }
  if (backend_->is_control(token)) return;  // stands for no text
  for (char c : backend_->token_bytes(token)) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++characters_;
  }
}

std::string CompletionLogprobs::take() {
  std::string out = cat("{\"tokens\":[", tokens_, "],\"token_logprobs\":[", logprobs_, "],\"top_logprobs\":[", tops_,
                        "],\"text_offset\":[", offsets_, "]}");
  for (std::string* list : {&tokens_, &logprobs_, &tops_, &offsets_}) list->clear();
  return out;
}

}  // namespace quire::server
