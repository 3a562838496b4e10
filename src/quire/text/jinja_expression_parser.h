#pragma once
// The half of the parser that reads expressions, and what both halves share: the tokens, the numbers of variables, the
// count of nesting. Throws Failure.

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quire/text/jinja_ast.h"
#include "quire/text/jinja_lexer.h"

namespace quire::jinja {

using Words = std::initializer_list<std::string_view>;

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens);

  // ---- tokens ----

  const Token& current() const { return tokens_[at_]; }
  const Token& next_token() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool at_operator(std::string_view text) const { return current().is_operator(text); }
  bool at_name(std::string_view text) const { return current().is_name(text); }
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  [[noreturn]] void fail_here(const std::string& message) const { throw Failure{message, current().line}; }
  static std::string describe(const Token& token);
  void expect_operator(std::string_view text);
  void expect_name(std::string_view text);
  void expect(Token::Type type, std::string_view what);
  std::string expect_any_name();
  std::uint32_t number_of(const std::string& name);

  // ---- depth ----

  /// Counts how deep the parser is in itself.
  struct Level {
    explicit Level(ExpressionParser& owner) : parser(owner) {
      if (++parser.level_ > kMaxTreeDepth) parser.fail_here(cat("nested deeper than ", kMaxTreeDepth, " levels"));
    }
    ~Level() { --parser.level_; }
    ExpressionParser& parser;
  };
  ExpressionPtr make(Expression::Kind kind, int line);

  /// Adds an operand, which may be null. Long chains nest to the left, so depth is counted here too.
  void add_operand(Expression& node, ExpressionPtr operand);

  template <class... Operands>
  ExpressionPtr make_with(Expression::Kind kind, int line, std::string name, Operands... operands) {
    auto node = make(kind, line);
    node->name = std::move(name);
    (add_operand(*node, std::move(operands)), ...);
    return node;
  }

  // ---- expressions ----

  enum class Conditionals { kRefused, kAllowed };
  bool at_tuple_end(Words ends) const;
  ExpressionPtr parse_item(Conditionals conditionals);
  ExpressionPtr parse_tuple(Conditionals conditionals = Conditionals::kAllowed, Words ends = {});
  ExpressionPtr parse_rest_of_tuple(ExpressionPtr first, int line, Conditionals conditionals, Words ends);
  ExpressionPtr parse_expression();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  std::string take_comparison();

  /// Left-associative operators of one level; `parse` reads an operand.
  template <class Parse>
  ExpressionPtr parse_chain(Words operators, Parse parse) {
    ExpressionPtr left = parse();
    while (current().type == Token::Type::kOperator &&
           std::find(operators.begin(), operators.end(), current().text) != operators.end()) {
      const Token token = take();
      left = make_with(Expression::Kind::kArithmetic, token.line, token.text, std::move(left), parse());
    }
    return left;
  }
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();

  enum class Filters { kNone, kAllowed };
  ExpressionPtr parse_unary(Filters filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_parentheses();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_attribute(ExpressionPtr object);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_call(ExpressionPtr callee);
  void parse_arguments(Expression& node);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_filters(ExpressionPtr node);
  ExpressionPtr parse_one_filter(ExpressionPtr input);
  ExpressionPtr parse_test(ExpressionPtr input);
  bool at_test_argument() const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int level_ = 0;
  std::array<bool, 4> mentions_{};  ///< of the well-known variables, in the current macro
  std::unordered_map<std::string, std::uint32_t> numbers_;
  Tree tree_;
};

}  // namespace quire::jinja
