#pragma once
// Tokens of a template, with Jinja's whitespace control applied: `-` strips, `+` keeps, a newline after a block tag is
// dropped (trim_blocks), blanks before one on its line too (lstrip_blocks), one newline at the end of the source is
// dropped.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

struct Token {
  enum class Type {
    kData,  ///< text outside of tags
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,  ///< `text` is the value, escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Type type;
  std::string text;
  int line;
  std::int64_t integer = 0;
  double number = 0;

  bool is_operator(std::string_view wanted) const { return type == Type::kOperator && text == wanted; }
  bool is_name(std::string_view wanted) const { return type == Type::kName && text == wanted; }
};

/// All tokens, kEnd last. Throws Failure. Linear in the source.
std::vector<Token> tokenize(std::string_view source);

}  // namespace quire::jinja
