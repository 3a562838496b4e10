#include "quire/loadgen/stream_event.h"

#include <algorithm>

#include "quire/json/json.h"

namespace quire::loadgen {
namespace {

constexpr std::size_t kMaxShownBytes = 200;

bool is_text(const json::Value* value) {
  const std::string* text = value == nullptr ? nullptr : value->if_string();
  return text != nullptr && !text->empty();
}

/// A choice's text: `text`, or what its delta holds.
bool has_text(const json::Value& choice) {
  if (is_text(choice.find("text"))) return true;
  const json::Value* delta = choice.find("delta");
  if (delta == nullptr) return false;
  return is_text(delta->find("content")) || is_text(delta->find("reasoning_content")) ||
         is_text(delta->find("reasoning"));
}

std::string message_of(const json::Value& error) {
  if (const std::string* text = error.if_string()) return *text;
  const json::Value* message = error.find("message");
  if (message != nullptr && message->is_string()) return message->as_string();
  return json::dump(error);
}

/// Printable and short.
std::string shown(std::string text) {
  text.resize(std::min(text.size(), kMaxShownBytes));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

}  // namespace

Result<StreamEvent> read_stream_event(std::string_view data) {
  StreamEvent event;
  if (data == "[DONE]") return event.done = true, event;
  QUIRE_TRY(const json::Value value, json::parse(data));
  if (const json::Value* error = value.find("error"); error != nullptr && !error->is_null()) {
    event.error = shown(message_of(*error));
  }
  if (const json::Value* choices = value.find("choices"); choices != nullptr && choices->is_array()) {
    for (const json::Value& choice : choices->as_array()) {
      event.has_text |= has_text(choice);
      const json::Value* reason = choice.find("finish_reason");
      event.finished |= reason != nullptr && !reason->is_null();
    }
  }
  if (const json::Value* usage = value.find("usage"); usage != nullptr) {
    const json::Value* tokens = usage->find("completion_tokens");
    if (tokens != nullptr) event.completion_tokens = tokens->if_int();
  }
  return event;
}

std::string error_message(std::string_view body) {
  const auto value = json::parse(body);
  if (value.ok()) {
    if (const json::Value* error = value->find("error")) return shown(message_of(*error));
  }
  return shown(std::string(body));
}

}  // namespace quire::loadgen
