// Fuzzes chat templates: any source is rendered, or ends with an error, within its limits; never a crash. The input is
// a template, then a zero byte, then the content of a message.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/check.h"
#include "quire/text/chat_template.h"
#include "quire/text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quire;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = std::min(input.find('\0'), input.size());
  auto chat_template = ChatTemplate::parse(input.substr(0, zero));
  if (!chat_template.ok()) return 0;

  const std::string content(zero < input.size() ? input.substr(zero + 1) : "Hello <|im_end|> w\xC3\xB6rld");
  const json::Value messages(json::Array{json::Object{{"role", "system"}, {"content", "Be brief."}},
                                         json::Object{{"role", "user"}, {"content", content}}});
  const json::Object variables{{"nums", json::Array{1, 2.5, nullptr, true}}, {"d", json::Object{{"a", "b"}}}};
  ChatInput chat{.messages = messages};
  chat.variables = &variables;
  const TemplateLimits limits{.max_steps = 20'000, .max_output_bytes = 100'000, .max_range = 1'000, .max_depth = 200};
  auto rendered = chat_template->render(chat, limits);
  if (!rendered.ok()) return 0;
  QUIRE_CHECK(rendered->text.size() <= limits.max_output_bytes);
  QUIRE_CHECK(is_valid_utf8(rendered->text));
  std::size_t done = 0;
  for (const TextRange& range : rendered->from_input) {
    QUIRE_CHECK(range.begin < range.end && range.end <= rendered->text.size() && (range.begin > done || done == 0));
    done = range.end;
  }
  return 0;
}
