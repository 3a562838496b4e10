#pragma once
// Typed reading of a request's fields: one place that checks type, range, finiteness and length, and words the refusal.
// A field that is absent or null reads as nothing. Every range test is written as "accept if inside", so that NaN
// fails.
//
// Messages start with the path of the field in quotes: 'messages[2].content': found an integer, wanted a string.
// error_field() gives that path back (for the `param` of an error body).
//
// An ObjectReader looks at an Object that must outlive it and what it returns (views, pointers). Not thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/json/json.h"

namespace quire::json {

/// Inclusive.
struct IntRange {
  std::int64_t min = INT64_MIN;
  std::int64_t max = INT64_MAX;
};

/// Inclusive unless the bound is excluded: {.min = 0, .max = 1, .min_excluded = true} is (0, 1].
struct NumberRange {
  double min = -1.7976931348623157e308;
  double max = 1.7976931348623157e308;
  bool min_excluded = false;
  bool max_excluded = false;
};

class ObjectReader {
 public:
  /// `path` is how messages name the object: "" for the request itself, "messages[2]" for a part of it.
  explicit ObjectReader(const Object& object, std::string path = {});

  /// Integers, also written as 16.0.
  Result<std::optional<std::int64_t>> optional_int(std::string_view name, IntRange range = {});
  Result<std::optional<double>> optional_number(std::string_view name, NumberRange range = {});
  Result<std::optional<bool>> optional_bool(std::string_view name);
  /// Longer than `max_bytes` of UTF-8 is refused. The view is into the object.
  Result<std::optional<std::string_view>> optional_string(std::string_view name, std::size_t max_bytes = SIZE_MAX);
  /// One of the listed words.
  Result<std::optional<std::string_view>> optional_choice(std::string_view name,
                                                          std::initializer_list<std::string_view> choices);
  /// Null when absent.
  Result<const Array*> optional_array(std::string_view name, std::size_t max_items = SIZE_MAX);
  Result<const Object*> optional_object(std::string_view name, std::size_t max_members = SIZE_MAX);

  // The same, refused when absent or null.
  Result<std::int64_t> required_int(std::string_view name, IntRange range = {});
  Result<std::string_view> required_string(std::string_view name, std::size_t max_bytes = SIZE_MAX);
  Result<const Array*> required_array(std::string_view name, std::size_t max_items = SIZE_MAX);
  Result<const Object*> required_object(std::string_view name, std::size_t max_members = SIZE_MAX);

  /// The raw value, for fields of several shapes; null when absent or JSON null. Counts as known.
  const Value* optional_value(std::string_view name);
  /// True when present and not null. Counts as known.
  bool has(std::string_view name) { return optional_value(name) != nullptr; }

  /// "messages[2].content" for name "content" in the object at "messages[2]".
  std::string path_of(std::string_view name) const;
  /// "stop[3]" for item 3 of the array `name`.
  std::string path_of(std::string_view name, std::size_t index) const;

  /// Members that no call has asked for, in the order of the text. Nulls count too.
  std::vector<std::string_view> unknown_fields() const;
  /// An error naming the first of them, if any.
  Result<void> refuse_unknown() const;

 private:
  const Object& object_;
  std::string path_;
  std::vector<std::string_view> known_;  ///< names asked for; few, so searched linearly
};

// The checks by themselves, for items of arrays and fields of several shapes. `path` is the whole path.
Result<std::int64_t> read_int(const Value& value, std::string_view path, IntRange range = {});
Result<double> read_number(const Value& value, std::string_view path, NumberRange range = {});
Result<std::string_view> read_string(const Value& value, std::string_view path, std::size_t max_bytes = SIZE_MAX);
Result<const Array*> read_array(const Value& value, std::string_view path, std::size_t max_items = SIZE_MAX);
Result<const Object*> read_object(const Value& value, std::string_view path, std::size_t max_members = SIZE_MAX);

/// An Error in the form of this header: field_error("n", "found 5, wanted 1").
Error field_error(std::string_view path, std::string_view what);
/// "found a string, wanted <wanted>" for the value's kind.
Error wrong_kind(std::string_view path, const Value& found, std::string_view wanted);
/// The path of such an error; empty for any other.
std::string_view error_field(const Error& error);

}  // namespace quire::json
