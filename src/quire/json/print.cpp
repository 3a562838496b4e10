#include <algorithm>
#include <charconv>
#include <cmath>

#include "quire/json/json.h"

namespace quire::json {
namespace {

struct Decoded {
  char32_t code_point;
  int bytes;  ///< taken from the text, at least 1
};

constexpr char32_t kReplacement = 0xFFFD;

/// The first character of `text`, which is not empty. A byte that starts no valid sequence is one U+FFFD.
Decoded decode(std::string_view text) {
  auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  auto continues = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead >= 0xC2 && lead <= 0xDF && continues(1)) return {((lead & 0x1F) << 6) | (byte(1) & 0x3F), 2};
  if ((lead & 0xF0) == 0xE0 && continues(1) && continues(2)) {
    const char32_t point = ((lead & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F);
    if (point >= 0x800 && (point < 0xD800 || point > 0xDFFF)) return {point, 3};
  }
  if ((lead & 0xF8) == 0xF0 && continues(1) && continues(2) && continues(3)) {
    const char32_t point =
        ((lead & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F);
    if (point >= 0x10000 && point <= 0x10FFFF) return {point, 4};
  }
  return {kReplacement, 1};
}

void append_unit(std::string& out, unsigned unit) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHex[(unit >> shift) & 15];
}

void append_ascii(std::string& out, char32_t point) {
  if (point < 0x10000) return append_unit(out, point);
  point -= 0x10000;
  append_unit(out, 0xD800 + (point >> 10));
  append_unit(out, 0xDC00 + (point & 0x3FF));
}

void append_escaped(std::string& out, unsigned char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    default:
      append_unit(out, c);
  }
}

}  // namespace

void append_string(std::string& out, std::string_view text, bool ascii_only) {
  out += '"';
  std::size_t i = 0;
  while (i < text.size()) {
    std::size_t plain = i;
    auto is_plain = [&](unsigned char c) { return c >= 0x20 && c != '"' && c != '\\' && c < 0x7F; };
    while (plain < text.size() && is_plain(static_cast<unsigned char>(text[plain]))) ++plain;
    out.append(text, i, plain - i);
    i = plain;
    if (i == text.size()) break;
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c == 0x7F && !ascii_only) {
      out += '\x7F';
      ++i;
    } else if (c < 0x80) {
      append_escaped(out, c);
      ++i;
    } else {
      auto [point, bytes] = decode(text.substr(i));
      if (ascii_only) {
        append_ascii(out, point);
      } else if (point == kReplacement && bytes == 1) {
        out += "\xEF\xBF\xBD";
      } else {
        out.append(text, i, static_cast<std::size_t>(bytes));
      }
      i += static_cast<std::size_t>(bytes);
    }
  }
  out += '"';
}

void append_double(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto scientific = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<std::size_t>(scientific.ptr - buffer));
  if (text.front() == '-') {
    out += '-';
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  int exponent = 0;
  const char* digits_of_exponent = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, text.data() + text.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);

  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out.append(".").append(digits, 1);
    out += exponent < 0 ? "e-" : "e+";
    if (std::abs(exponent) < 10) out += '0';
    append_text(out, std::abs(exponent));
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
  } else if (exponent + 1 >= count) {
    out.append(digits).append(static_cast<std::size_t>(exponent + 1 - count), '0').append(".0");
  } else {
    out.append(digits, 0, static_cast<std::size_t>(exponent + 1)).append(".");
    out.append(digits, static_cast<std::size_t>(exponent + 1));
  }
}

struct Printer {
  std::string& out;
  const DumpOptions& options;
  int level = 0;

  void line_break() {
    if (!options.indent) return;
    out += '\n';
    out.append(static_cast<std::size_t>(std::max(0, *options.indent) * level), ' ');
  }

  void operator()(std::nullptr_t) { out += "null"; }
  void operator()(bool truth) { out += truth ? "true" : "false"; }
  void operator()(std::int64_t number) { append_text(out, number); }
  void operator()(std::uint64_t number) { append_text(out, number); }
  void operator()(double number) { append_double(out, number); }
  void operator()(const std::string& text) { append_string(out, text, options.ascii_only); }

  void operator()(const Array& array) {
    items('[', ']', array.size(), [&](std::size_t i) { print(array[i]); });
  }

  void operator()(const Object& object) {
    std::vector<const Member*> members;
    members.reserve(object.size());
    for (const Member& member : object) members.push_back(&member);
    if (options.sorted_keys) {
      std::stable_sort(members.begin(), members.end(), [](auto* a, auto* b) { return a->key < b->key; });
    }
    items('{', '}', members.size(), [&](std::size_t i) {
      append_string(out, members[i]->key, options.ascii_only);
      out += options.key_separator;
      print(members[i]->value);
    });
  }

  template <class PrintItem>
  void items(char open, char close, std::size_t count, PrintItem print_item) {
    out += open;
    ++level;
    for (std::size_t i = 0; i < count; ++i) {
      if (i) out += options.item_separator;
      line_break();
      print_item(i);
    }
    --level;
    if (count) line_break();
    out += close;
  }

  void print(const Value& value) { std::visit(*this, value.data_); }
};

std::string dump(const Value& value, const DumpOptions& options) {
  std::string out;
  Printer{out, options}.print(value);
  return out;
}

void Writer::before_value() {
  if (comma_due_) out_ += ',';
  comma_due_ = true;
}

Writer& Writer::open(char bracket) {
  before_value();
  out_ += bracket;
  comma_due_ = false;
  return *this;
}

Writer& Writer::close(char bracket) {
  out_ += bracket;
  comma_due_ = true;
  return *this;
}

Writer& Writer::key(std::string_view name) {
  before_value();
  append_string(out_, name);
  out_ += ':';
  comma_due_ = false;
  return *this;
}

Writer& Writer::null() { return raw("null"); }

Writer& Writer::value(std::string_view text) {
  before_value();
  append_string(out_, text);
  return *this;
}

Writer& Writer::value(const Value& tree) { return raw(dump(tree)); }

Writer& Writer::raw(std::string_view json) {
  before_value();
  out_ += json;
  return *this;
}

}  // namespace quire::json
