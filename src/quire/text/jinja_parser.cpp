#include <algorithm>
#include <array>
#include <unordered_map>

#include "quire/text/jinja_ast.h"
#include "quire/text/jinja_lexer.h"

namespace quire::jinja {
namespace {

using Words = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
    for (std::string_view name : {"loop", "varargs", "kwargs", "caller"}) number_of(std::string(name));
  }

  Tree run() {
    tree_.body = parse_body({});
    return std::move(tree_);
  }

 private:
  // ---- tokens ----

  const Token& current() const { return tokens_[at_]; }
  const Token& next_token() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }

  Token take() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool at_operator(std::string_view text) const { return current().is_operator(text); }
  bool at_name(std::string_view text) const { return current().is_name(text); }

  bool skip_operator(std::string_view text) {
    if (!at_operator(text)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view text) {
    if (!at_name(text)) return false;
    take();
    return true;
  }

  [[noreturn]] void fail_here(const std::string& message) const { throw Failure{message, current().line}; }

  static std::string describe(const Token& token) {
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

  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail_here(cat("expected '", text, "', found ", describe(current())));
  }
  void expect_name(std::string_view text) {
    if (!skip_name(text)) fail_here(cat("expected '", text, "', found ", describe(current())));
  }
  void expect(Token::Type type, std::string_view what) {
    if (current().type != type) fail_here(cat("expected ", what, ", found ", describe(current())));
    take();
  }
  std::string expect_any_name() {
    if (current().type != Token::Type::kName) fail_here(cat("expected a name, found ", describe(current())));
    return take().text;
  }

  std::uint32_t number_of(const std::string& name) {
    auto [entry, is_new] = numbers_.try_emplace(name, static_cast<std::uint32_t>(tree_.variables.size()));
    if (is_new) tree_.variables.push_back(name);
    return entry->second;
  }

  // ---- depth ----

  /// Counts how deep the parser is in itself.
  struct Level {
    explicit Level(Parser& owner) : parser(owner) {
      if (++parser.level_ > kMaxTreeDepth) parser.fail_here(cat("nested deeper than ", kMaxTreeDepth, " levels"));
    }
    ~Level() { --parser.level_; }
    Parser& parser;
  };

  ExpressionPtr make(Expression::Kind kind, int line) {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = line;
    return node;
  }

  /// Adds an operand, which may be null. Long chains nest to the left, so depth is counted here too.
  void add_operand(Expression& node, ExpressionPtr operand) {
    if (operand) node.depth = std::max(node.depth, operand->depth + 1);
    if (node.depth > kMaxTreeDepth) fail_here(cat("an expression nests deeper than ", kMaxTreeDepth, " levels"));
    node.operands.push_back(std::move(operand));
  }

  template <class... Operands>
  ExpressionPtr make_with(Expression::Kind kind, int line, std::string name, Operands... operands) {
    auto node = make(kind, line);
    node->name = std::move(name);
    (add_operand(*node, std::move(operands)), ...);
    return node;
  }

  // ---- statements ----

  /// Until a block that begins with one of `ends` (its name is the current token then), or the end of the template.
  Body parse_body(Words ends) {
    Level level(*this);
    Body body;
    while (true) {
      const Token& token = current();
      if (token.type == Token::Type::kData) {
        auto statement = make_statement(Statement::Kind::kText);
        statement->text = Text(token.text, Origin::kTemplate);
        take();
        body.push_back(std::move(statement));
      } else if (token.type == Token::Type::kVariableBegin) {
        take();
        auto statement = make_statement(Statement::Kind::kPrint);
        statement->expression = parse_tuple();
        expect(Token::Type::kVariableEnd, "'}}'");
        body.push_back(std::move(statement));
      } else if (token.type == Token::Type::kBlockBegin) {
        take();
        const bool ends_here =
            current().type == Token::Type::kName && std::find(ends.begin(), ends.end(), current().text) != ends.end();
        if (ends_here) return body;
        body.push_back(parse_statement());
        expect(Token::Type::kBlockEnd, "'%}'");
      } else if (token.type == Token::Type::kEnd) {
        if (ends.size() == 0) return body;
        fail_here(cat("expected {% ", *(ends.end() - 1), " %}, found the end of the template"));
      } else {
        fail_here(cat("unexpected ", describe(token)));
      }
    }
  }

  /// The body of a statement whose head has been read; the name that ended it is current.
  Body parse_block(Words ends) {
    skip_operator(":");
    expect(Token::Type::kBlockEnd, "'%}'");
    return parse_body(ends);
  }

  /// As parse_block with one end, which is consumed.
  Body parse_whole_block(std::string_view end) {
    Body body = parse_block({end});
    take();
    return body;
  }

  std::unique_ptr<Statement> make_statement(Statement::Kind kind) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = current().line;
    return statement;
  }

  std::unique_ptr<Statement> parse_statement() {
    if (current().type != Token::Type::kName) fail_here(cat("expected a tag name, found ", describe(current())));
    const std::string& tag = current().text;
    if (tag == "for") return parse_for();
    if (tag == "if") return parse_if();
    if (tag == "set") return parse_set();
    if (tag == "macro") return parse_macro();
    if (tag == "call") return parse_call_block();
    if (tag == "filter") return parse_filter_block();
    if (tag == "with") return parse_with();
    if (tag == "do") return parse_do();
    if (tag == "break" || tag == "continue") return parse_jump();
    if (tag == "generation") {
      auto statement = make_statement(Statement::Kind::kScope);
      take();
      statement->body = parse_whole_block("endgeneration");
      return statement;
    }
    for (std::string_view known : {"include", "import", "from", "extends", "block", "autoescape", "trans", "print"}) {
      if (tag == known) fail_here(cat("the tag '", tag, "' is not supported"));
    }
    fail_here(cat("unknown tag '", tag, "'"));
  }

  std::unique_ptr<Statement> parse_for() {
    auto statement = make_statement(Statement::Kind::kFor);
    take();
    statement->target = parse_target({"in"}, NamespaceTargets::kRefused);
    expect_name("in");
    statement->expression = parse_tuple(Conditionals::kRefused, {"recursive"});
    if (skip_name("if")) statement->condition = parse_expression();
    if (at_name("recursive")) fail_here("recursive loops are not supported");
    ++loops_;
    statement->body = parse_block({"else", "endfor"});
    --loops_;
    if (take().text == "else") statement->else_body = parse_whole_block("endfor");
    return statement;
  }

  std::unique_ptr<Statement> parse_if() {
    auto statement = make_statement(Statement::Kind::kIf);
    take();
    while (true) {
      Branch branch;
      branch.condition = parse_tuple(Conditionals::kRefused);
      branch.body = parse_block({"elif", "else", "endif"});
      statement->branches.push_back(std::move(branch));
      const std::string end = take().text;
      if (end == "elif") continue;
      if (end == "else") statement->else_body = parse_whole_block("endif");
      return statement;
    }
  }

  std::unique_ptr<Statement> parse_set() {
    auto statement = make_statement(Statement::Kind::kSet);
    take();
    statement->target = parse_target({}, NamespaceTargets::kAllowed);
    if (skip_operator("=")) {
      statement->expression = parse_tuple();
      return statement;
    }
    statement->kind = Statement::Kind::kSetBlock;
    statement->expression = parse_filters(nullptr);
    statement->body = parse_whole_block("endset");
    return statement;
  }

  std::unique_ptr<Statement> parse_macro() {
    auto statement = make_statement(Statement::Kind::kMacro);
    take();
    statement->name = expect_any_name();
    statement->variable = number_of(statement->name);
    parse_signature(*statement);
    parse_macro_body(*statement, "endmacro");
    return statement;
  }

  std::unique_ptr<Statement> parse_call_block() {
    auto statement = make_statement(Statement::Kind::kCall);
    take();
    statement->name = "caller";
    if (at_operator("(")) parse_signature(*statement);
    statement->expression = parse_expression();
    if (statement->expression->kind != Expression::Kind::kCall) fail_here("expected a call");
    parse_macro_body(*statement, "endcall");
    return statement;
  }

  void parse_signature(Statement& macro) {
    expect_operator("(");
    while (!at_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      Parameter parameter;
      parameter.name = expect_any_name();
      parameter.variable = number_of(parameter.name);
      if (skip_operator("=")) {
        parameter.default_value = parse_expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().default_value) {
        fail_here("a parameter without default follows one with default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    expect_operator(")");
  }

  /// What varargs, kwargs and caller mean depends on whether the body mentions them.
  void parse_macro_body(Statement& macro, std::string_view end) {
    const auto outer_mentions = mentions_;
    const int outer_loops = loops_;
    mentions_ = {};
    loops_ = 0;
    macro.body = parse_whole_block(end);
    macro.takes_more_arguments = mentions_[kVarargsVariable];
    macro.takes_more_keywords = mentions_[kKwargsVariable];
    macro.takes_caller = mentions_[kCallerVariable];
    loops_ = outer_loops;
    for (std::size_t i = 0; i < mentions_.size(); ++i) mentions_[i] = mentions_[i] || outer_mentions[i];
  }

  std::unique_ptr<Statement> parse_filter_block() {
    auto statement = make_statement(Statement::Kind::kFilterBlock);
    take();
    statement->expression = parse_filters(parse_one_filter(nullptr));
    statement->body = parse_whole_block("endfilter");
    return statement;
  }

  std::unique_ptr<Statement> parse_with() {
    auto statement = make_statement(Statement::Kind::kWith);
    take();
    while (current().type != Token::Type::kBlockEnd) {
      if (!statement->assignments.empty()) expect_operator(",");
      Target target = parse_target({}, NamespaceTargets::kRefused);
      expect_operator("=");
      statement->assignments.emplace_back(std::move(target), parse_expression());
    }
    statement->body = parse_whole_block("endwith");
    return statement;
  }

  std::unique_ptr<Statement> parse_do() {
    auto statement = make_statement(Statement::Kind::kDo);
    take();
    statement->expression = parse_tuple();
    return statement;
  }

  std::unique_ptr<Statement> parse_jump() {
    const bool breaks = current().text == "break";
    if (loops_ == 0) fail_here(cat("'", current().text, "' outside of a loop"));
    auto statement = make_statement(breaks ? Statement::Kind::kBreak : Statement::Kind::kContinue);
    take();
    return statement;
  }

  // ---- assignment targets ----

  enum class NamespaceTargets { kRefused, kAllowed };

  Target parse_target(Words ends, NamespaceTargets namespaces) {
    Target target = parse_one_target(namespaces);
    if (!at_operator(",")) return target;
    Target tuple;
    tuple.is_tuple = true;
    tuple.parts.push_back(std::move(target));
    while (skip_operator(",")) {
      if (at_target_end(ends)) break;
      tuple.parts.push_back(parse_one_target(namespaces));
    }
    return tuple;
  }

  bool at_target_end(Words ends) const {
    if (current().type != Token::Type::kName) return !at_operator("(");
    return std::find(ends.begin(), ends.end(), current().text) != ends.end();
  }

  Target parse_one_target(NamespaceTargets namespaces) {
    Level level(*this);
    if (skip_operator("(")) {
      Target target = parse_target({}, namespaces);
      expect_operator(")");
      return target;
    }
    Target target;
    const std::string name = expect_any_name();
    for (std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) fail_here(cat("can't assign to '", name, "'"));
    }
    target.variable = number_of(name);
    if (namespaces == NamespaceTargets::kAllowed && skip_operator(".")) target.attribute = expect_any_name();
    return target;
  }

  // ---- expressions ----

  enum class Conditionals { kRefused, kAllowed };

  bool at_tuple_end(Words ends) const {
    const Token& token = current();
    if (token.type == Token::Type::kVariableEnd || token.type == Token::Type::kBlockEnd || token.is_operator(")"))
      return true;
    return token.type == Token::Type::kName && std::find(ends.begin(), ends.end(), token.text) != ends.end();
  }

  ExpressionPtr parse_item(Conditionals conditionals) {
    return conditionals == Conditionals::kAllowed ? parse_expression() : parse_or();
  }

  ExpressionPtr parse_tuple(Conditionals conditionals = Conditionals::kAllowed, Words ends = {}) {
    const int line = current().line;
    if (at_tuple_end(ends)) fail_here(cat("expected an expression, found ", describe(current())));
    ExpressionPtr first = parse_item(conditionals);
    if (!at_operator(",")) return first;
    return parse_rest_of_tuple(std::move(first), line, conditionals, ends);
  }

  ExpressionPtr parse_rest_of_tuple(ExpressionPtr first, int line, Conditionals conditionals, Words ends) {
    auto tuple = make(Expression::Kind::kTuple, line);
    add_operand(*tuple, std::move(first));
    while (skip_operator(",")) {
      if (at_tuple_end(ends)) break;
      add_operand(*tuple, parse_item(conditionals));
    }
    return tuple;
  }

  ExpressionPtr parse_expression() {
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

  ExpressionPtr parse_or() {
    ExpressionPtr first = parse_and();
    if (!at_name("or")) return first;
    auto node = make_with(Expression::Kind::kOr, current().line, "", std::move(first));
    while (skip_name("or")) add_operand(*node, parse_and());
    return node;
  }

  ExpressionPtr parse_and() {
    ExpressionPtr first = parse_not();
    if (!at_name("and")) return first;
    auto node = make_with(Expression::Kind::kAnd, current().line, "", std::move(first));
    while (skip_name("and")) add_operand(*node, parse_not());
    return node;
  }

  ExpressionPtr parse_not() {
    if (!at_name("not")) return parse_compare();
    Level level(*this);
    const int line = take().line;
    return make_with(Expression::Kind::kNot, line, "", parse_not());
  }

  ExpressionPtr parse_compare() {
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

  std::string take_comparison() {
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

  ExpressionPtr parse_sum() {
    return parse_chain({"+", "-"}, [this] { return parse_concatenation(); });
  }

  ExpressionPtr parse_concatenation() {
    ExpressionPtr first = parse_product();
    if (!at_operator("~")) return first;
    auto node = make_with(Expression::Kind::kConcatenate, current().line, "", std::move(first));
    while (skip_operator("~")) add_operand(*node, parse_product());
    return node;
  }

  ExpressionPtr parse_product() {
    return parse_chain({"*", "/", "//", "%"}, [this] { return parse_power(); });
  }

  ExpressionPtr parse_power() {
    return parse_chain({"**"}, [this] { return parse_unary(Filters::kAllowed); });
  }

  enum class Filters { kNone, kAllowed };

  ExpressionPtr parse_unary(Filters filters) {
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

  ExpressionPtr parse_primary() {
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
      node->literal =
          token.type == Token::Type::kInteger ? Value::of_int(token.integer) : Value::of_float(token.number);
      take();
      return node;
    }
    if (at_operator("(")) return parse_parentheses();
    if (at_operator("[")) return parse_list();
    if (at_operator("{")) return parse_dict();
    fail_here(cat("unexpected ", describe(token)));
  }

  ExpressionPtr parse_name() {
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

  ExpressionPtr parse_parentheses() {
    const int line = take().line;
    if (skip_operator(")")) return make(Expression::Kind::kTuple, line);
    ExpressionPtr inner = parse_expression();
    if (at_operator(",")) inner = parse_rest_of_tuple(std::move(inner), line, Conditionals::kAllowed, {});
    expect_operator(")");
    return inner;
  }

  ExpressionPtr parse_list() {
    auto node = make(Expression::Kind::kList, take().line);
    while (!at_operator("]")) {
      if (!node->operands.empty()) expect_operator(",");
      if (at_operator("]")) break;
      add_operand(*node, parse_expression());
    }
    expect_operator("]");
    return node;
  }

  ExpressionPtr parse_dict() {
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

  ExpressionPtr parse_postfix(ExpressionPtr node) {
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

  ExpressionPtr parse_attribute(ExpressionPtr object) {
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

  ExpressionPtr parse_subscript(ExpressionPtr object) {
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

  ExpressionPtr parse_call(ExpressionPtr callee) {
    auto node = make_with(Expression::Kind::kCall, current().line, "", std::move(callee));
    parse_arguments(*node);
    return node;
  }

  void parse_arguments(Expression& node) {
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

  ExpressionPtr parse_filters_and_tests(ExpressionPtr node) {
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

  ExpressionPtr parse_filters(ExpressionPtr node) {
    while (skip_operator("|")) node = parse_one_filter(std::move(node));
    return node;
  }

  ExpressionPtr parse_one_filter(ExpressionPtr input) {
    const int line = current().line;
    std::string name = expect_any_name();
    auto node = make_with(Expression::Kind::kFilter, line, std::move(name), std::move(input));
    if (at_operator("(")) parse_arguments(*node);
    return node;
  }

  ExpressionPtr parse_test(ExpressionPtr input) {
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

  bool at_test_argument() const {
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

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int level_ = 0;
  int loops_ = 0;  ///< open in the current macro
  std::array<bool, 4> mentions_{};
  std::unordered_map<std::string, std::uint32_t> numbers_;
  Tree tree_;
};

}  // namespace

Tree parse_template(std::string_view source) { return Parser(tokenize(source)).run(); }

}  // namespace quire::jinja
