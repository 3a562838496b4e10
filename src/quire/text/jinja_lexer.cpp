#include "quire/text/jinja_lexer.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "quire/text/jinja_value.h"
#include "quire/text/utf8.h"

namespace quire::jinja {
namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_decimal(c); }

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::string_view trimmed_right(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t last = end - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!is_space(utf8_step(text.substr(last)).code_point)) break;
    end = last;
  }
  return text.substr(0, end);
}

bool only_space(std::string_view text) { return trimmed_right(text).empty(); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_root();
    add(Token::Type::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(const std::string& message) const { throw Failure{message, line_}; }

  void add(Token::Type type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  std::string_view rest() const { return source_.substr(at_); }
  bool looking_at(std::string_view text) const { return rest().starts_with(text); }

  /// Moves past `count` bytes, counting lines.
  void advance(std::size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
    if (count) line_starting_ = source_[at_ - 1] == '\n';
  }

  std::size_t spaces_at(std::size_t from) const {
    std::size_t i = from;
    while (i < source_.size()) {
      const Utf8Step step = utf8_step(source_.substr(i));
      if (!is_space(step.code_point)) break;
      i += step.length;
    }
    return i - from;
  }

  void lex_root() {
    const std::size_t tag = find_tag();
    if (tag == std::string_view::npos) {
      add(Token::Type::kData, std::string(rest()));
      advance(source_.size() - at_);
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    add_data(source_.substr(at_, tag - at_), sign, kind != '{');
    advance(tag - at_);
    if (kind == '#') return lex_comment();
    if (kind == '%' && lex_raw()) return;
    add(kind == '{' ? Token::Type::kVariableBegin : Token::Type::kBlockBegin, "");
    advance(sign ? 3 : 2);
    lex_expression(kind == '{' ? "}}" : "%}");
  }

  std::size_t find_tag() const {
    for (std::size_t i = source_.find('{', at_); i != std::string_view::npos; i = source_.find('{', i + 1)) {
      if (i + 1 < source_.size() && std::strchr("{%#", source_[i + 1])) return i;
    }
    return std::string_view::npos;
  }

  char sign_at(std::size_t i) const {
    return i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i] : '\0';
  }

  /// The text before a tag, cut as the tag's sign and lstrip_blocks say.
  void add_data(std::string_view text, char sign, bool is_block) {
    if (sign == '-') {
      text = trimmed_right(text);
    } else if (sign != '+' && is_block) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((start > 0 || line_starting_) && only_space(text.substr(start))) text = text.substr(0, start);
    }
    if (!text.empty()) add(Token::Type::kData, std::string(text));
  }

  /// The length of a closing tag at byte `i` with what it swallows, or 0. `close` is "%}", "}}" or "#}".
  std::size_t closing_at(std::size_t i, std::string_view close) const {
    const char sign = sign_at(i);
    if (sign && source_.substr(i + 1).starts_with(close)) {
      if (sign == '-') return 3 + spaces_at(i + 3);
      return close == "}}" ? 0 : 3;
    }
    if (!source_.substr(i).starts_with(close)) return 0;
    const bool trims = close != "}}" && i + 2 < source_.size() && source_[i + 2] == '\n';
    return trims ? 3 : 2;
  }

  void lex_comment() {
    for (std::size_t i = at_ + 2; i < source_.size(); ++i) {
      if (std::size_t length = closing_at(i, "#}")) return advance(i + length - at_);
    }
    fail_here("Missing end of comment tag");
  }

  /// {% raw %} ... {% endraw %}; false if the block at hand is another one.
  bool lex_raw() {
    std::size_t i = after_word(at_ + 2 + (sign_at(at_ + 2) ? 1 : 0), "raw");
    if (i == 0) return false;
    if (source_.substr(i).starts_with("-%}")) {
      i += 3 + spaces_at(i + 3);
    } else if (source_.substr(i).starts_with("%}")) {
      i += 2;
    } else {
      return false;
    }
    advance(i - at_);
    for (std::size_t end = source_.find("{%", at_); end != std::string_view::npos; end = source_.find("{%", end + 1)) {
      const char sign = sign_at(end + 2);
      const std::size_t close = after_word(end + 2 + (sign ? 1 : 0), "endraw");
      const std::size_t length = close ? closing_at(close, "%}") : 0;
      if (length == 0) continue;
      add_data(source_.substr(at_, end - at_), sign, true);
      advance(close + length - at_);
      return true;
    }
    fail_here("Missing end of raw directive");
  }

  /// Position after white space, `word` and white space from `i`; 0 if the word is not there.
  std::size_t after_word(std::size_t i, std::string_view word) const {
    i += spaces_at(i);
    if (!source_.substr(std::min(i, source_.size())).starts_with(word)) return 0;
    i += word.size();
    return i + spaces_at(i);
  }

  void lex_expression(std::string_view close) {
    const bool is_variable = close == "}}";
    while (true) {
      advance(spaces_at(at_));
      if (at_ == source_.size()) return;  // the parser reports what is missing
      if (open_.empty()) {
        if (std::size_t length = closing_at(at_, close)) {
          add(is_variable ? Token::Type::kVariableEnd : Token::Type::kBlockEnd, "");
          return advance(length);
        }
      }
      lex_token();
    }
  }

  void lex_token() {
    const char c = source_[at_];
    if (is_decimal(c)) return lex_number();
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < source_.size() && is_name_part(source_[end])) ++end;
      add(Token::Type::kName, std::string(source_.substr(at_, end - at_)));
      return advance(end - at_);
    }
    if (c == '\'' || c == '"') return lex_string(c);
    lex_operator();
  }

  /// Digits with single underscores between them; the end of the run from `i`.
  std::size_t digits_from(std::size_t i) const {
    while (i < source_.size() &&
           (is_decimal(source_[i]) || (source_[i] == '_' && i + 1 < source_.size() && is_decimal(source_[i + 1]) &&
                                       is_decimal(source_[i - 1])))) {
      ++i;
    }
    return i;
  }

  void lex_number() {
    if (source_[at_] == '0' && at_ + 1 < source_.size() && std::strchr("xXoObB", source_[at_ + 1])) {
      return lex_prefixed_integer();
    }
    std::size_t end = digits_from(at_);
    bool is_float = false;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    auto digit_at = [&](std::size_t i) { return i < source_.size() && is_decimal(source_[i]); };
    if (!after_dot) {
      if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
        end = digits_from(end + 1);
        is_float = true;
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const std::size_t digits = end + 1 + (sign_at(end + 1) ? 1 : 0);
        if (digit_at(digits)) {
          end = digits_from(digits);
          is_float = true;
        }
      }
    }
    std::string text(source_.substr(at_, end - at_));
    std::erase(text, '_');
    Token token{is_float ? Token::Type::kFloat : Token::Type::kInteger, text, line_};
    const auto status = is_float ? std::from_chars(text.data(), text.data() + text.size(), token.number).ec
                                 : std::from_chars(text.data(), text.data() + text.size(), token.integer).ec;
    if (status != std::errc()) fail_here(cat("the number ", text.substr(0, 40), " is out of range"));
    tokens_.push_back(std::move(token));
    advance(end - at_);
  }

  void lex_prefixed_integer() {
    const char prefix = static_cast<char>(source_[at_ + 1] | 0x20);
    std::size_t end = at_ + 2;
    while (end < source_.size() && is_name_part(source_[end])) ++end;
    std::string text(source_.substr(at_ + 2, end - at_ - 2));
    std::erase(text, '_');
    Token token{Token::Type::kInteger, text, line_};
    const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
    const auto [parsed, status] = std::from_chars(text.data(), text.data() + text.size(), token.integer, base);
    if (status != std::errc() || parsed != text.data() + text.size()) {
      fail_here(cat("not a number: ", source_.substr(at_, std::min<std::size_t>(end - at_, 40))));
    }
    tokens_.push_back(std::move(token));
    advance(end - at_);
  }

  void lex_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_here(cat("a string that begins with ", quote, " has no end"));
    add(Token::Type::kString, unescape(source_.substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  std::string unescape(std::string_view text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      if (text[i] != '\\') {
        out += text[i++];
        continue;
      }
      const char kind = text[i + 1];  // a backslash is never last: lex_string skips what follows it
      static constexpr std::string_view kSimple = "\\'\"abfnrtv", kMeaning = "\\'\"\a\b\f\n\r\t\v";
      const std::size_t simple = kSimple.find(kind);
      if (simple != std::string_view::npos) {
        out += kMeaning[simple];
        i += 2;
      } else if (kind == '\n') {
        i += 2;
      } else if (kind == 'x' || kind == 'u' || kind == 'U') {
        const std::size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
        append_code_point(out, text.substr(i + 2, digits), digits, 16);
        i += 2 + digits;
      } else if (kind >= '0' && kind <= '7') {
        std::size_t count = 1;
        while (count < 3 && i + 1 + count < text.size() && text[i + 1 + count] >= '0' && text[i + 1 + count] <= '7')
          ++count;
        append_code_point(out, text.substr(i + 1, count), count, 8);
        i += 1 + count;
      } else {
        if (kind == 'N') fail_here("the escape \\N is not supported");
        out += '\\';
        ++i;
      }
    }
    return out;
  }

  void append_code_point(std::string& out, std::string_view digits, std::size_t wanted, int base) const {
    std::uint32_t point = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), point, base);
    const bool complete = digits.size() == wanted && status == std::errc() && end == digits.data() + digits.size();
    if (!complete || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) {
      fail_here("a string has an escape that is no character");
    }
    append_utf8(out, point);
  }

  void lex_operator() {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (std::string_view text : kOperators) {
      if (!looking_at(text)) continue;
      balance(text);
      add(Token::Type::kOperator, std::string(text));
      return advance(text.size());
    }
    const Utf8Step step = utf8_step(rest());
    fail_here(cat("unexpected character '", rest().substr(0, step.length), "'"));
  }

  void balance(std::string_view text) {
    if (text == "(") open_ += ')';
    if (text == "[") open_ += ']';
    if (text == "{") open_ += '}';
    if (text != ")" && text != "]" && text != "}") return;
    if (open_.empty()) fail_here(cat("unexpected '", text, "'"));
    if (open_.back() != text[0]) fail_here(cat("unexpected '", text, "', expected '", open_.back(), "'"));
    open_.pop_back();
  }

  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string open_;  ///< the brackets that would close what is open
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const std::string normal = normalize_newlines(source);
  return Lexer(normal).run();
}

}  // namespace quire::jinja
