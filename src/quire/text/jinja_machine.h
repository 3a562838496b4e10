#pragma once
// Machine: runs the tree of a template once. One per render, one thread. Everything it does costs fuel, and whatever
// fails (a limit, an operation that Python would refuse) is thrown as a Failure with the line of the innermost
// construct.
//
// The functions, filters, tests and methods that templates call are natives in jinja_functions.cpp, jinja_filters.cpp,
// jinja_list_filters.cpp, jinja_tests.cpp and jinja_methods.cpp, found by name through the tables declared at the end.

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/text/chat_template.h"
#include "quire/text/jinja_ast.h"
#include "quire/text/jinja_value.h"

namespace quire::jinja {

/// How a tojson filter or repr prints: the options of Python's json.dumps.
struct JsonStyle {
  std::optional<int> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ascii_only = false;
  bool sorted_keys = false;
};

class Machine {
 public:
  Machine(const Tree& tree, const TemplateLimits& limits, const CivilTime& now);

  void set_variable(std::string_view name, Value value);
  Text run();

  // ---- budget ----

  void charge(std::size_t steps = 1);
  void charge_bytes(std::size_t bytes) { charge(1 + bytes / 256); }
  void charge_items(std::size_t items) { charge(1 + items / 8); }
  const TemplateLimits& limits() const { return limits_; }
  const CivilTime& now() const { return now_; }

  /// Held while something nests: macro calls, nested data.
  struct Nested {
    explicit Nested(Machine& owner);
    ~Nested() { --machine.depth_; }
    Machine& machine;
  };

  // ---- making values ----

  /// Refuses a string above the output limit.
  Value make_text(Text text);
  Value make_text(std::string_view bytes, Origin origin = Origin::kTemplate) { return make_text(Text(bytes, origin)); }
  Value make_list(std::vector<Value> items) { return make_sequence(Kind::kList, std::move(items)); }
  Value make_tuple(std::vector<Value> items) { return make_sequence(Kind::kTuple, std::move(items)); }
  Value make_generator(std::vector<Value> items) { return make_sequence(Kind::kGenerator, std::move(items)); }
  Value make_dict(Kind kind = Kind::kDict);
  Value make_undefined(std::string why);
  Value make_function(Function function);
  Value from_json(const json::Value& value, Origin origin);

  // ---- Python's protocols ----

  Text to_text(const Value& value);  ///< str()
  Text repr(const Value& value);
  Text to_json(const Value& value, const JsonStyle& style);
  bool truth(const Value& value);
  bool equal(const Value& a, const Value& b);
  /// Only of what Python can order; NaN is unordered.
  std::partial_ordering compare(const Value& a, const Value& b);
  bool contains(const Value& container, const Value& item);
  std::size_t length(const Value& value);
  bool is_iterable(const Value& value) const;
  /// What a for loop visits; uses up a generator.
  std::vector<Value> items_of(const Value& value);
  std::int64_t to_integer(const Value& value, std::string_view what);  ///< of a bool or integer

  const Value* find_in_dict(const Dict& dict, const Value& key);
  void set_in_dict(Dict& dict, const Value& key, Value value);

  Value attribute(const Value& object, std::string_view name);      ///< object.name
  Value own_attribute(const Value& object, std::string_view name);  ///< without the items of a dict
  Value item(const Value& object, const Value& key);                ///< object[key]
  struct SliceBounds {
    Value begin, end, step;  ///< none where left out
  };
  Value slice(const Value& object, const SliceBounds& bounds);
  Value negate(const Value& value);
  Value repeat(const Value& whole, std::int64_t count);  ///< a string or sequence
  Value arithmetic(std::string_view operation, const Value& a, const Value& b);

  Value call(const Value& callee, const Arguments& arguments);
  Value apply_filter(std::string_view name, const Value& input, const Arguments& arguments);
  bool apply_test(std::string_view name, const Value& input, const Arguments& arguments);

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  /// Where output goes while a block is captured.
  struct Capture;
  /// The variables of a block.
  struct ScopeGuard;

  Value make_sequence(Kind kind, std::vector<Value> items);

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_for(const Statement& statement);
  Flow execute_if(const Statement& statement);
  Flow execute_captured(const Statement& statement);
  Flow execute_with(const Statement& statement);
  void execute_call_block(const Statement& statement);
  std::vector<Value> loop_items(const Statement& statement);
  void output(const Text& text);
  void print(const Value& value);
  void assign(const Target& target, const Value& value);
  Scope* new_scope(Scope* parent);
  Value function_of(const Statement& macro);
  Value call_macro(const Function& function, const Arguments& arguments);
  void bind_parameters(const Function& function, const Arguments& arguments);
  void bind_rest(const Statement& macro, const Arguments& arguments, const std::vector<bool>& used);

  Value evaluate(const Expression& node);
  Value evaluate_node(const Expression& node);
  Value evaluate_variable(const Expression& node);
  Value evaluate_call(const Expression& node, std::optional<Value> caller);
  /// `block` is the text of a filter block, which goes in where the innermost filter has no operand.
  Value evaluate_filter(const Expression& node, std::optional<Value> block);
  Value evaluate_test(const Expression& node);
  Value evaluate_logic(const Expression& node);
  Value evaluate_concatenation(const Expression& node);
  Value evaluate_slice(const Expression& node);
  Value evaluate_binary(const Expression& node, Value (Machine::*combine)(const Value&, const Value&));
  Value evaluate_compare(const Expression& node);
  Value evaluate_dict(const Expression& node);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& nodes);
  Arguments evaluate_arguments(const CallArguments& arguments);
  bool compare_with(std::string_view comparison, const Value& a, const Value& b);

  std::optional<Value> native_attribute(const Value& object, std::string_view name);
  std::optional<Value> loop_attribute(const Value& object, std::string_view name);
  /// "'dict object' has no attribute 'x'".
  Value missing(const Value& object, std::string_view name);
  void append_repr(Text& out, const Value& value);
  void append_json(Text& out, const Value& value, const JsonStyle& style, int level);
  void append_json_key(Text& out, const Value& key, const JsonStyle& style);

  const Tree& tree_;
  const TemplateLimits& limits_;
  const CivilTime& now_;
  std::size_t steps_ = 0;
  int depth_ = 0;
  int line_ = 0;  ///< of what is being run
  Heap heap_;
  Scope globals_;
  Scope* scope_ = &globals_;
  Text* output_ = nullptr;
  Text result_;
};

/// Arguments by position or name, as a Python signature binds them.
class Bound {
 public:
  /// `names` in order, the first `required` of them without default. Throws for too many, unknown or missing ones.
  Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
        std::size_t required = 0);
  /// Null when not given.
  const Value* operator[](std::size_t index) const { return values_[index]; }
  Value get(std::size_t index, Value otherwise) const { return values_[index] ? *values_[index] : otherwise; }

 private:
  std::vector<const Value*> values_;
};

/// What using an undefined value is: an error that says what is undefined.
[[noreturn]] void raise_undefined(const Value& value);

// Arithmetic and the like on two values that are numbers.
bool both_integers(const Value& a, const Value& b);
std::int64_t integer_of(const Value& value);  ///< of a bool or integer
double float_of(const Value& value);          ///< of any number

/// printf-style formatting, Python's `%` on strings.
Text format_percent(Machine& machine, const Text& format, const Value& operand);
/// The moment in the manner of strftime. Throws for a directive it does not know.
std::string format_time(std::string_view format, const CivilTime& time);

struct Replacement {
  std::string old;
  Text replacement;
  std::int64_t count;  ///< negative: all
};
Value replaced(Machine& machine, const Text& text, const Replacement& replacement);
/// Python's str.center.
Value centered(Machine& machine, const Text& text, std::int64_t width, std::string_view fill);

/// Null when there is no such filter, test, global function or method.
NativeCall find_filter(std::string_view name);
NativeCall find_list_filter(std::string_view name);
NativeCall find_test(std::string_view name);
NativeCall find_function(std::string_view name);
/// Methods by the kind of their object.
NativeCall find_method(Kind kind, std::string_view name);

/// A table of natives.
struct NativeEntry {
  std::string_view name;
  NativeCall call;
};

template <std::size_t size>
NativeCall find_native(const NativeEntry (&table)[size], std::string_view name) {
  for (const NativeEntry& entry : table) {
    if (entry.name == name) return entry.call;
  }
  return nullptr;
}

}  // namespace quire::jinja
