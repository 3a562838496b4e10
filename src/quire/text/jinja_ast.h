#pragma once
// The tree of a template. Plain structs: which fields a node uses stands beside its kind. Depth is bounded by the
// parser, so that recursion over a tree is safe.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quire/text/jinja_value.h"

namespace quire::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Keyword {
  std::string name;
  ExpressionPtr value;
};

/// The arguments of a call, filter or test as written.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<Keyword> named;
  ExpressionPtr spread_list;  ///< *args
  ExpressionPtr spread_dict;  ///< **kwargs
};

struct Expression {
  enum class Kind {
    kLiteral,      // literal; a string is in `text`
    kVariable,     // variable, name
    kList,         // operands
    kTuple,        // operands
    kDict,         // operands: key, value, key, value, ...
    kAttribute,    // operands[0] . name
    kItem,         // operands[0] [ operands[1] ]
    kSlice,        // operands[0] [ operands[1] : operands[2] : operands[3] ], each may be null
    kCall,         // operands[0] ( arguments )
    kFilter,       // operands[0] | name ( arguments ); operands[0] is null in filter blocks
    kTest,         // operands[0] is name ( arguments )
    kNot,          // operands[0]
    kNegate,       // operands[0]
    kPlus,         // operands[0]
    kAnd,          // operands
    kOr,           // operands
    kConcatenate,  // operands joined by ~
    kArithmetic,   // operands[0] name operands[1]
    kCompare,      // operands[0] comparisons[0] operands[1] comparisons[1] operands[2] ...
    kConditional,  // operands[0] if operands[1] else operands[2] (null: undefined)
  };
  Kind kind;
  int line;
  int depth = 1;  ///< of the tree below, itself included
  std::string name;
  std::uint32_t variable = 0;
  Value literal;
  Text text;
  std::vector<ExpressionPtr> operands;
  std::vector<std::string> comparisons;
  CallArguments arguments;
};

/// What `for` and `set` assign to.
struct Target {
  std::vector<Target> parts;  ///< unpacking; otherwise empty
  bool is_tuple = false;
  std::uint32_t variable = 0;
  std::string attribute;  ///< of the namespace in `variable`; empty: the variable itself
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct Parameter {
  std::string name;
  std::uint32_t variable;
  ExpressionPtr default_value;  ///< may be null
};

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  enum class Kind {
    kText,         // text
    kPrint,        // expression
    kFor,          // target in expression if condition: body, else_body
    kIf,           // branches, else_body
    kSet,          // target = expression
    kSetBlock,     // target = body through the filters of expression (may be null)
    kMacro,        // name(parameters): body
    kCall,         // call(parameters) expression: body
    kFilterBlock,  // body through the filters of expression
    kWith,         // assignments, body
    kScope,        // body in a scope of its own
    kDo,           // expression
    kBreak,
    kContinue,
  };
  Kind kind;
  int line;
  Text text;
  Target target;
  ExpressionPtr expression;
  ExpressionPtr condition;
  Body body, else_body;
  std::vector<Branch> branches;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  std::string name;
  std::uint32_t variable = 0;  ///< kMacro: where it is stored
  std::vector<Parameter> parameters;
  bool takes_more_arguments = false;  ///< the body mentions varargs
  bool takes_more_keywords = false;   ///< the body mentions kwargs
  bool takes_caller = false;          ///< the body mentions caller
};

/// Variables that the interpreter sets itself.
enum WellKnownVariable : std::uint32_t { kLoopVariable, kVarargsVariable, kKwargsVariable, kCallerVariable };

struct Tree {
  Body body;
  std::vector<std::string> variables;  ///< name of each variable number
};

inline constexpr int kMaxTreeDepth = 120;

/// Throws Failure.
Tree parse_template(std::string_view source);

}  // namespace quire::jinja
