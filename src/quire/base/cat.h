#pragma once
// cat(a, b, c): the arguments as text, joined. Used for messages; numbers are printed in shortest round-trip form.

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

namespace quire {

template <class T>
void append_text(std::string& out, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    out += value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, char>) {
    out += value;
  } else if constexpr (std::is_arithmetic_v<T>) {
    char buffer[64];
    auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
    out.append(buffer, end);
  } else if constexpr (std::is_enum_v<T>) {
    append_text(out, static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (requires { value.value; }) {
    append_text(out, value.value);  // a strong id
  } else {
    out += std::string_view(value);
  }
}

template <class... Args>
std::string cat(const Args&... args) {
  std::string out;
  (append_text(out, args), ...);
  return out;
}

}  // namespace quire
