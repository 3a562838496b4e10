// The tests of `is`.

#include <cmath>

#include "quire/text/jinja_machine.h"

namespace quire::jinja {
namespace {

Value yes_or_no(bool truth) { return Value::of_bool(truth); }

void no_arguments(std::string_view name, const Arguments& arguments) { Bound(name, arguments, {}); }

template <bool (*test)(const Value&)>
Value by_kind(Machine&, const Value& value, const Arguments& arguments) {
  no_arguments("a test", arguments);
  return yes_or_no(test(value));
}

bool is_defined(const Value& value) { return !value.is(Kind::kUndefined); }
bool is_undefined(const Value& value) { return value.is(Kind::kUndefined); }
bool is_none(const Value& value) { return value.is(Kind::kNone); }
bool is_boolean(const Value& value) { return value.is(Kind::kBool); }
bool is_true(const Value& value) { return value.is(Kind::kBool) && value.boolean; }
bool is_false(const Value& value) { return value.is(Kind::kBool) && !value.boolean; }
bool is_integer(const Value& value) { return value.is(Kind::kInteger) || value.is(Kind::kUnsigned); }
bool is_float(const Value& value) { return value.is(Kind::kFloat); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.is(Kind::kDict); }
bool is_sequence(const Value& value) {
  return value.is_sequence() || value.is_string() || value.is(Kind::kDict) || value.is(Kind::kUndefined);
}
bool is_callable(const Value& value) {
  return value.is(Kind::kFunction) || value.is(Kind::kUndefined);  // jinja2's Undefined can be called, and then fails
}
bool is_escaped(const Value&) { return false; }

Value iterable(Machine& machine, const Value& value, const Arguments& arguments) {
  no_arguments("iterable", arguments);
  return yes_or_no(machine.is_iterable(value));
}

Value remainder_is(Machine& machine, const Value& value, std::int64_t divisor, double wanted) {
  const Value rest = machine.arithmetic("%", value, Value::of_int(divisor));
  return yes_or_no(rest.is_number() && float_of(rest) == wanted);
}

Value odd(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("odd", arguments, {});
  return remainder_is(machine, value, 2, 1);
}
Value even(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("even", arguments, {});
  return remainder_is(machine, value, 2, 0);
}
Value divisible_by(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("divisibleby", arguments, {"num"}, 1);
  return remainder_is(machine, value, machine.to_integer(*bound[0], "the divisor"), 0);
}

bool has_cased(const Text& text, bool (*is_wanted)(char32_t), bool (*is_refused)(char32_t)) {
  bool found = false, refused = false;
  for_each_character(text.bytes(), [&](const Character& c) {
    found = found || is_wanted(c.code_point);
    refused = refused || is_refused(c.code_point);
  });
  return found && !refused;
}

Value lower_case(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("lower_case", arguments, {});
  return yes_or_no(has_cased(machine.to_text(value), is_lower, is_upper));
}
Value upper_case(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("upper_case", arguments, {});
  return yes_or_no(has_cased(machine.to_text(value), is_upper, is_lower));
}

Value same_as(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("sameas", arguments, {"other"}, 1);
  const Value& other = *bound[0];
  if (value.kind != other.kind) return yes_or_no(false);
  if (value.is_sequence()) return yes_or_no(value.list == other.list);
  if (value.is(Kind::kDict)) return yes_or_no(value.dict == other.dict);
  return yes_or_no(machine.equal(value, other));
}

Value in(Machine& machine, const Value& value, const Arguments& arguments) {
  return yes_or_no(machine.contains(*Bound("in", arguments, {"seq"}, 1)[0], value));
}
Value eq(Machine& machine, const Value& value, const Arguments& arguments) {
  return yes_or_no(machine.equal(value, *Bound("eq", arguments, {"other"}, 1)[0]));
}
Value ne(Machine& machine, const Value& value, const Arguments& arguments) {
  return yes_or_no(!machine.equal(value, *Bound("ne", arguments, {"other"}, 1)[0]));
}
Value lt(Machine& machine, const Value& value, const Arguments& arguments) {
  return yes_or_no(machine.compare(value, *Bound("lt", arguments, {"other"}, 1)[0]) < 0);
}
Value le(Machine& machine, const Value& value, const Arguments& arguments) {
  return yes_or_no(machine.compare(value, *Bound("le", arguments, {"other"}, 1)[0]) <= 0);
}
Value gt(Machine& machine, const Value& value, const Arguments& arguments) {
  return yes_or_no(machine.compare(value, *Bound("gt", arguments, {"other"}, 1)[0]) > 0);
}
Value ge(Machine& machine, const Value& value, const Arguments& arguments) {
  return yes_or_no(machine.compare(value, *Bound("ge", arguments, {"other"}, 1)[0]) >= 0);
}

Value is_filter(Machine&, const Value& value, const Arguments& arguments) {
  Bound("is_filter", arguments, {});
  const bool known = value.is_string() && (find_filter(value.text->bytes()) || find_list_filter(value.text->bytes()));
  return yes_or_no(known);
}
Value is_test(Machine&, const Value& value, const Arguments& arguments) {
  Bound("is_test", arguments, {});
  return yes_or_no(value.is_string() && find_test(value.text->bytes()));
}

constexpr NativeEntry kTests[] = {
    {"defined", by_kind<is_defined>},
    {"undefined", by_kind<is_undefined>},
    {"none", by_kind<is_none>},
    {"boolean", by_kind<is_boolean>},
    {"true", by_kind<is_true>},
    {"false", by_kind<is_false>},
    {"integer", by_kind<is_integer>},
    {"float", by_kind<is_float>},
    {"number", by_kind<is_number>},
    {"string", by_kind<is_string>},
    {"mapping", by_kind<is_mapping>},
    {"sequence", by_kind<is_sequence>},
    {"callable", by_kind<is_callable>},
    {"escaped", by_kind<is_escaped>},
    {"iterable", iterable},
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisible_by},
    {"lower", lower_case},
    {"upper", upper_case},
    {"sameas", same_as},
    {"in", in},
    {"eq", eq},
    {"equalto", eq},
    {"ne", ne},
    {"lt", lt},
    {"lessthan", lt},
    {"le", le},
    {"gt", gt},
    {"greaterthan", gt},
    {"ge", ge},
    {"==", eq},
    {"!=", ne},
    {"<", lt},
    {"<=", le},
    {">", gt},
    {">=", ge},
    {"filter", is_filter},
    {"test", is_test},
};

}  // namespace

NativeCall find_test(std::string_view name) { return find_native(kTests, name); }

}  // namespace quire::jinja
