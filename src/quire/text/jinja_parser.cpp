#include <algorithm>

#include "quire/text/jinja_expression_parser.h"

namespace quire::jinja {
namespace {

/// Statements and assignment targets.
class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Tree run() {
    tree_.body = parse_body({});
    return std::move(tree_);
  }

 private:
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
      if (skip_name("elif")) continue;
      if (take().text == "else") statement->else_body = parse_whole_block("endif");
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

  int loops_ = 0;  ///< open in the current macro
};

}  // namespace

Tree parse_template(std::string_view source) { return Parser(tokenize(source)).run(); }

}  // namespace quire::jinja
