#pragma once
// Text for the template interpreter: UTF-8 that remembers, byte by byte, whether it came from input (messages, tools)
// or from the template, and Python's string operations on it. Every operation carries the origin along: a byte of the
// result is input if the byte it was made from was.
//
// Positions are byte offsets unless a name says "index", which counts code points as Python does. The bytes are valid
// UTF-8. Each function takes time linear in its inputs and its result.

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/text/tokenizer.h"

namespace quire::jinja {

enum class Origin { kTemplate, kInput };

class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, Origin origin) { append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool is_ascii() const { return ascii_; }
  bool has_input() const { return !from_input_.empty(); }
  /// kInput if any byte is input: for results that mix their source beyond tracking.
  Origin origin() const { return has_input() ? Origin::kInput : Origin::kTemplate; }
  /// Sorted, disjoint, not touching.
  std::span<const TextRange> from_input() const { return from_input_; }

  void append(std::string_view bytes, Origin origin);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, std::size_t begin, std::size_t end);
  Text slice(std::size_t begin, std::size_t end) const;

  /// The number of code points.
  std::size_t length() const;
  /// Byte offset of each code point, and size() at the end.
  std::vector<std::size_t> offsets() const;

 private:
  void mark(std::size_t begin, std::size_t end);

  std::string bytes_;
  std::vector<TextRange> from_input_;
  bool ascii_ = true;
};

/// One code point of a text.
struct Character {
  char32_t code_point;
  std::size_t begin, end;
};

/// Calls `visit` for each code point in order.
void for_each_character(std::string_view bytes, const std::function<void(const Character&)>& visit);

bool is_space(char32_t c);      ///< str.isspace
bool is_alpha(char32_t c);      ///< str.isalpha
bool is_digit(char32_t c);      ///< decimal digits
bool is_printable(char32_t c);  ///< str.isprintable: what repr() leaves as it is
bool is_upper(char32_t c);
bool is_lower(char32_t c);

/// Where str.strip removes.
enum class Side { kLeft, kRight, kBoth };

Text to_upper(const Text& text);
Text to_lower(const Text& text);
Text swap_case(const Text& text);
Text capitalize(const Text& text);    ///< str.capitalize
Text title_case(const Text& text);    ///< str.title
Text title_filter(const Text& text);  ///< Jinja's filter, which cuts words at blanks and opening brackets only
Text reversed(const Text& text);
/// White space when `characters` is absent, else any of its code points.
Text strip(const Text& text, Side side, std::optional<std::string_view> characters = {});
/// Non-overlapping occurrences from the left, at most `count` (negative: all). An empty `old` matches between code
/// points.
Text replace(const Text& text, std::string_view old, const Text& replacement, std::int64_t count);
/// str.split and str.rsplit: at runs of white space when `separator` is absent (it is never empty). max_splits < 0:
/// all.
std::vector<Text> split(const Text& text, std::optional<std::string_view> separator, std::int64_t max_splits);
std::vector<Text> split_from_right(const Text& text, std::optional<std::string_view> separator,
                                   std::int64_t max_splits);
std::vector<Text> split_lines(const Text& text);  ///< str.splitlines

}  // namespace quire::jinja
