#include "quire/json/json.h"

#include <algorithm>
#include <cmath>

namespace quire::json {

// Here, where Member is complete.
Object::Object() = default;
Object::Object(const Object&) = default;
Object::Object(Object&&) noexcept = default;
Object& Object::operator=(const Object&) = default;
Object& Object::operator=(Object&&) noexcept = default;
Object::~Object() = default;
Object::Object(std::initializer_list<Member> members) : members_(members) {}

const Value* Object::find(std::string_view key) const {
  for (const Member& member : members_) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

Value* Object::find(std::string_view key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

Value& Object::set(std::string_view key, Value value) {
  if (Value* existing = find(key)) return *existing = std::move(value);
  append(std::string(key), std::move(value));
  return members_.back().value;
}

void Object::append(std::string key, Value value) { members_.push_back({std::move(key), std::move(value)}); }
std::size_t Object::size() const { return members_.size(); }
const Member* Object::begin() const { return members_.data(); }
const Member* Object::end() const { return members_.data() + members_.size(); }
Member* Object::begin() { return members_.data(); }
Member* Object::end() { return members_.data() + members_.size(); }
void Object::reserve(std::size_t count) { members_.reserve(count); }

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "a boolean";
    case Kind::kInteger:
      return "an integer";
    case Kind::kUnsigned:
      return "an integer above 2^63";
    case Kind::kDouble:
      return "a number with a fraction or exponent";
    case Kind::kString:
      return "a string";
    case Kind::kArray:
      return "an array";
    case Kind::kObject:
      return "an object";
  }
  return "";
}

bool Value::is_number() const {
  return kind() == Kind::kInteger || kind() == Kind::kUnsigned || kind() == Kind::kDouble;
}

std::optional<bool> Value::if_bool() const {
  const bool* truth = std::get_if<bool>(&data_);
  return truth ? std::optional(*truth) : std::nullopt;
}

std::optional<std::int64_t> Value::if_int() const {
  if (auto* integer = std::get_if<std::int64_t>(&data_)) return *integer;
  auto* number = std::get_if<double>(&data_);
  const double two_63 = 9223372036854775808.0;
  if (number && *number >= -two_63 && *number < two_63 && std::trunc(*number) == *number) {
    return static_cast<std::int64_t>(*number);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Value::if_unsigned() const {
  auto* large = std::get_if<std::uint64_t>(&data_);
  return large ? std::optional(*large) : std::nullopt;
}

std::optional<double> Value::if_number() const {
  if (auto* number = std::get_if<double>(&data_)) return *number;
  if (auto* integer = std::get_if<std::int64_t>(&data_)) return static_cast<double>(*integer);
  if (auto* large = std::get_if<std::uint64_t>(&data_)) return static_cast<double>(*large);
  return std::nullopt;
}

namespace {
template <class T>
const T& checked(const T* pointer, const Value& value) {
  QUIRE_CHECK(pointer, "JSON value is ", kind_name(value.kind()));
  return *pointer;
}
}  // namespace

const std::string& Value::as_string() const { return checked(if_string(), *this); }
const Array& Value::as_array() const { return checked(if_array(), *this); }
const Object& Value::as_object() const { return checked(if_object(), *this); }
bool Value::as_bool() const { return checked(std::get_if<bool>(&data_), *this); }

std::int64_t Value::as_int() const {
  auto integer = if_int();
  QUIRE_CHECK(integer, "JSON value is ", kind_name(kind()));
  return *integer;
}

double Value::as_number() const {
  auto number = if_number();
  QUIRE_CHECK(number, "JSON value is ", kind_name(kind()));
  return *number;
}

const Value* Value::find(std::string_view key) const {
  const Object* object = if_object();
  return object ? object->find(key) : nullptr;
}

bool operator==(const Object& a, const Object& b) {
  if (a.size() != b.size()) return false;
  // Sorted, so that large objects compare in n log n.
  auto sorted = [](const Object& object) {
    std::vector<const Member*> members;
    for (const Member& member : object) members.push_back(&member);
    std::sort(members.begin(), members.end(), [](const Member* x, const Member* y) { return x->key < y->key; });
    return members;
  };
  auto left = sorted(a), right = sorted(b);
  return std::equal(left.begin(), left.end(), right.begin(), [](const Member* x, const Member* y) { return *x == *y; });
}

bool operator==(const Value& a, const Value& b) { return a.data_ == b.data_; }

}  // namespace quire::json
