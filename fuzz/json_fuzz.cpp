// Fuzzes the JSON parser: any bytes are a value or refused; what is printed parses to the same value again.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quire/base/check.h"
#include "quire/json/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto value = quire::json::parse(text, {.max_bytes = 1 << 20, .max_depth = 64, .max_values = 100'000});
  std::string quoted;
  quire::json::append_string(quoted, text);
  QUIRE_CHECK(quire::json::parse(quoted).ok());  // any bytes as a string are valid JSON
  if (!value.ok()) return 0;
  for (const quire::json::DumpOptions& options :
       {quire::json::DumpOptions{}, quire::json::DumpOptions{.indent = 2, .ascii_only = true}}) {
    auto again = quire::json::parse(quire::json::dump(*value, options));
    QUIRE_CHECK(again.ok() && *again == *value);
  }
  return 0;
}
