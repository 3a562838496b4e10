#pragma once
// JSON values, strict parsing with limits, and printing. The only module that sees the JSON library; its headers show
// none of it.
//
// Value is an ordinary value type: copies are deep, moves are cheap, const access is safe from many threads. Objects
// keep their members in the order of the text (chat templates print them in that order).
//
// Numbers: a number without fraction and exponent that fits int64 is an integer; one above it that fits uint64 is
// unsigned; everything else is a double, correctly rounded. A double is never infinite or NaN after parse().

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "quire/base/result.h"

namespace quire::json {

class Value;
struct Member;

using Array = std::vector<Value>;

/// Members in insertion order. find() is linear: meant for objects with few members; loop over members of large ones.
class Object {
 public:
  Object();
  Object(const Object&);
  Object(Object&&) noexcept;
  Object& operator=(const Object&);
  Object& operator=(Object&&) noexcept;
  ~Object();
  Object(std::initializer_list<Member> members);

  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
  /// Replaces the value of an existing key in place, else appends. Returns the stored value.
  Value& set(std::string_view key, Value value);
  /// Appends without looking for the key: the caller knows that it is new.
  void append(std::string key, Value value);

  std::size_t size() const;
  bool empty() const { return size() == 0; }
  const Member* begin() const;
  const Member* end() const;
  Member* begin();
  Member* end();
  void reserve(std::size_t count);

  /// Same members, in any order.
  friend bool operator==(const Object& a, const Object& b);

 private:
  std::vector<Member> members_;
};

enum class Kind { kNull, kBool, kInteger, kUnsigned, kDouble, kString, kArray, kObject };

/// "a string", "an integer", ... for messages.
std::string_view kind_name(Kind kind);

class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) {}
  template <class Number>
  requires std::is_arithmetic_v<Number> Value(Number number) {
    if constexpr (std::is_same_v<Number, bool>) {
      data_ = number;
    } else if constexpr (std::is_floating_point_v<Number>) {
      data_ = static_cast<double>(number);
    } else if constexpr (std::is_unsigned_v<Number> && sizeof(Number) == sizeof(std::uint64_t)) {
      if (number <= static_cast<std::uint64_t>(INT64_MAX)) {
        data_ = static_cast<std::int64_t>(number);
      } else {
        data_ = static_cast<std::uint64_t>(number);
      }
    } else {
      data_ = static_cast<std::int64_t>(number);
    }
  }
  Value(const char* text) : data_(std::string(text)) {}
  Value(std::string_view text) : data_(std::string(text)) {}
  Value(std::string text) : data_(std::move(text)) {}
  Value(Array array) : data_(std::move(array)) {}
  Value(Object object) : data_(std::move(object)) {}
  template <class T>
  Value(const T*) = delete;  // a pointer is not a bool

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }
  bool is_bool() const { return kind() == Kind::kBool; }
  /// kInteger, kUnsigned or kDouble.
  bool is_number() const;

  // Null when the value is of another kind.
  const std::string* if_string() const { return std::get_if<std::string>(&data_); }
  const Array* if_array() const { return std::get_if<Array>(&data_); }
  const Object* if_object() const { return std::get_if<Object>(&data_); }
  Array* if_array() { return std::get_if<Array>(&data_); }
  Object* if_object() { return std::get_if<Object>(&data_); }
  std::optional<bool> if_bool() const;
  /// The integer, also of a double that is integral and within int64 (clients write 16.0 for 16).
  std::optional<std::int64_t> if_int() const;
  /// Of kUnsigned only.
  std::optional<std::uint64_t> if_unsigned() const;
  /// Any number as a double (an integer above 2^53 is rounded).
  std::optional<double> if_number() const;

  // The caller has checked the kind; anything else is a bug.
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;
  bool as_bool() const;
  std::int64_t as_int() const;
  double as_number() const;

  /// Member of an object; null if this is no object or has no such member.
  const Value* find(std::string_view key) const;

  /// Numbers by kind and value; objects in any order of members.
  friend bool operator==(const Value& a, const Value& b);

 private:
  // In the order of Kind.
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object> data_{nullptr};
  friend struct Printer;
};

struct Member {
  std::string key;
  Value value;
  friend bool operator==(const Member&, const Member&) = default;
};

struct Limits {
  std::size_t max_bytes = std::size_t{64} << 20;
  int max_depth = 64;
  /// Values of all kinds together: bounds the memory that a text of many tiny values takes.
  std::size_t max_values = 4'000'000;
};

/// Parses exactly one JSON text (RFC 8259). Refused, with the byte offset and what was wrong: syntax errors, text after
/// the value, a byte-order mark, invalid UTF-8, lone surrogate escapes, NaN and Infinity, a number beyond the range of
/// double (1e999), an object with the same key twice, and anything past the limits. Time and memory are linear in the
/// text.
Result<Value> parse(std::string_view text, const Limits& limits = {});

struct DumpOptions {
  /// Spaces per level, as Python's json.dumps(indent=n); none: one line.
  std::optional<int> indent;
  std::string_view item_separator = ",";  ///< Python's default is ", " (and "," before a line break).
  std::string_view key_separator = ":";   ///< Python's default is ": ".
  bool ascii_only = false;                ///< \uXXXX for everything outside ASCII.
  bool sorted_keys = false;               ///< by bytes, which for UTF-8 is by code point.
};

/// The value as JSON: always valid. Doubles in shortest round-trip form, written as Python does (1.0, 1e+16, 1e-05);
/// non-finite ones as null; invalid UTF-8 in a string becomes U+FFFD. Text outside ASCII stays as it is.
std::string dump(const Value& value, const DumpOptions& options = {});

/// `text` in quotes, escaped, invalid UTF-8 replaced: one JSON string.
void append_string(std::string& out, std::string_view text, bool ascii_only = false);
/// Shortest digits that read back as `number`, as Python's repr: 1.0, 0.1, 1e+16. NaN and infinity become null.
void append_double(std::string& out, double number);

/// Writes JSON piece by piece onto a string, for streamed answers: no tree is built. Commas come by themselves. The
/// caller closes what it opens and gives every member a key.
///     Writer w(out); w.begin_object().field("id", id).key("choices").begin_array()...end_array().end_object();
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  Writer& begin_object() { return open('{'); }
  Writer& end_object() { return close('}'); }
  Writer& begin_array() { return open('['); }
  Writer& end_array() { return close(']'); }
  Writer& key(std::string_view name);
  Writer& null();
  Writer& value(std::string_view text);
  Writer& value(const char* text) { return value(std::string_view(text)); }
  Writer& value(const std::string& text) { return value(std::string_view(text)); }
  Writer& value(const Value& tree);
  template <class Number>
  requires std::is_arithmetic_v<Number> Writer& value(Number number) {
    before_value();
    if constexpr (std::is_floating_point_v<Number>) {
      append_double(out_, static_cast<double>(number));
    } else {
      append_text(out_, number);
    }
    return *this;
  }
  /// Text that is JSON already.
  Writer& raw(std::string_view json);
  template <class T>
  Writer& field(std::string_view name, const T& item) {
    return key(name).value(item);
  }

 private:
  Writer& open(char bracket);
  Writer& close(char bracket);
  void before_value();

  std::string& out_;
  bool comma_due_ = false;
};

}  // namespace quire::json
