#include "quire/json/reader.h"

#include <algorithm>
#include <cmath>

namespace quire::json {
namespace {

/// What messages repeat of a value that a client sent: short, printable.
std::string shown(const Value& value) {
  if (value.is_array() || value.is_object()) return std::string(kind_name(value.kind()));
  if (const std::string* text = value.if_string()) {
    std::string out;
    append_string(out, std::string_view(*text).substr(0, 60), true);
    return out;
  }
  return dump(value);
}

template <class T>
Result<T> missing(const std::string& path, std::string_view wanted) {
  return field_error(path, cat("missing, wanted ", wanted));
}

/// Also of integers that 64 bits do not hold.
bool is_whole(const Value& value) {
  const auto number = value.if_number();
  return number && std::trunc(*number) == *number;
}

/// nullopt for an absent field, else what `read` makes of it.
template <class T, class Read>
Result<std::optional<T>> optional_of(const Value* value, Read read) {
  if (!value) return std::optional<T>();
  QUIRE_TRY(T item, read(*value));
  return std::optional<T>(item);
}

}  // namespace

Error field_error(std::string_view path, std::string_view what) { return fail("'", path, "': ", what); }

Error wrong_kind(std::string_view path, const Value& found, std::string_view wanted) {
  return field_error(path, cat("found ", kind_name(found.kind()), ", wanted ", wanted));
}

std::string_view error_field(const Error& error) {
  std::string_view message = error.message;
  const std::size_t end = message.find("': ");
  if (!message.starts_with('\'') || end == std::string_view::npos) return {};
  return message.substr(1, end - 1);
}

Result<std::int64_t> read_int(const Value& value, std::string_view path, IntRange range) {
  if (!value.is_number()) return wrong_kind(path, value, "an integer");
  if (!is_whole(value)) return field_error(path, cat("found ", shown(value), ", wanted an integer"));
  const auto number = value.if_int();
  if (number && *number >= range.min && *number <= range.max) return *number;
  if (number && range.max == INT64_MAX)
    return field_error(path, cat("found ", *number, ", wanted at least ", range.min));
  const std::string found = number ? cat(*number) : shown(value);
  return field_error(path, cat("found ", found, ", wanted ", range.min, " to ", range.max));
}

Result<double> read_number(const Value& value, std::string_view path, NumberRange range) {
  auto number = value.if_number();
  if (!number) return wrong_kind(path, value, "a number");
  const bool above = range.min_excluded ? *number > range.min : *number >= range.min;
  const bool below = range.max_excluded ? *number < range.max : *number <= range.max;
  if (above && below) return *number;
  return field_error(path, cat("found ", *number, ", wanted ", range.min_excluded ? "above " : "", range.min, " to ",
                               range.max_excluded ? "below " : "", range.max));
}

Result<std::string_view> read_string(const Value& value, std::string_view path, std::size_t max_bytes) {
  const std::string* text = value.if_string();
  if (!text) return wrong_kind(path, value, "a string");
  if (text->size() <= max_bytes) return std::string_view(*text);
  return field_error(path, cat("found a string of ", text->size(), " bytes, wanted at most ", max_bytes));
}

Result<const Array*> read_array(const Value& value, std::string_view path, std::size_t max_items) {
  const Array* array = value.if_array();
  if (!array) return wrong_kind(path, value, "an array");
  if (array->size() <= max_items) return array;
  return field_error(path, cat("found ", array->size(), " items, wanted at most ", max_items));
}

Result<const Object*> read_object(const Value& value, std::string_view path, std::size_t max_members) {
  const Object* object = value.if_object();
  if (!object) return wrong_kind(path, value, "an object");
  if (object->size() <= max_members) return object;
  return field_error(path, cat("found ", object->size(), " members, wanted at most ", max_members));
}

ObjectReader::ObjectReader(const Object& object, std::string path) : object_(object), path_(std::move(path)) {}

std::string ObjectReader::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : cat(path_, ".", name);
}

std::string ObjectReader::path_of(std::string_view name, std::size_t index) const {
  return cat(path_of(name), "[", index, "]");
}

const Value* ObjectReader::optional_value(std::string_view name) {
  const Value* value = object_.find(name);
  if (!value) return nullptr;
  if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.push_back(name);
  return value->is_null() ? nullptr : value;
}

Result<std::optional<std::int64_t>> ObjectReader::optional_int(std::string_view name, IntRange range) {
  return optional_of<std::int64_t>(optional_value(name),
                                   [&](const Value& value) { return read_int(value, path_of(name), range); });
}

Result<std::optional<double>> ObjectReader::optional_number(std::string_view name, NumberRange range) {
  return optional_of<double>(optional_value(name),
                             [&](const Value& value) { return read_number(value, path_of(name), range); });
}

Result<std::optional<bool>> ObjectReader::optional_bool(std::string_view name) {
  return optional_of<bool>(optional_value(name), [&](const Value& value) -> Result<bool> {
    if (auto truth = value.if_bool()) return *truth;
    return wrong_kind(path_of(name), value, "true or false");
  });
}

Result<std::optional<std::string_view>> ObjectReader::optional_string(std::string_view name, std::size_t max_bytes) {
  return optional_of<std::string_view>(
      optional_value(name), [&](const Value& value) { return read_string(value, path_of(name), max_bytes); });
}

Result<std::optional<std::string_view>> ObjectReader::optional_choice(std::string_view name,
                                                                      std::initializer_list<std::string_view> choices) {
  return optional_of<std::string_view>(optional_value(name), [&](const Value& value) -> Result<std::string_view> {
    const std::string* text = value.if_string();
    if (text && std::find(choices.begin(), choices.end(), *text) != choices.end()) return std::string_view(*text);
    std::string list;
    for (std::string_view choice : choices) list += cat(list.empty() ? "" : ", ", "\"", choice, "\"");
    return field_error(path_of(name), cat("found ", shown(value), ", wanted one of ", list));
  });
}

Result<const Array*> ObjectReader::optional_array(std::string_view name, std::size_t max_items) {
  const Value* value = optional_value(name);
  if (!value) return static_cast<const Array*>(nullptr);
  return read_array(*value, path_of(name), max_items);
}

Result<const Object*> ObjectReader::optional_object(std::string_view name, std::size_t max_members) {
  const Value* value = optional_value(name);
  if (!value) return static_cast<const Object*>(nullptr);
  return read_object(*value, path_of(name), max_members);
}

Result<std::int64_t> ObjectReader::required_int(std::string_view name, IntRange range) {
  const Value* value = optional_value(name);
  return value ? read_int(*value, path_of(name), range) : missing<std::int64_t>(path_of(name), "an integer");
}

Result<std::string_view> ObjectReader::required_string(std::string_view name, std::size_t max_bytes) {
  const Value* value = optional_value(name);
  return value ? read_string(*value, path_of(name), max_bytes) : missing<std::string_view>(path_of(name), "a string");
}

Result<const Array*> ObjectReader::required_array(std::string_view name, std::size_t max_items) {
  const Value* value = optional_value(name);
  return value ? read_array(*value, path_of(name), max_items) : missing<const Array*>(path_of(name), "an array");
}

Result<const Object*> ObjectReader::required_object(std::string_view name, std::size_t max_members) {
  const Value* value = optional_value(name);
  return value ? read_object(*value, path_of(name), max_members) : missing<const Object*>(path_of(name), "an object");
}

std::vector<std::string_view> ObjectReader::unknown_fields() const {
  std::vector<std::string_view> unknown;
  for (const Member& member : object_) {
    if (std::find(known_.begin(), known_.end(), member.key) == known_.end()) unknown.push_back(member.key);
  }
  return unknown;
}

Result<void> ObjectReader::refuse_unknown() const {
  const auto unknown = unknown_fields();
  if (unknown.empty()) return {};
  std::string name;
  append_string(name, unknown.front().substr(0, 60), true);
  return field_error(path_of(name.substr(1, name.size() - 2)), "unknown field");
}

}  // namespace quire::json
