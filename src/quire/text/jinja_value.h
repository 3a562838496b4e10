#pragma once
// Values of the template interpreter. A Value is a small copyable handle; strings, lists, dicts and functions live in a
// Heap that is freed as a whole when the render ends, so templates may build cycles without leaking.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/cat.h"
#include "quire/text/jinja_text.h"

namespace quire::jinja {

/// How parsing and rendering end early. Thrown only inside the interpreter (text/jinja*), caught by ChatTemplate, which
/// turns it into an Error; so deep evaluation code stays free of plumbing. `line` 0: not known yet.
struct Failure {
  std::string message;
  int line = 0;
};

template <class... Args>
[[noreturn]] void raise(const Args&... args) {
  throw Failure{cat(args...)};
}

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kUnsigned,  ///< an integer above int64 that came from JSON: printed and compared, a float in arithmetic
  kFloat,
  kString,
  kList,
  kTuple,
  kGenerator,  ///< what lazy filters give: always true, iterated once
  kDict,
  kNamespace,
  kFunction,
  kLoop,
};

struct List;
struct Dict;
struct Function;
struct Loop;

struct Value {
  Kind kind = Kind::kUndefined;
  union {
    const std::string* why;  ///< kUndefined: what is missing; null: nothing to tell
    bool boolean;
    std::int64_t integer;
    std::uint64_t unsigned_integer;
    double number;
    const Text* text;
    List* list;  ///< kList, kTuple, kGenerator
    Dict* dict;  ///< kDict, kNamespace
    const Function* function;
    Loop* loop;
  };

  Value() : why(nullptr) {}
  static Value none() { return of(Kind::kNone); }
  static Value of_bool(bool truth) {
    Value value = of(Kind::kBool);
    value.boolean = truth;
    return value;
  }
  static Value of_int(std::int64_t integer) {
    Value value = of(Kind::kInteger);
    value.integer = integer;
    return value;
  }
  static Value of_unsigned(std::uint64_t integer) {
    Value value = of(Kind::kUnsigned);
    value.unsigned_integer = integer;
    return value;
  }
  static Value of_float(double number) {
    Value value = of(Kind::kFloat);
    value.number = number;
    return value;
  }
  static Value of_text(const Text* text) {
    Value value = of(Kind::kString);
    value.text = text;
    return value;
  }

  bool is(Kind wanted) const { return kind == wanted; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_sequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
  /// bool, integer or float, as in Python's numbers.
  bool is_number() const {
    return kind == Kind::kBool || kind == Kind::kInteger || kind == Kind::kUnsigned || kind == Kind::kFloat;
  }

 private:
  static Value of(Kind kind) {
    Value value;
    value.kind = kind;
    return value;
  }
};

/// Python's name of the type, for messages.
std::string_view type_name(const Value& value);

struct List {
  std::vector<Value> items;
  std::size_t taken = 0;  ///< kGenerator: items already handed out
};

/// Insertion order; found by looking at each, which costs fuel.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Machine;
struct Scope;
struct Statement;

using NativeCall = Value (*)(Machine&, const Value& self, const Arguments&);

/// Something callable: a native function (bound to `self` if it is a method), or a macro with the scope it was defined
/// in.
struct Function {
  std::string_view name;
  NativeCall native = nullptr;
  Value self;
  const Statement* macro = nullptr;
  Scope* scope = nullptr;
};

/// The `loop` variable.
struct Loop {
  std::vector<Value> items;
  std::size_t index = 0;
  bool has_last_changed = false;
  std::vector<Value> last_changed;
};

/// A level of variables. Variables are numbers that the parser gave their names.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::uint32_t, Value>> variables;

  const Value* find(std::uint32_t name) const;
  void set(std::uint32_t name, Value value);
};

/// Owns what a render makes. Addresses are stable.
struct Heap {
  std::deque<Text> texts;
  std::deque<List> lists;
  std::deque<Dict> dicts;
  std::deque<Function> functions;
  std::deque<Loop> loops;
  std::deque<Scope> scopes;
  std::deque<std::string> reasons;
};

}  // namespace quire::jinja
