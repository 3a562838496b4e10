// Filters on single values: text and numbers, tojson.

#include <algorithm>
#include <charconv>
#include <cmath>

#include "quire/text/jinja_machine.h"

namespace quire::jinja {
namespace {

std::string text_of(Machine& machine, const Value& value) { return machine.to_text(value).bytes(); }

template <Text (*change)(const Text&)>
Value changed_text(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("the filter", arguments, {});
  const Text text = machine.to_text(value);
  machine.charge_bytes(8 * text.size());
  return machine.make_text(change(text));
}

Value trim(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("trim", arguments, {"chars"});
  const Text text = machine.to_text(value);
  if (!bound[0] || bound[0]->is(Kind::kNone)) return machine.make_text(strip(text, Side::kBoth));
  const std::string characters = text_of(machine, *bound[0]);
  machine.charge_bytes(text.size() * std::min<std::size_t>(characters.size(), 256));
  return machine.make_text(strip(text, Side::kBoth, characters));
}

Value replace_filter(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const bool counted = bound[2] && !bound[2]->is(Kind::kNone);
  const std::int64_t count = counted ? machine.to_integer(*bound[2], "the count") : -1;
  return replaced(machine, machine.to_text(value), {text_of(machine, *bound[0]), machine.to_text(*bound[1]), count});
}

Value string_filter(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("string", arguments, {});
  return machine.make_text(machine.to_text(value));
}

Value safe(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("safe", arguments, {});
  return machine.make_text(machine.to_text(value));
}

Value escape(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("escape", arguments, {});
  const Text text = machine.to_text(value);
  machine.charge_bytes(8 * text.size());
  Text out;
  for_each_character(text.bytes(), [&](const Character& c) {
    auto put = [&](std::string_view entity) { out.append(entity, text.origin()); };
    switch (c.code_point) {
      case '&':
        return put("&amp;");
      case '<':
        return put("&lt;");
      case '>':
        return put("&gt;");
      case '"':
        return put("&#34;");
      case '\'':
        return put("&#39;");
      default:
        out.append(text, c.begin, c.end);
    }
  });
  return machine.make_text(std::move(out));
}

Value length(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("length", arguments, {});
  return Value::of_int(static_cast<std::int64_t>(machine.length(value)));
}

Value default_filter(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("default", arguments, {"default_value", "boolean"});
  const bool any_false = bound[1] && machine.truth(*bound[1]);
  if (!value.is(Kind::kUndefined) && !(any_false && !machine.truth(value))) return value;
  return bound[0] ? *bound[0] : machine.make_text("");
}

/// A number as Python's int() or float() read it, blanks and underscores included.
std::string number_characters(const Text& text) {
  const std::string whole = strip(text, Side::kBoth).bytes();
  auto digit_at = [&](std::size_t i) { return i < whole.size() && whole[i] >= '0' && whole[i] <= '9'; };
  std::string characters;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const bool separates = whole[i] == '_' && i > 0 && digit_at(i - 1) && digit_at(i + 1);
    const bool is_plus = whole[i] == '+' && i == 0 && digit_at(1);
    if (!separates && !is_plus) characters += whole[i];
  }
  return characters;
}

template <class Number, class... Options>
std::optional<Number> parse_number(std::string_view characters, Options... options) {
  Number number{};
  const char* end = characters.data() + characters.size();
  const auto [parsed, status] = std::from_chars(characters.data(), end, number, options...);
  if (status != std::errc() || parsed != end || characters.empty()) return std::nullopt;
  return number;
}

std::optional<std::int64_t> integer_of_float(double number) {
  if (!(number > -9.2e18 && number < 9.2e18)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

Value int_filter(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("int", arguments, {"default", "base"});
  const Value otherwise = bound.get(0, Value::of_int(0));
  if (value.is(Kind::kUndefined)) raise_undefined(value);
  std::optional<std::int64_t> number;
  if (value.is(Kind::kFloat)) {
    number = integer_of_float(value.number);
  } else if (value.is_number()) {
    return value.is(Kind::kBool) ? Value::of_int(value.boolean) : value;
  } else if (value.is_string()) {
    const std::int64_t base = bound[1] ? machine.to_integer(*bound[1], "the base") : 10;
    if (base < 2 || base > 36) raise("the base of int() is not between 2 and 36");
    std::string characters = number_characters(*value.text);
    const std::string_view prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
    std::string_view digits = characters;
    if (!prefix.empty() && digits.starts_with(prefix)) digits.remove_prefix(2);
    number = parse_number<std::int64_t>(digits, static_cast<int>(base));
    if (!number) {
      if (auto real = parse_number<double>(characters)) number = integer_of_float(*real);
    }
  }
  return number ? Value::of_int(*number) : otherwise;
}

Value float_filter(Machine&, const Value& value, const Arguments& arguments) {
  Bound bound("float", arguments, {"default"});
  if (value.is(Kind::kUndefined)) raise_undefined(value);
  if (value.is_number()) return Value::of_float(float_of(value));
  if (value.is_string()) {
    if (auto number = parse_number<double>(number_characters(*value.text))) return Value::of_float(*number);
  }
  return bound.get(0, Value::of_float(0));
}

Value abs_filter(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("abs", arguments, {});
  if (value.is(Kind::kFloat)) return Value::of_float(std::fabs(value.number));
  if (!value.is_number()) raise("abs() needs a number, not ", type_name(value));
  if (value.is(Kind::kUnsigned)) return value;
  const std::int64_t integer = integer_of(value);
  return integer < 0 ? machine.negate(value) : Value::of_int(integer);
}

/// Correctly rounded at a decimal digit, halves of the exact binary value to even, as Python's round().
double round_at(double number, std::int64_t digits) {
  if (!std::isfinite(number) || digits > 300) return number;
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(std::min<std::int64_t>(-digits, 400)));
    return std::isfinite(unit) ? std::nearbyint(number / unit) * unit : 0.0;
  }
  char buffer[800];
  const auto printed =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed, static_cast<int>(digits));
  double rounded = number;
  if (printed.ec == std::errc()) std::from_chars(buffer, printed.ptr, rounded);
  return rounded;
}

Value round_filter(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("round", arguments, {"precision", "method"});
  const std::int64_t digits = bound[0] ? machine.to_integer(*bound[0], "the precision") : 0;
  const std::string method = bound[1] ? text_of(machine, *bound[1]) : "common";
  if (value.is(Kind::kUndefined)) raise_undefined(value);
  if (!value.is_number()) raise("round() needs a number, not ", type_name(value));
  if (method == "common") {
    if (value.is(Kind::kFloat)) return Value::of_float(round_at(value.number, digits));
    if (digits >= 0) return value.is(Kind::kBool) ? Value::of_int(value.boolean) : value;
    return Value::of_int(static_cast<std::int64_t>(round_at(float_of(value), digits)));
  }
  if (method != "ceil" && method != "floor") raise("the method of round() must be common, ceil or floor");
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = float_of(value) * unit;
  return Value::of_float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value indent(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("indent", arguments, {"width", "first", "blank"});
  Text indention;
  if (bound[0] && bound[0]->is_string()) {
    indention = *bound[0]->text;
  } else {
    const std::int64_t width = bound[0] ? machine.to_integer(*bound[0], "the width") : 4;
    if (width > 1000) raise("an indent of more than 1000 is not supported");
    indention = Text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, width)), ' '), Origin::kTemplate);
  }
  const bool first = bound[1] && machine.truth(*bound[1]);
  const bool blank = bound[2] && machine.truth(*bound[2]);
  Text input = machine.to_text(value);
  input.append("\n", Origin::kTemplate);  // as jinja2: an empty text is one line, a newline at the end opens another
  const std::vector<Text> lines = split_lines(input);
  machine.charge_bytes(input.size() + lines.size() * indention.size());
  Text out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i) out.append("\n", Origin::kTemplate);
    const bool indented = i == 0 ? first : (blank || !lines[i].empty());
    if (indented) out.append(indention);
    out.append(lines[i]);
  }
  return machine.make_text(std::move(out));
}

Value to_json_filter(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii_only = bound[0] && machine.truth(*bound[0]);
  if (bound[1] && !bound[1]->is(Kind::kNone)) {
    style.indent = static_cast<int>(std::clamp<std::int64_t>(machine.to_integer(*bound[1], "the indent"), 0, 100));
    style.item_separator = std::string(1, ',');
  }
  if (bound[2] && !bound[2]->is(Kind::kNone)) {
    const std::vector<Value> pair = machine.items_of(*bound[2]);
    if (pair.size() != 2) raise("the separators of tojson are two strings");
    style.item_separator = text_of(machine, pair[0]);
    style.key_separator = text_of(machine, pair[1]);
  }
  style.sorted_keys = bound[3] && machine.truth(*bound[3]);
  return machine.make_text(machine.to_json(value, style));
}

Value format_filter(Machine& machine, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) raise("format() takes positions or names, not both");
  Value operand = machine.make_tuple(arguments.positional);
  if (!arguments.named.empty()) {
    operand = machine.make_dict();
    for (const auto& [name, item] : arguments.named) machine.set_in_dict(*operand.dict, machine.make_text(name), item);
  }
  return machine.make_text(format_percent(machine, machine.to_text(value), operand));
}

Value word_count(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("word_count", arguments, {});
  const Text text = machine.to_text(value);
  machine.charge_bytes(8 * text.size());
  std::int64_t words = 0;
  bool inside = false;
  for_each_character(text.bytes(), [&](const Character& c) {
    const bool part = c.code_point == '_' || is_alpha(c.code_point) || is_digit(c.code_point);
    if (part && !inside) ++words;
    inside = part;
  });
  return Value::of_int(words);
}

Value center(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("center", arguments, {"width"});
  const Value width = bound.get(0, Value::of_int(80));
  return centered(machine, machine.to_text(value), machine.to_integer(width, "the width"), " ");
}

Value truncate(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::int64_t length = machine.to_integer(bound.get(0, Value::of_int(255)), "the length");
  const std::int64_t leeway = machine.to_integer(bound.get(3, Value::of_int(5)), "the leeway");
  const Text end = bound[2] ? machine.to_text(*bound[2]) : Text("...", Origin::kTemplate);
  const auto end_length = static_cast<std::int64_t>(end.length());
  if (length < end_length || length > INT32_MAX || leeway < 0 || leeway > INT32_MAX) {
    raise("truncate() needs a length of at least that of its end, and a leeway of at least 0");
  }
  if (static_cast<std::int64_t>(machine.length(value)) <= length + leeway) return value;
  if (!value.is_string()) raise("truncate() needs a string, not ", type_name(value));
  const Text& text = *value.text;
  machine.charge_bytes(8 * text.size());
  Text kept = text.slice(0, text.offsets()[static_cast<std::size_t>(length - end_length)]);
  if (!bound[1] || !machine.truth(*bound[1])) kept = split_from_right(kept, " ", 1).front();
  kept.append(end);
  return machine.make_text(std::move(kept));
}

Value attribute_filter(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("attr", arguments, {"name"}, 1);
  return machine.own_attribute(value, text_of(machine, *bound[0]));
}

constexpr NativeEntry kFilters[] = {
    {"abs", abs_filter},
    {"attr", attribute_filter},
    {"capitalize", changed_text<capitalize>},
    {"center", center},
    {"count", length},
    {"d", default_filter},
    {"default", default_filter},
    {"e", escape},
    {"escape", escape},
    {"float", float_filter},
    {"forceescape", escape},
    {"format", format_filter},
    {"indent", indent},
    {"int", int_filter},
    {"length", length},
    {"lower", changed_text<to_lower>},
    {"replace", replace_filter},
    {"round", round_filter},
    {"safe", safe},
    {"string", string_filter},
    {"title", changed_text<title_filter>},
    {"tojson", to_json_filter},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", changed_text<to_upper>},
    {"wordcount", word_count},
};

}  // namespace

Value replaced(Machine& machine, const Text& text, const Replacement& replacement) {
  machine.charge_bytes(8 * text.size());
  const std::size_t places = replacement.old.empty() ? text.size() + 1 : text.size() / replacement.old.size();
  const std::size_t used =
      replacement.count < 0 ? places : std::min<std::size_t>(places, static_cast<std::size_t>(replacement.count));
  // Before the work: the result may be much longer than what it is made from.
  if (replacement.replacement.size() > replacement.old.size()) {
    std::size_t found = replacement.old.empty() ? used : 0;
    for (std::size_t at = 0; !replacement.old.empty() && found < used; ++found) {
      at = text.bytes().find(replacement.old, at);
      if (at == std::string::npos) break;
      at += replacement.old.size();
    }
    const std::size_t limit = machine.limits().max_output_bytes;
    if (found > limit / replacement.replacement.size()) raise("a string is longer than ", limit, " bytes");
  }
  return machine.make_text(replace(text, replacement.old, replacement.replacement, replacement.count));
}

Value centered(Machine& machine, const Text& text, std::int64_t width, std::string_view fill) {
  const auto length = static_cast<std::int64_t>(text.length());
  if (width <= length) return machine.make_text(text);
  if (width > static_cast<std::int64_t>(machine.limits().max_output_bytes)) raise("a width is out of range");
  const std::int64_t margin = width - length;
  const std::int64_t left = margin / 2 + (margin & width & 1);  // as CPython rounds
  Text out;
  for (std::int64_t i = 0; i < left; ++i) out.append(fill, Origin::kTemplate);
  out.append(text);
  for (std::int64_t i = left; i < margin; ++i) out.append(fill, Origin::kTemplate);
  return machine.make_text(std::move(out));
}

NativeCall find_filter(std::string_view name) { return find_native(kFilters, name); }

}  // namespace quire::jinja
