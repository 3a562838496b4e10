#include "quire/text/jinja_value.h"

namespace quire::jinja {

std::string_view type_name(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInteger:
    case Kind::kUnsigned:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kGenerator:
      return "generator";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "";
}

const Value* Scope::find(std::uint32_t name) const {
  for (const Scope* scope = this; scope; scope = scope->parent) {
    for (const auto& [variable, value] : scope->variables) {
      if (variable == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::uint32_t name, Value value) {
  for (auto& [variable, old] : variables) {
    if (variable == name) {
      old = value;
      return;
    }
  }
  variables.emplace_back(name, value);
}

}  // namespace quire::jinja
