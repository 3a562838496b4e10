// Values as text: str(), repr(), JSON, printf-style formatting, dates.

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "quire/text/jinja_machine.h"

namespace quire::jinja {
namespace {

/// Python's repr of a float.
std::string float_text(double number, bool as_json) {
  if (std::isnan(number)) return as_json ? "NaN" : "nan";
  if (std::isinf(number)) return cat(number < 0 ? "-" : "", as_json ? "Infinity" : "inf");
  std::string text;
  json::append_double(text, number);
  return text;
}

std::string number_text(const Value& value) {
  if (value.is(Kind::kFloat)) return float_text(value.number, false);
  if (value.is(Kind::kUnsigned)) return cat(value.unsigned_integer);
  return cat(value.integer);
}

std::string hexadecimal(char32_t c, int digits) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, "%0*x", digits, static_cast<unsigned>(c));
  return buffer;
}

void append_repr_character(Text& out, const Text& text, const Character& c, char quote, Origin origin) {
  const char32_t point = c.code_point;
  if (point == '\n') return out.append("\\n", origin);
  if (point == '\r') return out.append("\\r", origin);
  if (point == '\t') return out.append("\\t", origin);
  if (point == '\\') return out.append("\\\\", origin);
  if (point == static_cast<char32_t>(quote)) return out.append(cat("\\", quote), origin);
  if (is_printable(point)) return out.append(text, c.begin, c.end);
  if (point < 0x100) return out.append(cat("\\x", hexadecimal(point, 2)), origin);
  if (point < 0x10000) return out.append(cat("\\u", hexadecimal(point, 4)), origin);
  out.append(cat("\\U", hexadecimal(point, 8)), origin);
}

void append_repr_of_text(Text& out, const Text& text) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.append(std::string_view(&quote, 1), Origin::kTemplate);
  for_each_character(text.bytes(),
                     [&](const Character& c) { append_repr_character(out, text, c, quote, text.origin()); });
  out.append(std::string_view(&quote, 1), Origin::kTemplate);
}

}  // namespace

Text Machine::to_text(const Value& value) {
  if (value.is_string()) {
    charge_bytes(value.text->size());
    return *value.text;
  }
  if (value.is(Kind::kUndefined)) return {};
  return repr(value);
}

Text Machine::repr(const Value& value) {
  Text out;
  append_repr(out, value);
  return out;
}

void Machine::append_repr(Text& out, const Value& value) {
  Nested nested(*this);
  charge();
  if (out.size() > limits_.max_output_bytes) raise("a string is longer than ", limits_.max_output_bytes, " bytes");
  auto put = [&](std::string_view bytes) { out.append(bytes, Origin::kTemplate); };
  switch (value.kind) {
    case Kind::kUndefined:
      return put("Undefined");
    case Kind::kNone:
      return put("None");
    case Kind::kBool:
      return put(value.boolean ? "True" : "False");
    case Kind::kInteger:
    case Kind::kUnsigned:
    case Kind::kFloat:
      return put(number_text(value));
    case Kind::kString:
      charge_bytes(value.text->size());
      return append_repr_of_text(out, *value.text);
    case Kind::kList:
    case Kind::kTuple: {
      const auto& items = value.list->items;
      const bool is_tuple = value.is(Kind::kTuple);
      put(is_tuple ? "(" : "[");
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (i) put(", ");
        append_repr(out, items[i]);
      }
      return put(is_tuple ? (items.size() == 1 ? ",)" : ")") : "]");
    }
    case Kind::kDict:
    case Kind::kNamespace: {
      put(value.is(Kind::kNamespace) ? "<Namespace {" : "{");
      bool is_first = true;
      for (const auto& [key, item] : value.dict->items) {
        if (!is_first) put(", ");
        is_first = false;
        append_repr(out, key);
        put(": ");
        append_repr(out, item);
      }
      return put(value.is(Kind::kNamespace) ? "}>" : "}");
    }
    default:
      return put(cat("<", type_name(value), ">"));
  }
}

Text Machine::to_json(const Value& value, const JsonStyle& style) {
  Text out;
  append_json(out, value, style, 0);
  charge_bytes(out.size());
  // Escaping mixes bytes of both origins around quotes, so the whole counts as input if any of it does.
  return Text(out.bytes(), out.origin());
}

void Machine::append_json_key(Text& out, const Value& key, const JsonStyle& style) {
  switch (key.kind) {
    case Kind::kString:
      return append_json(out, key, style, 0);
    case Kind::kBool:
    case Kind::kNone:
    case Kind::kInteger:
    case Kind::kUnsigned:
    case Kind::kFloat: {
      out.append("\"", Origin::kTemplate);
      append_json(out, key, style, 0);
      return out.append("\"", Origin::kTemplate);
    }
    default:
      raise("a key of type ", type_name(key), " has no JSON");
  }
}

void Machine::append_json(Text& out, const Value& value, const JsonStyle& style, int level) {
  Nested nested(*this);
  charge();
  if (out.size() > limits_.max_output_bytes) raise("a string is longer than ", limits_.max_output_bytes, " bytes");
  auto put = [&](std::string_view bytes) { out.append(bytes, Origin::kTemplate); };
  auto line_break = [&](int depth) {
    if (!style.indent) return;
    const std::size_t blanks = static_cast<std::size_t>(std::max(0, *style.indent)) * static_cast<std::size_t>(depth);
    charge_bytes(blanks);
    put(cat("\n", std::string(blanks, ' ')));
  };
  switch (value.kind) {
    case Kind::kNone:
      return put("null");
    case Kind::kBool:
      return put(value.boolean ? "true" : "false");
    case Kind::kFloat:
      return put(float_text(value.number, true));
    case Kind::kInteger:
    case Kind::kUnsigned:
      return put(number_text(value));
    case Kind::kString: {
      std::string quoted;
      json::append_string(quoted, value.text->bytes(), style.ascii_only);
      return out.append(quoted, value.text->origin());
    }
    case Kind::kList:
    case Kind::kTuple: {
      const auto& items = value.list->items;
      put("[");
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (i) put(style.item_separator);
        line_break(level + 1);
        append_json(out, items[i], style, level + 1);
      }
      if (!items.empty()) line_break(level);
      return put("]");
    }
    case Kind::kDict: {
      std::vector<std::pair<Value, Value>> items = value.dict->items;
      charge_items(items.size());
      if (style.sorted_keys) {
        std::stable_sort(items.begin(), items.end(),
                         [this](const auto& a, const auto& b) { return compare(a.first, b.first) < 0; });
      }
      put("{");
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (i) put(style.item_separator);
        line_break(level + 1);
        append_json_key(out, items[i].first, style);
        put(style.key_separator);
        append_json(out, items[i].second, style, level + 1);
      }
      if (!items.empty()) line_break(level);
      return put("}");
    }
    case Kind::kUndefined:
      raise_undefined(value);
    default:
      raise("a value of type ", type_name(value), " has no JSON");
  }
}

// ---- "%s" % x ----

namespace {

struct Directive {
  std::string flags;
  std::size_t width = 0;
  std::optional<int> precision;
  char kind = 's';
};

/// Pads to the width, in code points.
Text padded(Text text, const Directive& directive) {
  const std::size_t length = text.length();
  if (length >= directive.width) return text;
  const std::string blanks(directive.width - length, ' ');
  Text out;
  const bool left = directive.flags.find('-') != std::string::npos;
  if (!left) out.append(blanks, Origin::kTemplate);
  out.append(text);
  if (left) out.append(blanks, Origin::kTemplate);
  return out;
}

std::string formatted_number(const Directive& directive, const Value& value) {
  if (!value.is_number()) {
    if (value.is(Kind::kUndefined)) raise_undefined(value);
    raise("%", directive.kind, " needs a number, not ", type_name(value));
  }
  const std::string start = cat("%", directive.flags, directive.width);
  char buffer[512];
  if (std::string_view("dixXo").find(directive.kind) != std::string_view::npos) {
    const long long integer = value.is(Kind::kFloat) ? static_cast<long long>(std::clamp(value.number, -9e18, 9e18))
                                                     : static_cast<long long>(integer_of(value));
    const char kind = directive.kind == 'i' ? 'd' : directive.kind;
    std::snprintf(buffer, sizeof buffer, cat(start, "ll", kind).c_str(), integer);
  } else {
    const std::string format = cat(start, ".", directive.precision.value_or(6), directive.kind);
    std::snprintf(buffer, sizeof buffer, format.c_str(), float_of(value));
  }
  return buffer;
}

class PercentFormatter {
 public:
  PercentFormatter(Machine& machine, const Text& format, const Value& operand)
      : machine_(machine), format_(format), operand_(operand) {
    if (operand.is(Kind::kTuple)) positional_ = operand.list->items;
    if (!operand.is(Kind::kTuple)) positional_ = {operand};
  }

  Text run() {
    const std::string& bytes = format_.bytes();
    while (at_ < bytes.size()) {
      const std::size_t percent = std::min(bytes.find('%', at_), bytes.size());
      out_.append(format_, at_, percent);
      at_ = percent;
      if (at_ < bytes.size()) directive();
    }
    if (operand_.is(Kind::kTuple) && used_ < positional_.size()) raise("not all arguments converted during formatting");
    return std::move(out_);
  }

 private:
  char peek() const { return at_ < format_.size() ? format_.bytes()[at_] : '\0'; }

  int number() {
    int value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (peek() - '0');
      if (value > 200) raise("a width or precision above 200 is not supported");
      ++at_;
    }
    return value;
  }

  void directive() {
    ++at_;
    Value value;
    bool named = false;
    if (peek() == '(') {
      const std::size_t close = format_.bytes().find(')', at_);
      if (close == std::string::npos) raise("incomplete format key");
      if (!operand_.is(Kind::kDict)) raise("a format with names needs a dict");
      value = machine_.item(operand_, machine_.make_text(format_.slice(at_ + 1, close)));
      at_ = close + 1;
      named = true;
    }
    Directive directive;
    while (std::string_view("-+ 0#").find(peek()) != std::string_view::npos && peek() != '\0') {
      directive.flags += format_.bytes()[at_++];
    }
    directive.width = static_cast<std::size_t>(number());
    if (peek() == '.') {
      ++at_;
      directive.precision = number();
    }
    directive.kind = peek();
    ++at_;
    if (directive.kind == '%') return out_.append("%", Origin::kTemplate);
    if (!named) {
      if (used_ == positional_.size()) raise("not enough arguments for the format string");
      value = positional_[used_++];
    }
    out_.append(formatted(directive, value));
  }

  Text formatted(const Directive& directive, const Value& value) {
    if (directive.kind == 's' || directive.kind == 'r') {
      Text text = directive.kind == 's' ? machine_.to_text(value) : machine_.repr(value);
      if (directive.precision) {
        const auto offsets = text.offsets();
        const auto keep = std::min(offsets.size() - 1, static_cast<std::size_t>(*directive.precision));
        text = text.slice(0, offsets[keep]);
      }
      return padded(std::move(text), directive);
    }
    if (directive.kind == '\0' || std::string_view("dixXofFeEgG").find(directive.kind) == std::string_view::npos) {
      raise("unsupported format directive");
    }
    return Text(formatted_number(directive, value), Origin::kTemplate);
  }

  Machine& machine_;
  const Text& format_;
  const Value& operand_;
  std::vector<Value> positional_;
  std::size_t used_ = 0;
  std::size_t at_ = 0;
  Text out_;
};

}  // namespace

Text format_percent(Machine& machine, const Text& format, const Value& operand) {
  machine.charge_bytes(format.size());
  return PercentFormatter(machine, format, operand).run();
}

// ---- dates ----

namespace {

/// Days since 1970-01-01 of a proleptic Gregorian date (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
std::int64_t days_of(std::int64_t year, int month, int day) {
  year -= month <= 2;
  const std::int64_t era = (year >= 0 ? year : year - 399) / 400;
  const std::int64_t year_of_era = year - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};
constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

class TimeFormatter {
 public:
  explicit TimeFormatter(const CivilTime& time) : time_(time) {}

  std::string run(std::string_view format) {
    std::string out;
    for (std::size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || i + 1 == format.size()) {
        out += format[i];
        continue;
      }
      ++i;
      const bool unpadded = format[i] == '-' && i + 1 < format.size();
      if (unpadded) ++i;
      out += directive(format[i], unpadded);
    }
    return out;
  }

 private:
  std::string directive(char kind, bool unpadded) {
    auto padded = [&](int number, int width, char fill = '0') {
      std::string text = cat(number);
      if (unpadded || static_cast<int>(text.size()) >= width) return text;
      return std::string(static_cast<std::size_t>(width) - text.size(), fill) + text;
    };
    const int hour12 = time_.hour % 12 == 0 ? 12 : time_.hour % 12;
    switch (kind) {
      case 'Y':
        return padded(time_.year, 4);
      case 'y':
        return padded(time_.year % 100, 2);
      case 'm':
        return padded(time_.month, 2);
      case 'd':
        return padded(time_.day, 2);
      case 'e':
        return padded(time_.day, 2, ' ');
      case 'H':
        return padded(time_.hour, 2);
      case 'I':
        return padded(hour12, 2);
      case 'M':
        return padded(time_.minute, 2);
      case 'S':
        return padded(time_.second, 2);
      case 'j':
        return padded(day_of_year(), 3);
      case 'p':
        return time_.hour < 12 ? "AM" : "PM";
      case 'B':
        return std::string(month());
      case 'b':
      case 'h':
        return std::string(month().substr(0, 3));
      case 'A':
        return std::string(weekday());
      case 'a':
        return std::string(weekday().substr(0, 3));
      case 'F':
        return run("%Y-%m-%d");
      case 'T':
        return run("%H:%M:%S");
      case 'D':
        return run("%m/%d/%y");
      case 'R':
        return run("%H:%M");
      case 'c':
        return run("%a %b %e %H:%M:%S %Y");
      case 'x':
        return run("%m/%d/%y");
      case 'X':
        return run("%H:%M:%S");
      case 'f':
        return "000000";
      case 'z':
      case 'Z':
        return "";
      case 'n':
        return "\n";
      case 't':
        return "\t";
      case '%':
        return "%";
      default:
        raise("strftime_now() does not know the directive %", kind);
    }
  }

  std::string_view month() const { return kMonths[std::clamp(time_.month, 1, 12) - 1]; }
  std::string_view weekday() const {
    const std::int64_t days = days_of(time_.year, time_.month, time_.day);
    return kDays[((days % 7) + 7 + 4) % 7];  // 1970-01-01 was a Thursday
  }
  int day_of_year() const {
    return static_cast<int>(days_of(time_.year, time_.month, time_.day) - days_of(time_.year, 1, 1)) + 1;
  }

  const CivilTime& time_;
};

}  // namespace

std::string format_time(std::string_view format, const CivilTime& time) { return TimeFormatter(time).run(format); }

}  // namespace quire::jinja
