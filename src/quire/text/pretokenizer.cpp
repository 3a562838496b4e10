#include "quire/text/pretokenizer.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>

#include "quire/text/utf8.h"

namespace quire {
namespace {

enum class Class : std::uint8_t {
  letter,
  number,
  space,    ///< White_Space other than the two of newline
  newline,  ///< \r and \n
  other,
  end,  ///< of the text
};

bool is_space(Class c) { return c == Class::space || c == Class::newline; }

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

Class class_of(char32_t c) {
  if (c == '\r' || c == '\n') return Class::newline;
  if (is_white_space(c)) return Class::space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return Class::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return Class::number;
    default:
      return Class::other;
  }
}

const std::array<Class, 128>& ascii_classes() {
  static const std::array<Class, 128> table = [] {
    std::array<Class, 128> classes{};
    for (char32_t c = 0; c < 128; ++c) classes[c] = class_of(c);
    return classes;
  }();
  return table;
}

/// Reads characters of valid UTF-8.
class Scanner {
 public:
  struct Character {
    Class kind;
    std::uint8_t length;  ///< 0 at the end
    char32_t code_point;
  };

  explicit Scanner(std::string_view text) : text_(text), ascii_(ascii_classes()) {}

  Character at(std::size_t position) const {
    if (position >= text_.size()) return {Class::end, 0, 0};
    const auto first = static_cast<unsigned char>(text_[position]);
    if (first < 0x80) return {ascii_[first], 1, first};
    const Utf8Step step = utf8_step(text_.substr(position));
    return {class_of(step.code_point), step.length, step.code_point};
  }

  /// The end of the run of characters of class `kind` from `position` on.
  std::size_t skip(std::size_t position, Class kind) const {
    for (Character c = at(position); c.kind == kind; c = at(position)) position += c.length;
    return position;
  }

  std::string_view text() const { return text_; }

 private:
  std::string_view text_;
  const std::array<Class, 128>& ascii_;
};

/// A run of white space.
struct SpaceRun {
  std::size_t end;
  std::size_t last_begin;    ///< where its last character begins
  std::size_t newlines_end;  ///< the end of its last \r or \n; 0 if there is none
};

SpaceRun scan_spaces(const Scanner& text, std::size_t begin) {
  SpaceRun run{begin, begin, 0};
  for (auto c = text.at(begin); is_space(c.kind); c = text.at(run.end)) {
    run.last_begin = run.end;
    run.end += c.length;
    if (c.kind == Class::newline) run.newlines_end = run.end;
  }
  return run;
}

/// \s+(?!\S)|\s+ : all of the run at the end of the text, else all but its last character if that leaves something.
std::size_t spaces_end(const SpaceRun& run, std::size_t begin, bool at_end) {
  return at_end || run.last_begin == begin ? run.end : run.last_begin;
}

/// The length of a contraction without its apostrophe ("s", "ll", ...), or 0.
std::size_t contraction_length(std::string_view after, bool any_case) {
  const auto lower = [any_case](char c) {
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  if (after.empty()) return 0;
  const char first = lower(after[0]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 1;
  // U+017F, the long s, is an s to an expression that ignores case.
  if (any_case && after.substr(0, 2) == "\xC5\xBF") return 2;
  if (after.size() < 2) return 0;
  const char second = lower(after[1]);
  const bool two =
      (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return two ? 2 : 0;
}

/// `cut_numbers`: number characters are words by themselves, and end the text for what stands before them.
std::size_t gpt2_word_end(const Scanner& text, std::size_t begin, bool cut_numbers) {
  const auto first = text.at(begin);
  if (cut_numbers && first.kind == Class::number) return begin + first.length;
  if (first.code_point == '\'') {
    const std::size_t length = contraction_length(text.text().substr(begin + 1), false);
    if (length > 0) return begin + 1 + length;
  }
  if (!is_space(first.kind)) return text.skip(begin, first.kind);
  if (first.code_point == ' ') {
    const Class next = text.at(begin + 1).kind;
    const bool joins = next == Class::letter || next == Class::other || (next == Class::number && !cut_numbers);
    if (joins) return text.skip(begin + 1, next);
  }
  const SpaceRun run = scan_spaces(text, begin);
  const Class after = text.at(run.end).kind;
  return spaces_end(run, begin, after == Class::end || (cut_numbers && after == Class::number));
}

std::size_t numbers_end(const Scanner& text, std::size_t position, int limit) {
  for (auto c = text.at(position); c.kind == Class::number && limit > 0; c = text.at(position), --limit) {
    position += c.length;
  }
  return position;
}

std::size_t llama_word_end(const Scanner& text, std::size_t begin, int numbers_a_word) {
  const auto first = text.at(begin);
  if (first.code_point == '\'') {
    const std::size_t length = contraction_length(text.text().substr(begin + 1), true);
    if (length > 0) return begin + 1 + length;
  }
  if (first.kind == Class::letter) return text.skip(begin, Class::letter);
  if (first.kind == Class::number) return numbers_end(text, begin, numbers_a_word);
  const std::size_t second = begin + first.length;
  const Class next = text.at(second).kind;
  if (first.kind != Class::newline && next == Class::letter) return text.skip(second, Class::letter);
  if (first.kind == Class::other || (first.code_point == ' ' && next == Class::other)) {
    return text.skip(text.skip(first.kind == Class::other ? begin : second, Class::other), Class::newline);
  }
  const SpaceRun run = scan_spaces(text, begin);
  if (run.newlines_end > 0) return run.newlines_end;
  return spaces_end(run, begin, text.at(run.end).kind == Class::end);
}

}  // namespace

std::optional<PreTokenizer> pretokenizer_named(std::string_view name) {
  if (name == "gpt-2") return PreTokenizer::gpt2;
  if (name == "smollm") return PreTokenizer::smollm;
  if (name == "llama-bpe") return PreTokenizer::llama_bpe;
  if (name == "qwen2") return PreTokenizer::qwen2;
  return std::nullopt;
}

std::size_t word_end(PreTokenizer kind, std::string_view text, std::size_t begin) {
  const Scanner scanner(text);
  switch (kind) {
    case PreTokenizer::gpt2:
      return gpt2_word_end(scanner, begin, false);
    case PreTokenizer::smollm:
      return gpt2_word_end(scanner, begin, true);
    case PreTokenizer::llama_bpe:
      return llama_word_end(scanner, begin, 3);
    case PreTokenizer::qwen2:
      return llama_word_end(scanner, begin, 1);
  }
  return text.size();
}

}  // namespace quire
