// Python's arithmetic, on numbers, strings and sequences.

#include <cmath>

#include "quire/text/jinja_machine.h"

namespace quire::jinja {

namespace {

[[noreturn]] void raise_operands(std::string_view operation, const Value& a, const Value& b) {
  if (a.is(Kind::kUndefined)) raise_undefined(a);
  if (b.is(Kind::kUndefined)) raise_undefined(b);
  raise("the operator ", operation, " is not defined for ", type_name(a), " and ", type_name(b));
}

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) raise("an integer is out of range");
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) raise("an integer is out of range");
  }
  return result;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == -1) {
    std::int64_t result;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) raise("an integer is out of range");
    return result;
  }
  const std::int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Value integer_arithmetic(std::string_view operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  if (operation == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (operation == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (operation == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (operation == "**") {
    if (b < 0) {
      if (a == 0) raise("division by zero");
      return Value::of_float(std::pow(static_cast<double>(a), static_cast<double>(b)));
    }
    result = integer_power(a, b);
  } else {
    if (b == 0) raise("division by zero");
    if (operation == "/") return Value::of_float(static_cast<double>(a) / static_cast<double>(b));
    const std::int64_t quotient = floor_divide(a, b);
    result = operation == "//" ? quotient : (b == -1 ? 0 : a - quotient * b);
  }
  if (overflow) raise("an integer is out of range");
  return Value::of_int(result);
}

double floor_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

Value float_arithmetic(std::string_view operation, double a, double b) {
  if (operation == "+") return Value::of_float(a + b);
  if (operation == "-") return Value::of_float(a - b);
  if (operation == "*") return Value::of_float(a * b);
  if (operation == "**") {
    const double power = std::pow(a, b);
    if (!std::isfinite(power) && std::isfinite(a) && std::isfinite(b)) raise("a power is out of range");
    return Value::of_float(power);
  }
  if (b == 0) raise("division by zero");
  if (operation == "/") return Value::of_float(a / b);
  if (operation == "%") return Value::of_float(floor_modulo(a, b));
  return Value::of_float(std::floor((a - floor_modulo(a, b)) / b + 0.5));
}

}  // namespace

Value Machine::arithmetic(std::string_view operation, const Value& a, const Value& b) {
  charge();
  if (a.is_number() && b.is_number()) {
    if (both_integers(a, b)) return integer_arithmetic(operation, integer_of(a), integer_of(b));
    return float_arithmetic(operation, float_of(a), float_of(b));
  }
  if (operation == "%" && a.is_string()) return make_text(format_percent(*this, *a.text, b));
  if (operation == "+" && a.is_string() && b.is_string()) {
    charge_bytes(a.text->size() + b.text->size());
    Text text = *a.text;
    text.append(*b.text);
    return make_text(std::move(text));
  }
  if (operation == "+" && a.is_sequence() && a.kind == b.kind) {
    charge_items(a.list->items.size() + b.list->items.size());
    std::vector<Value> items = a.list->items;
    items.insert(items.end(), b.list->items.begin(), b.list->items.end());
    return a.is(Kind::kTuple) ? make_tuple(std::move(items)) : make_list(std::move(items));
  }
  const bool repeats = a.is_string() || a.is_sequence();
  if (operation == "*" && (repeats || b.is_string() || b.is_sequence())) {
    const Value& whole = repeats ? a : b;
    const Value& count = repeats ? b : a;
    if (count.is(Kind::kInteger) || count.is(Kind::kBool)) return repeat(whole, integer_of(count));
  }
  raise_operands(operation, a, b);
}

Value Machine::repeat(const Value& whole, std::int64_t count) {
  const std::size_t times = count > 0 ? static_cast<std::size_t>(count) : 0;
  const std::size_t size = whole.is_string() ? whole.text->size() : whole.list->items.size();
  const std::size_t limit = whole.is_string() ? limits_.max_output_bytes : limits_.max_steps;
  if (size > 0 && times > limit / size) raise("a repetition is longer than ", limit);
  if (whole.is_string()) {
    charge_bytes(size * times);
    Text text;
    for (std::size_t i = 0; size > 0 && i < times; ++i) text.append(*whole.text);
    return make_text(std::move(text));
  }
  charge_items(size * times);
  std::vector<Value> items;
  for (std::size_t i = 0; size > 0 && i < times; ++i) {
    items.insert(items.end(), whole.list->items.begin(), whole.list->items.end());
  }
  return whole.is(Kind::kTuple) ? make_tuple(std::move(items)) : make_list(std::move(items));
}

Value Machine::negate(const Value& value) {
  if (value.is(Kind::kFloat)) return Value::of_float(-value.number);
  if (!value.is_number()) raise_operands("-", Value::of_int(0), value);
  return arithmetic("-", Value::of_int(0), value);
}

}  // namespace quire::jinja
