// Evaluating expressions.

#include <algorithm>

#include "quire/text/jinja_machine.h"

namespace quire::jinja {

Value Machine::evaluate(const Expression& node) {
  Nested nested(*this);
  charge();
  line_ = node.line;
  return evaluate_node(node);
}

Value Machine::evaluate_node(const Expression& node) {
  using Tag = Expression::Kind;
  auto operand = [&](std::size_t i) { return evaluate(*node.operands[i]); };
  switch (node.kind) {
    case Tag::kLiteral:
      return node.literal;
    case Tag::kVariable:
      return evaluate_variable(node);
    case Tag::kList:
      return make_list(evaluate_all(node.operands));
    case Tag::kTuple:
      return make_tuple(evaluate_all(node.operands));
    case Tag::kDict:
      return evaluate_dict(node);
    case Tag::kAttribute:
      return attribute(operand(0), node.name);
    case Tag::kItem:
      return evaluate_binary(node, &Machine::item);
    case Tag::kSlice:
      return evaluate_slice(node);
    case Tag::kCall:
      return evaluate_call(node, std::nullopt);
    case Tag::kFilter:
      return evaluate_filter(node, std::nullopt);
    case Tag::kTest:
      return evaluate_test(node);
    case Tag::kNot:
      return Value::of_bool(!truth(operand(0)));
    case Tag::kNegate:
      return negate(operand(0));
    case Tag::kPlus:
      return arithmetic("+", Value::of_int(0), operand(0));
    case Tag::kAnd:
    case Tag::kOr:
      return evaluate_logic(node);
    case Tag::kConcatenate:
      return evaluate_concatenation(node);
    case Tag::kArithmetic: {
      const Value left = operand(0);
      const Value right = operand(1);
      line_ = node.line;
      return arithmetic(node.name, left, right);
    }
    case Tag::kCompare:
      return evaluate_compare(node);
    case Tag::kConditional:
      if (truth(operand(1))) return operand(0);
      if (node.operands[2]) return operand(2);
      return make_undefined("the inline if has no else and its condition is false");
  }
  return {};
}

Value Machine::evaluate_binary(const Expression& node, Value (Machine::*combine)(const Value&, const Value&)) {
  const Value left = evaluate(*node.operands[0]);
  const Value right = evaluate(*node.operands[1]);
  line_ = node.line;
  return (this->*combine)(left, right);
}

Value Machine::evaluate_slice(const Expression& node) {
  Value parts[4];
  for (std::size_t i = 0; i < 4; ++i) parts[i] = node.operands[i] ? evaluate(*node.operands[i]) : Value::none();
  line_ = node.line;
  return slice(parts[0], {parts[1], parts[2], parts[3]});
}

Value Machine::evaluate_logic(const Expression& node) {
  const bool stops_at = node.kind == Expression::Kind::kOr;
  Value value;
  for (const auto& operand : node.operands) {
    value = evaluate(*operand);
    if (truth(value) == stops_at) break;
  }
  return value;
}

Value Machine::evaluate_concatenation(const Expression& node) {
  Text text;
  for (const auto& operand : node.operands) {
    const Value value = evaluate(*operand);
    if (value.is_string()) {
      text.append(*value.text);
    } else {
      text.append(to_text(value));
    }
    if (text.size() > limits_.max_output_bytes) break;  // make_text() refuses it
  }
  return make_text(std::move(text));
}

Value Machine::evaluate_variable(const Expression& node) {
  if (const Value* value = scope_->find(node.variable)) return *value;
  if (NativeCall native = find_function(node.name)) {
    Function function;
    function.name = node.name;
    function.native = native;
    return make_function(function);
  }
  return make_undefined(cat("'", node.name, "' is undefined"));
}

Value Machine::evaluate_dict(const Expression& node) {
  const Value dict = make_dict();
  for (std::size_t i = 0; i + 1 < node.operands.size(); i += 2) {
    const Value key = evaluate(*node.operands[i]);
    set_in_dict(*dict.dict, key, evaluate(*node.operands[i + 1]));
  }
  return dict;
}

std::vector<Value> Machine::evaluate_all(const std::vector<ExpressionPtr>& nodes) {
  std::vector<Value> values;
  values.reserve(nodes.size());
  for (const auto& node : nodes) values.push_back(evaluate(*node));
  return values;
}

Arguments Machine::evaluate_arguments(const CallArguments& written) {
  Arguments arguments;
  arguments.positional = evaluate_all(written.positional);
  for (const Keyword& keyword : written.named) arguments.named.emplace_back(keyword.name, evaluate(*keyword.value));
  if (written.spread_list) {
    const std::vector<Value> more = items_of(evaluate(*written.spread_list));
    charge_items(more.size());
    arguments.positional.insert(arguments.positional.end(), more.begin(), more.end());
  }
  if (written.spread_dict) {
    const Value dict = evaluate(*written.spread_dict);
    if (!dict.is(Kind::kDict)) raise("the argument after ** must be a dict, not ", type_name(dict));
    charge_items(dict.dict->items.size());
    for (const auto& [key, value] : dict.dict->items) {
      if (!key.is_string()) raise("keywords must be strings");
      arguments.named.emplace_back(key.text->bytes(), value);
    }
  }
  return arguments;
}

Value Machine::evaluate_call(const Expression& node, std::optional<Value> caller) {
  const Value callee = evaluate(*node.operands[0]);
  Arguments arguments = evaluate_arguments(node.arguments);
  if (caller) arguments.named.emplace_back("caller", *caller);
  line_ = node.line;
  return call(callee, arguments);
}

Value Machine::evaluate_filter(const Expression& node, std::optional<Value> block) {
  Nested nested(*this);
  charge();
  const Expression* operand = node.operands[0].get();
  Value input;
  if (!operand) {
    input = *block;
  } else if (block) {
    input = evaluate_filter(*operand, block);
  } else {
    input = evaluate(*operand);
  }
  const Arguments arguments = evaluate_arguments(node.arguments);
  line_ = node.line;
  return apply_filter(node.name, input, arguments);
}

Value Machine::evaluate_test(const Expression& node) {
  const Value input = evaluate(*node.operands[0]);
  const Arguments arguments = evaluate_arguments(node.arguments);
  line_ = node.line;
  return Value::of_bool(apply_test(node.name, input, arguments));
}

Value Machine::apply_filter(std::string_view name, const Value& input, const Arguments& arguments) {
  charge();
  NativeCall native = find_filter(name);
  if (!native) native = find_list_filter(name);
  if (!native) raise("no filter named '", name, "'");
  return native(*this, input, arguments);
}

bool Machine::apply_test(std::string_view name, const Value& input, const Arguments& arguments) {
  charge();
  NativeCall native = find_test(name);
  if (!native) raise("no test named '", name, "'");
  return native(*this, input, arguments).boolean;
}

bool Machine::compare_with(std::string_view comparison, const Value& a, const Value& b) {
  if (comparison == "==") return equal(a, b);
  if (comparison == "!=") return !equal(a, b);
  if (comparison == "in") return contains(b, a);
  if (comparison == "not in") return !contains(b, a);
  const std::partial_ordering order = compare(a, b);
  if (comparison == "<") return order < 0;
  if (comparison == "<=") return order <= 0;
  if (comparison == ">") return order > 0;
  return order >= 0;
}

Value Machine::evaluate_compare(const Expression& node) {
  Value left = evaluate(*node.operands[0]);
  for (std::size_t i = 0; i < node.comparisons.size(); ++i) {
    const Value right = evaluate(*node.operands[i + 1]);
    line_ = node.line;
    if (!compare_with(node.comparisons[i], left, right)) return Value::of_bool(false);
    left = right;
  }
  return Value::of_bool(true);
}

}  // namespace quire::jinja
