// Running statements; macros.

#include "quire/text/jinja_machine.h"

#include <algorithm>

namespace quire::jinja {

struct Machine::Capture {
  explicit Capture(Machine& owner) : machine(owner), outer(owner.output_) { machine.output_ = &text; }
  ~Capture() { machine.output_ = outer; }
  Machine& machine;
  Text* outer;
  Text text;
};

struct Machine::ScopeGuard {
  ScopeGuard(Machine& owner, Scope* parent) : machine(owner), outer(owner.scope_) {
    machine.scope_ = machine.new_scope(parent);
  }
  ~ScopeGuard() { machine.scope_ = outer; }
  Machine& machine;
  Scope* outer;
};

Machine::Nested::Nested(Machine& owner) : machine(owner) {
  if (++machine.depth_ > machine.limits_.max_depth) {
    --machine.depth_;
    raise("nested deeper than ", machine.limits_.max_depth, " levels");
  }
}

Machine::Machine(const Tree& tree, const TemplateLimits& limits, const CivilTime& now)
    : tree_(tree), limits_(limits), now_(now), output_(&result_) {}

void Machine::set_variable(std::string_view name, Value value) {
  const auto found = std::find(tree_.variables.begin(), tree_.variables.end(), name);
  if (found == tree_.variables.end()) return;  // the template never looks at it
  globals_.set(static_cast<std::uint32_t>(found - tree_.variables.begin()), value);
}

Text Machine::run() {
  try {
    execute(tree_.body);
  } catch (Failure& failure) {
    if (failure.line == 0) failure.line = line_;
    throw;
  }
  return std::move(result_);
}

void Machine::charge(std::size_t steps) {
  steps_ += steps;
  if (steps_ > limits_.max_steps) raise("the template takes more than ", limits_.max_steps, " steps");
}

Scope* Machine::new_scope(Scope* parent) {
  heap_.scopes.push_back(Scope{parent, {}});
  return &heap_.scopes.back();
}

void Machine::output(const Text& text) {
  charge_bytes(text.size());
  if (text.size() > limits_.max_output_bytes - std::min(limits_.max_output_bytes, output_->size())) {
    raise("the output is longer than ", limits_.max_output_bytes, " bytes");
  }
  output_->append(text);
}

Machine::Flow Machine::execute(const Body& body) {
  for (const auto& statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Machine::Flow Machine::execute(const Statement& statement) {
  using Tag = Statement::Kind;
  Nested nested(*this);
  charge();
  line_ = statement.line;
  switch (statement.kind) {
    case Tag::kText:
      output(statement.text);
      break;
    case Tag::kPrint:
      print(evaluate(*statement.expression));
      break;
    case Tag::kFor:
      return execute_for(statement);
    case Tag::kIf:
      return execute_if(statement);
    case Tag::kSet:
      assign(statement.target, evaluate(*statement.expression));
      break;
    case Tag::kSetBlock:
    case Tag::kFilterBlock:
      return execute_captured(statement);
    case Tag::kMacro:
      scope_->set(statement.variable, function_of(statement));
      break;
    case Tag::kCall:
      execute_call_block(statement);
      break;
    case Tag::kWith:
      return execute_with(statement);
    case Tag::kScope: {
      ScopeGuard guard(*this, scope_);
      return execute(statement.body);
    }
    case Tag::kDo:
      evaluate(*statement.expression);
      break;
    case Tag::kBreak:
      return Flow::kBreak;
    case Tag::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

void Machine::print(const Value& value) {
  if (value.is_string()) return output(*value.text);
  output(to_text(value));
}

std::vector<Value> Machine::loop_items(const Statement& statement) {
  std::vector<Value> items = items_of(evaluate(*statement.expression));
  charge_items(items.size());
  if (!statement.condition) return items;
  std::vector<Value> kept;
  for (const Value& item : items) {
    ScopeGuard guard(*this, scope_);
    charge();
    assign(statement.target, item);
    if (truth(evaluate(*statement.condition))) kept.push_back(item);
  }
  return kept;
}

Machine::Flow Machine::execute_for(const Statement& statement) {
  heap_.loops.emplace_back();
  Loop& loop = heap_.loops.back();
  loop.items = loop_items(statement);
  if (loop.items.empty()) {
    ScopeGuard guard(*this, scope_);
    return execute(statement.else_body);
  }
  Value handle;
  handle.kind = Kind::kLoop;
  handle.loop = &loop;
  for (loop.index = 0; loop.index < loop.items.size(); ++loop.index) {
    charge();
    ScopeGuard guard(*this, scope_);
    assign(statement.target, loop.items[loop.index]);
    scope_->set(kLoopVariable, handle);
    if (execute(statement.body) == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

Machine::Flow Machine::execute_if(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (truth(evaluate(*branch.condition))) return execute(branch.body);
  }
  return execute(statement.else_body);
}

/// {% set x %}...{% endset %} and {% filter f %}...{% endfilter %}.
Machine::Flow Machine::execute_captured(const Statement& statement) {
  Value text;
  Flow flow;
  {
    Capture capture(*this);
    ScopeGuard guard(*this, scope_);
    flow = execute(statement.body);
    text = make_text(std::move(capture.text));
  }
  if (flow != Flow::kNormal) return flow;
  if (statement.expression) text = evaluate_filter(*statement.expression, text);
  if (statement.kind == Statement::Kind::kSetBlock) {
    assign(statement.target, text);
  } else {
    print(text);
  }
  return Flow::kNormal;
}

Machine::Flow Machine::execute_with(const Statement& statement) {
  // The values see the outer variables, not each other.
  std::vector<Value> values;
  for (const auto& assignment : statement.assignments) values.push_back(evaluate(*assignment.second));
  ScopeGuard guard(*this, scope_);
  for (std::size_t i = 0; i < values.size(); ++i) assign(statement.assignments[i].first, values[i]);
  return execute(statement.body);
}

void Machine::execute_call_block(const Statement& statement) {
  print(evaluate_call(*statement.expression, function_of(statement)));
}

void Machine::assign(const Target& target, const Value& value) {
  if (!target.is_tuple) {
    if (target.attribute.empty()) return scope_->set(target.variable, value);
    const Value* object = scope_->find(target.variable);
    if (!object || !object->is(Kind::kNamespace)) {
      raise("cannot assign to an attribute of '", tree_.variables[target.variable], "', which is no namespace");
    }
    return set_in_dict(*object->dict, make_text(target.attribute), value);
  }
  const std::vector<Value> items = items_of(value);
  charge_items(items.size());
  if (items.size() != target.parts.size()) {
    raise("cannot unpack ", items.size(), " values into ", target.parts.size(), " variables");
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
}

Value Machine::function_of(const Statement& macro) {
  Function function;
  function.name = macro.name;
  function.macro = &macro;
  function.scope = scope_;
  return make_function(function);
}

Value Machine::call_macro(const Function& function, const Arguments& arguments) {
  const int line = line_;
  Capture capture(*this);
  ScopeGuard guard(*this, function.scope);
  bind_parameters(function, arguments);
  execute(function.macro->body);
  line_ = line;
  return make_text(std::move(capture.text));
}

void Machine::bind_parameters(const Function& function, const Arguments& arguments) {
  const Statement& macro = *function.macro;
  std::vector<bool> used(arguments.named.size());
  auto take_named = [&](std::string_view name) -> const Value* {
    for (std::size_t i = 0; i < arguments.named.size(); ++i) {
      if (arguments.named[i].first != name || used[i]) continue;
      used[i] = true;
      return &arguments.named[i].second;
    }
    return nullptr;
  };
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const Value* given = i < arguments.positional.size() ? &arguments.positional[i] : take_named(parameter.name);
    if (given) {
      scope_->set(parameter.variable, *given);
    } else if (parameter.default_value) {
      scope_->set(parameter.variable, evaluate(*parameter.default_value));
    } else {
      scope_->set(parameter.variable, make_undefined(cat("parameter '", parameter.name, "' was not provided")));
    }
  }
  if (macro.takes_caller) {
    const Value* caller = take_named("caller");
    scope_->set(kCallerVariable, caller ? *caller : make_undefined("no caller defined"));
  }
  bind_rest(macro, arguments, used);
}

/// Arguments that no parameter took.
void Machine::bind_rest(const Statement& macro, const Arguments& arguments, const std::vector<bool>& used) {
  const Value kwargs = make_dict();
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    const auto& [name, value] = arguments.named[i];
    if (!macro.takes_more_keywords) raise("macro '", macro.name, "' takes no keyword argument '", name, "'");
    set_in_dict(*kwargs.dict, make_text(name), value);
  }
  if (macro.takes_more_keywords) scope_->set(kKwargsVariable, kwargs);

  const std::size_t taken = std::min(macro.parameters.size(), arguments.positional.size());
  std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken),
                          arguments.positional.end());
  if (macro.takes_more_arguments) {
    scope_->set(kVarargsVariable, make_tuple(std::move(rest)));
  } else if (!rest.empty()) {
    raise("macro '", macro.name, "' takes not more than ", macro.parameters.size(), " arguments");
  }
}

Value Machine::call(const Value& callee, const Arguments& arguments) {
  if (!callee.is(Kind::kFunction)) {
    if (callee.is(Kind::kUndefined)) raise_undefined(callee);
    raise("a value of type ", type_name(callee), " cannot be called");
  }
  Nested nested(*this);
  const Function& function = *callee.function;
  if (function.macro) return call_macro(function, arguments);
  return function.native(*this, function.self, arguments);
}

}  // namespace quire::jinja
