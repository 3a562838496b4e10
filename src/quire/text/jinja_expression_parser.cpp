#include "quire/text/jinja_expression_parser.h"

namespace quire::jinja {

ExpressionParser::ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  // In the order of WellKnownVariable.
  for (std::string_view name : {"loop", "varargs", "kwargs", "caller"}) number_of(std::string(name));
}

Token ExpressionParser::take() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::skip_operator(std::string_view text) {
  if (!at_operator(text)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view text) {
  if (!at_name(text)) return false;
  take();
  return true;
}

std::string ExpressionParser::describe(const Token& token) {
  switch (token.type) {
    case Token::Type::kData:
      return "text";
    case Token::Type::kVariableBegin:
      return "'{{'";
    case Token::Type::kVariableEnd:
      return "'}}'";
    case Token::Type::kBlockBegin:
      return "'{%'";
    case Token::Type::kBlockEnd:
      return "'%}'";
    case Token::Type::kEnd:
      return "the end of the template";
    case Token::Type::kString:
      return "a string";
    default:
      return cat("'", token.text, "'");
  }
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail_here(cat("expected '", text, "', found ", describe(current())));
}

void ExpressionParser::expect_name(std::string_view text) {
  if (!skip_name(text)) fail_here(cat("expected '", text, "', found ", describe(current())));
}

void ExpressionParser::expect(Token::Type type, std::string_view what) {
  if (current().type != type) fail_here(cat("expected ", what, ", found ", describe(current())));
  take();
}

std::string ExpressionParser::expect_any_name() {
  if (current().type != Token::Type::kName) fail_here(cat("expected a name, found ", describe(current())));
  return take().text;
}

std::uint32_t ExpressionParser::number_of(const std::string& name) {
  auto [entry, is_new] = numbers_.try_emplace(name, static_cast<std::uint32_t>(tree_.variables.size()));
  if (is_new) tree_.variables.push_back(name);
  return entry->second;
}

ExpressionPtr ExpressionParser::make(Expression::Kind kind, int line) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

void ExpressionParser::add_operand(Expression& node, ExpressionPtr operand) {
  if (operand) node.depth = std::max(node.depth, operand->depth + 1);
  if (node.depth > kMaxTreeDepth) fail_here(cat("an expression nests deeper than ", kMaxTreeDepth, " levels"));
  node.operands.push_back(std::move(operand));
}

bool ExpressionParser::at_tuple_end(Words ends) const {
  const Token& token = current();
  if (token.type == Token::Type::kVariableEnd || token.type == Token::Type::kBlockEnd || token.is_operator(")"))
    return true;
  return token.type == Token::Type::kName && std::find(ends.begin(), ends.end(), token.text) != ends.end();
}

ExpressionPtr ExpressionParser::parse_item(Conditionals conditionals) {
  return conditionals == Conditionals::kAllowed ? parse_expression() : parse_or();
}

ExpressionPtr ExpressionParser::parse_tuple(Conditionals conditionals, Words ends) {
  const int line = current().line;
  if (at_tuple_end(ends)) fail_here(cat("expected an expression, found ", describe(current())));
  ExpressionPtr first = parse_item(conditionals);
  if (!at_operator(",")) return first;
  return parse_rest_of_tuple(std::move(first), line, conditionals, ends);
}

ExpressionPtr ExpressionParser::parse_rest_of_tuple(ExpressionPtr first, int line, Conditionals conditionals,
                                                    Words ends) {
  auto tuple = make(Expression::Kind::kTuple, line);
  add_operand(*tuple, std::move(first));
  while (skip_operator(",")) {
    if (at_tuple_end(ends)) break;
    add_operand(*tuple, parse_item(conditionals));
  }
  return tuple;
}

ExpressionPtr ExpressionParser::parse_expression() {
  Level level(*this);
  ExpressionPtr value = parse_or();
  while (at_name("if")) {
    const int line = take().line;
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    value = make_with(Expression::Kind::kConditional, line, "", std::move(value), std::move(condition),
                      std::move(otherwise));
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr first = parse_and();
  if (!at_name("or")) return first;
  auto node = make_with(Expression::Kind::kOr, current().line, "", std::move(first));
  while (skip_name("or")) add_operand(*node, parse_and());
  return node;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr first = parse_not();
  if (!at_name("and")) return first;
  auto node = make_with(Expression::Kind::kAnd, current().line, "", std::move(first));
  while (skip_name("and")) add_operand(*node, parse_not());
  return node;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!at_name("not")) return parse_compare();
  Level level(*this);
  const int line = take().line;
  return make_with(Expression::Kind::kNot, line, "", parse_not());
}

ExpressionPtr ExpressionParser::parse_compare() {
  ExpressionPtr first = parse_sum();
  std::string comparison = take_comparison();
  if (comparison.empty()) return first;
  auto node = make_with(Expression::Kind::kCompare, current().line, "", std::move(first));
  for (; !comparison.empty(); comparison = take_comparison()) {
    node->comparisons.push_back(comparison);
    add_operand(*node, parse_sum());
  }
  return node;
}

std::string ExpressionParser::take_comparison() {
  for (std::string_view text : {"==", "!=", "<", "<=", ">", ">="}) {
    if (skip_operator(text)) return std::string(text);
  }
  if (skip_name("in")) return "in";
  if (at_name("not") && next_token().is_name("in")) {
    take();
    take();
    return "not in";
  }
  return "";
}

ExpressionPtr ExpressionParser::parse_sum() {
  return parse_chain({"+", "-"}, [this] { return parse_concatenation(); });
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  ExpressionPtr first = parse_product();
  if (!at_operator("~")) return first;
  auto node = make_with(Expression::Kind::kConcatenate, current().line, "", std::move(first));
  while (skip_operator("~")) add_operand(*node, parse_product());
  return node;
}

ExpressionPtr ExpressionParser::parse_product() {
  return parse_chain({"*", "/", "//", "%"}, [this] { return parse_power(); });
}

ExpressionPtr ExpressionParser::parse_power() {
  return parse_chain({"**"}, [this] { return parse_unary(Filters::kAllowed); });
}

ExpressionPtr ExpressionParser::parse_unary(Filters filters) {
  Level level(*this);
  ExpressionPtr node;
  const int line = current().line;
  if (skip_operator("-")) {
    node = make_with(Expression::Kind::kNegate, line, "", parse_unary(Filters::kNone));
  } else if (skip_operator("+")) {
    node = make_with(Expression::Kind::kPlus, line, "", parse_unary(Filters::kNone));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return filters == Filters::kAllowed ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = current();
  if (token.type == Token::Type::kName) return parse_name();
  if (token.type == Token::Type::kString) {
    auto node = make(Expression::Kind::kLiteral, token.line);
    std::string text;
    while (current().type == Token::Type::kString) text += take().text;
    node->text = Text(text, Origin::kTemplate);
    node->literal = Value::of_text(&node->text);
    return node;
  }
  if (token.type == Token::Type::kInteger || token.type == Token::Type::kFloat) {
    auto node = make(Expression::Kind::kLiteral, token.line);
    node->literal = token.type == Token::Type::kInteger ? Value::of_int(token.integer) : Value::of_float(token.number);
    take();
    return node;
  }
  if (at_operator("(")) return parse_parentheses();
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  fail_here(cat("unexpected ", describe(token)));
}

ExpressionPtr ExpressionParser::parse_name() {
  const Token token = take();
  const std::string& name = token.text;
  auto node = make(Expression::Kind::kLiteral, token.line);
  if (name == "true" || name == "True") {
    node->literal = Value::of_bool(true);
  } else if (name == "false" || name == "False") {
    node->literal = Value::of_bool(false);
  } else if (name == "none" || name == "None") {
    node->literal = Value::none();
  } else {
    node->kind = Expression::Kind::kVariable;
    node->name = name;
    node->variable = number_of(name);
    if (node->variable < mentions_.size()) mentions_[node->variable] = true;
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_parentheses() {
  const int line = take().line;
  if (skip_operator(")")) return make(Expression::Kind::kTuple, line);
  ExpressionPtr inner = parse_expression();
  if (at_operator(",")) inner = parse_rest_of_tuple(std::move(inner), line, Conditionals::kAllowed, {});
  expect_operator(")");
  return inner;
}

ExpressionPtr ExpressionParser::parse_list() {
  auto node = make(Expression::Kind::kList, take().line);
  while (!at_operator("]")) {
    if (!node->operands.empty()) expect_operator(",");
    if (at_operator("]")) break;
    add_operand(*node, parse_expression());
  }
  expect_operator("]");
  return node;
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto node = make(Expression::Kind::kDict, take().line);
  while (!at_operator("}")) {
    if (!node->operands.empty()) expect_operator(",");
    if (at_operator("}")) break;
    add_operand(*node, parse_expression());
    expect_operator(":");
    add_operand(*node, parse_expression());
  }
  expect_operator("}");
  return node;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (at_operator(".")) {
      node = parse_attribute(std::move(node));
    } else if (at_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (at_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr object) {
  const int line = take().line;
  const Token name = take();
  if (name.type == Token::Type::kName) {
    return make_with(Expression::Kind::kAttribute, line, name.text, std::move(object));
  }
  if (name.type != Token::Type::kInteger) fail_here("expected a name or number after '.'");
  auto index = make(Expression::Kind::kLiteral, line);
  index->literal = Value::of_int(name.integer);
  return make_with(Expression::Kind::kItem, line, "", std::move(object), std::move(index));
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const int line = take().line;
  ExpressionPtr parts[3];
  bool is_slice = false;
  for (int i = 0; i < 3; ++i) {
    if (!at_operator(":") && !at_operator("]")) parts[i] = parse_expression();
    if (i == 2 || !skip_operator(":")) break;
    is_slice = true;
  }
  if (at_operator(",")) fail_here("several subscripts are not supported");
  expect_operator("]");
  if (is_slice) {
    return make_with(Expression::Kind::kSlice, line, "", std::move(object), std::move(parts[0]), std::move(parts[1]),
                     std::move(parts[2]));
  }
  if (!parts[0]) fail_here("expected a subscript");
  return make_with(Expression::Kind::kItem, line, "", std::move(object), std::move(parts[0]));
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  auto node = make_with(Expression::Kind::kCall, current().line, "", std::move(callee));
  parse_arguments(*node);
  return node;
}

void ExpressionParser::parse_arguments(Expression& node) {
  CallArguments& arguments = node.arguments;
  auto deepen = [&](const ExpressionPtr& value) {
    node.depth = std::max(node.depth, value->depth + 1);
    if (node.depth > kMaxTreeDepth) fail_here(cat("an expression nests deeper than ", kMaxTreeDepth, " levels"));
  };
  expect_operator("(");
  bool is_first = true;
  while (!at_operator(")")) {
    if (!is_first) expect_operator(",");
    if (at_operator(")")) break;
    is_first = false;
    if (skip_operator("*")) {
      if (arguments.spread_list || arguments.spread_dict) fail_here("invalid arguments of a call");
      deepen(arguments.spread_list = parse_expression());
    } else if (skip_operator("**")) {
      if (arguments.spread_dict) fail_here("invalid arguments of a call");
      deepen(arguments.spread_dict = parse_expression());
    } else if (current().type == Token::Type::kName && next_token().is_operator("=")) {
      if (arguments.spread_dict) fail_here("invalid arguments of a call");
      std::string name = take().text;
      take();
      arguments.named.push_back({std::move(name), parse_expression()});
      deepen(arguments.named.back().value);
    } else {
      if (arguments.spread_list || arguments.spread_dict || !arguments.named.empty()) {
        fail_here("invalid arguments of a call");
      }
      arguments.positional.push_back(parse_expression());
      deepen(arguments.positional.back());
    }
  }
  expect_operator(")");
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (at_operator("|")) {
      node = parse_filters(std::move(node));
    } else if (at_name("is")) {
      node = parse_test(std::move(node));
    } else if (at_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr node) {
  while (skip_operator("|")) node = parse_one_filter(std::move(node));
  return node;
}

ExpressionPtr ExpressionParser::parse_one_filter(ExpressionPtr input) {
  const int line = current().line;
  std::string name = expect_any_name();
  auto node = make_with(Expression::Kind::kFilter, line, std::move(name), std::move(input));
  if (at_operator("(")) parse_arguments(*node);
  return node;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const int line = take().line;
  const bool negated = skip_name("not");
  std::string name = expect_any_name();
  auto node = make_with(Expression::Kind::kTest, line, std::move(name), std::move(input));
  if (at_operator("(")) {
    parse_arguments(*node);
  } else if (at_test_argument()) {
    if (at_name("is")) fail_here("tests cannot be chained with 'is'");
    Level level(*this);
    ExpressionPtr argument = parse_postfix(parse_primary());
    node->depth = std::max(node->depth, argument->depth + 1);
    node->arguments.positional.push_back(std::move(argument));
  }
  if (negated) return make_with(Expression::Kind::kNot, line, "", std::move(node));
  return node;
}

bool ExpressionParser::at_test_argument() const {
  const Token& token = current();
  switch (token.type) {
    case Token::Type::kName:
      return token.text != "else" && token.text != "or" && token.text != "and";
    case Token::Type::kString:
    case Token::Type::kInteger:
    case Token::Type::kFloat:
      return true;
    default:
      return token.is_operator("(") || token.is_operator("[") || token.is_operator("{");
  }
}

}  // namespace quire::jinja
