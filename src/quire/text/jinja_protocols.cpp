// How Python sees values: truth, equality, order, membership, iteration, attributes, items, slices, arithmetic.

#include <algorithm>
#include <cmath>

#include "quire/text/jinja_machine.h"
#include "quire/text/utf8.h"

namespace quire::jinja {

void raise_undefined(const Value& value) {
  if (value.why) raise(*value.why);
  raise("an undefined value is used");
}

// ---- making values ----

Value Machine::make_text(Text text) {
  charge_bytes(text.size());
  if (text.size() > limits_.max_output_bytes) raise("a string is longer than ", limits_.max_output_bytes, " bytes");
  heap_.texts.push_back(std::move(text));
  return Value::of_text(&heap_.texts.back());
}

Value Machine::make_sequence(Kind kind, std::vector<Value> items) {
  charge_items(items.size());
  heap_.lists.push_back(List{std::move(items)});
  Value value;
  value.kind = kind;
  value.list = &heap_.lists.back();
  return value;
}

Value Machine::make_dict(Kind kind) {
  charge();
  heap_.dicts.emplace_back();
  Value value;
  value.kind = kind;
  value.dict = &heap_.dicts.back();
  return value;
}

Value Machine::make_undefined(std::string why) {
  heap_.reasons.push_back(std::move(why));
  Value value;
  value.why = &heap_.reasons.back();
  return value;
}

Value Machine::make_function(Function function) {
  heap_.functions.push_back(function);
  Value value;
  value.kind = Kind::kFunction;
  value.function = &heap_.functions.back();
  return value;
}

Value Machine::from_json(const json::Value& value, Origin origin) {
  Nested nested(*this);
  // Input is as large as the caller allows and costs no fuel by itself.
  auto text_of = [&](const std::string& bytes) {
    heap_.texts.emplace_back(is_valid_utf8(bytes) ? bytes : replace_invalid_utf8(bytes), origin);
    return Value::of_text(&heap_.texts.back());
  };
  switch (value.kind()) {
    case json::Kind::kNull:
      return Value::none();
    case json::Kind::kBool:
      return Value::of_bool(value.as_bool());
    case json::Kind::kInteger:
      return Value::of_int(value.as_int());
    case json::Kind::kUnsigned:
      return Value::of_unsigned(*value.if_unsigned());
    case json::Kind::kDouble:
      return Value::of_float(value.as_number());
    case json::Kind::kString:
      return text_of(value.as_string());
    case json::Kind::kArray: {
      heap_.lists.emplace_back();
      Value list;
      list.kind = Kind::kList;
      list.list = &heap_.lists.back();
      for (const json::Value& item : value.as_array()) list.list->items.push_back(from_json(item, origin));
      return list;
    }
    case json::Kind::kObject: {
      heap_.dicts.emplace_back();
      Value dict;
      dict.kind = Kind::kDict;
      dict.dict = &heap_.dicts.back();
      for (const json::Member& member : value.as_object()) {
        const Value key = text_of(member.key);
        dict.dict->items.emplace_back(key, from_json(member.value, origin));
      }
      return dict;
    }
  }
  return {};
}

// ---- truth, equality, order ----

bool Machine::truth(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInteger:
      return value.integer != 0;
    case Kind::kUnsigned:
      return true;
    case Kind::kFloat:
      return value.number != 0;
    case Kind::kString:
      return !value.text->empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.list->items.empty();
    case Kind::kDict:
      return !value.dict->items.empty();
    default:
      return true;
  }
}

bool both_integers(const Value& a, const Value& b) {
  auto is_integer = [](const Value& value) { return value.is(Kind::kInteger) || value.is(Kind::kBool); };
  return is_integer(a) && is_integer(b);
}

std::int64_t integer_of(const Value& value) { return value.is(Kind::kBool) ? value.boolean : value.integer; }

double float_of(const Value& value) {
  if (value.is(Kind::kFloat)) return value.number;
  if (value.is(Kind::kUnsigned)) return static_cast<double>(value.unsigned_integer);
  return static_cast<double>(integer_of(value));
}

namespace {

std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (both_integers(a, b)) return integer_of(a) <=> integer_of(b);
  if (a.is(Kind::kUnsigned) && b.is(Kind::kUnsigned)) return a.unsigned_integer <=> b.unsigned_integer;
  return float_of(a) <=> float_of(b);
}

}  // namespace

bool Machine::equal(const Value& a, const Value& b) {
  charge();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kString:
      charge_bytes(a.text->size());
      return a.text->bytes() == b.text->bytes();
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kList:
    case Kind::kTuple: {
      if (a.list == b.list) return true;
      Nested nested(*this);
      const auto& left = a.list->items;
      const auto& right = b.list->items;
      return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin(),
                                                       [this](const Value& x, const Value& y) { return equal(x, y); });
    }
    case Kind::kDict: {
      if (a.dict == b.dict) return true;
      Nested nested(*this);
      if (a.dict->items.size() != b.dict->items.size()) return false;
      return std::all_of(a.dict->items.begin(), a.dict->items.end(), [&](const auto& member) {
        const Value* other = find_in_dict(*b.dict, member.first);
        return other && equal(member.second, *other);
      });
    }
    case Kind::kFunction:
      return a.function == b.function;
    case Kind::kLoop:
      return a.loop == b.loop;
    case Kind::kNamespace:
      return a.dict == b.dict;
    default:
      return a.list == b.list;
  }
}

std::partial_ordering Machine::compare(const Value& a, const Value& b) {
  charge();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    charge_bytes(a.text->size());
    return a.text->bytes() <=> b.text->bytes();  // bytes of UTF-8 order as code points do
  }
  if (a.is_sequence() && a.kind == b.kind) {
    Nested nested(*this);
    const auto& left = a.list->items;
    const auto& right = b.list->items;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(left[i], right[i])) return compare(left[i], right[i]);
    }
    return left.size() <=> right.size();
  }
  if (a.is(Kind::kUndefined)) raise_undefined(a);
  if (b.is(Kind::kUndefined)) raise_undefined(b);
  raise("values of types ", type_name(a), " and ", type_name(b), " have no order");
}

bool Machine::contains(const Value& container, const Value& item) {
  charge();
  switch (container.kind) {
    case Kind::kString:
      if (item.is(Kind::kUndefined)) raise_undefined(item);
      if (!item.is_string()) raise("'in' a string needs a string on the left, not ", type_name(item));
      charge_bytes(container.text->size());
      return container.text->bytes().find(item.text->bytes()) != std::string::npos;
    case Kind::kDict:
      return find_in_dict(*container.dict, item) != nullptr;
    default: {
      const std::vector<Value> items = items_of(container);
      return std::any_of(items.begin(), items.end(), [&](const Value& x) { return equal(x, item); });
    }
  }
}

// ---- iteration ----

bool Machine::is_iterable(const Value& value) const {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kGenerator:
    case Kind::kDict:
      return true;
    default:
      return false;
  }
}

std::vector<Value> Machine::items_of(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return {};
    case Kind::kList:
    case Kind::kTuple:
      charge_items(value.list->items.size());
      return value.list->items;
    case Kind::kGenerator: {
      List& list = *value.list;
      charge_items(list.items.size());
      std::vector<Value> rest(list.items.begin() + static_cast<std::ptrdiff_t>(list.taken), list.items.end());
      list.taken = list.items.size();
      return rest;
    }
    case Kind::kDict: {
      std::vector<Value> keys;
      charge_items(value.dict->items.size());
      for (const auto& member : value.dict->items) keys.push_back(member.first);
      return keys;
    }
    case Kind::kString: {
      std::vector<Value> characters;
      const auto offsets = value.text->offsets();
      for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
        characters.push_back(make_text(value.text->slice(offsets[i], offsets[i + 1])));
      }
      return characters;
    }
    default:
      raise("a value of type ", type_name(value), " cannot be iterated over");
  }
}

std::size_t Machine::length(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      charge_bytes(value.text->size());
      return value.text->length();
    case Kind::kList:
    case Kind::kTuple:
      return value.list->items.size();
    case Kind::kDict:
      return value.dict->items.size();
    default:
      raise("a value of type ", type_name(value), " has no length");
  }
}

std::int64_t Machine::to_integer(const Value& value, std::string_view what) {
  if (value.is(Kind::kInteger) || value.is(Kind::kBool)) return integer_of(value);
  if (value.is(Kind::kUndefined)) raise_undefined(value);
  raise(what, " must be an integer, not ", type_name(value));
}

// ---- dicts ----

const Value* Machine::find_in_dict(const Dict& dict, const Value& key) {
  charge_items(dict.items.size());
  const bool hashable = !key.is(Kind::kList) && !key.is(Kind::kDict);
  if (!hashable) raise("a value of type ", type_name(key), " cannot be a key");
  for (const auto& [known, value] : dict.items) {
    // Strings first: nearly all keys are, and they need no fuel of their own.
    const bool both_strings = known.is_string() && key.is_string();
    if (both_strings ? known.text->bytes() == key.text->bytes() : equal(known, key)) return &value;
  }
  return nullptr;
}

void Machine::set_in_dict(Dict& dict, const Value& key, Value value) {
  if (const Value* old = find_in_dict(dict, key)) {
    *const_cast<Value*>(old) = value;
  } else {
    dict.items.emplace_back(key, value);
  }
}

// ---- attributes and items ----

Value Machine::missing(const Value& object, std::string_view name) {
  if (object.is(Kind::kNone)) return make_undefined(cat("'None' has no attribute '", name, "'"));
  return make_undefined(cat("'", type_name(object), " object' has no attribute '", name, "'"));
}

/// A method or property that the kind of the object has.
std::optional<Value> Machine::native_attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::kLoop)) {
    if (auto property = loop_attribute(object, name)) return property;
  }
  if (object.is(Kind::kFunction) && name == "name") return make_text(object.function->name);
  NativeCall native = find_method(object.kind, name);
  if (!native) return std::nullopt;
  charge();
  Function function;
  function.native = native;
  function.self = object;
  return make_function(function);
}

Value Machine::attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::kUndefined)) raise_undefined(object);
  if (auto native = native_attribute(object, name)) return *native;
  if (object.is(Kind::kDict) || object.is(Kind::kNamespace)) {
    charge_items(object.dict->items.size());
    for (const auto& [key, value] : object.dict->items) {
      if (key.is_string() && key.text->bytes() == name) return value;
    }
  }
  return missing(object, name);
}

Value Machine::own_attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::kUndefined)) raise_undefined(object);
  if (auto native = native_attribute(object, name)) return *native;
  return missing(object, name);
}

Value Machine::item(const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) raise_undefined(object);
  const bool is_index = key.is(Kind::kInteger) || key.is(Kind::kBool);
  if (object.is(Kind::kDict)) {
    if (const Value* found = find_in_dict(*object.dict, key)) return *found;
  } else if (is_index && (object.is_sequence() || object.is_string())) {
    const auto size = static_cast<std::int64_t>(length(object));
    std::int64_t index = integer_of(key);
    if (index < 0) index += size;
    if (index < 0 || index >= size) return make_undefined(cat(type_name(object), " index out of range"));
    const auto at = static_cast<std::size_t>(index);
    if (object.is_sequence()) return object.list->items[at];
    if (object.text->is_ascii()) return make_text(object.text->slice(at, at + 1));
    charge_bytes(8 * object.text->size());
    const auto offsets = object.text->offsets();
    return make_text(object.text->slice(offsets[at], offsets[at + 1]));
  }
  if (key.is_string()) {
    return object.is(Kind::kDict) ? own_attribute(object, key.text->bytes()) : attribute(object, key.text->bytes());
  }
  return missing(object, to_text(key).bytes());
}

std::optional<Value> Machine::loop_attribute(const Value& object, std::string_view name) {
  const Loop& loop = *object.loop;
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto count = static_cast<std::int64_t>(loop.items.size());
  if (name == "index") return Value::of_int(index + 1);
  if (name == "index0") return Value::of_int(index);
  if (name == "revindex") return Value::of_int(count - index);
  if (name == "revindex0") return Value::of_int(count - index - 1);
  if (name == "length") return Value::of_int(count);
  if (name == "first") return Value::of_bool(index == 0);
  if (name == "last") return Value::of_bool(index + 1 == count);
  if (name == "depth") return Value::of_int(1);
  if (name == "depth0") return Value::of_int(0);
  if (name == "previtem") return index > 0 ? loop.items[loop.index - 1] : make_undefined("there is no previous item");
  if (name == "nextitem") {
    return index + 1 < count ? loop.items[loop.index + 1] : make_undefined("there is no next item");
  }
  return std::nullopt;
}

// ---- slices ----

namespace {

/// The positions that a Python slice visits, in order.
std::vector<std::size_t> slice_positions(std::int64_t size, std::optional<std::int64_t> begin,
                                         std::optional<std::int64_t> end, std::int64_t step) {
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  auto clamped = [&](std::int64_t position) {
    if (position < 0) position = position < -size ? low : position + size;
    return std::clamp(position, low, high);
  };
  const std::int64_t first = begin ? clamped(*begin) : (step > 0 ? low : high);
  const std::int64_t stop = end ? clamped(*end) : (step > 0 ? high : low);
  std::vector<std::size_t> positions;
  for (std::int64_t i = first; step > 0 ? i < stop : i > stop;) {
    positions.push_back(static_cast<std::size_t>(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return positions;
}

}  // namespace

Value Machine::slice(const Value& object, const SliceBounds& bounds) {
  if (object.is(Kind::kUndefined)) raise_undefined(object);
  if (!object.is_string() && !object.is_sequence()) raise("a value of type ", type_name(object), " has no slices");
  auto bound = [&](const Value& value) -> std::optional<std::int64_t> {
    if (value.is(Kind::kNone)) return std::nullopt;
    return to_integer(value, "a slice bound");
  };
  const std::int64_t step = bound(bounds.step).value_or(1);
  if (step == 0) raise("the step of a slice cannot be zero");
  const std::size_t size = length(object);
  charge_items(size);
  const auto positions = slice_positions(static_cast<std::int64_t>(size), bound(bounds.begin), bound(bounds.end), step);
  if (object.is_sequence()) {
    std::vector<Value> items;
    items.reserve(positions.size());
    for (std::size_t position : positions) items.push_back(object.list->items[position]);
    return object.is(Kind::kTuple) ? make_tuple(std::move(items)) : make_list(std::move(items));
  }
  const Text& text = *object.text;
  if (positions.empty()) return make_text(Text());
  if (step == 1 && text.is_ascii()) return make_text(text.slice(positions.front(), positions.back() + 1));
  const auto offsets = text.offsets();
  if (step == 1) return make_text(text.slice(offsets[positions.front()], offsets[positions.back() + 1]));
  Text out;
  for (std::size_t position : positions) out.append(text, offsets[position], offsets[position + 1]);
  return make_text(std::move(out));
}

// ---- arguments ----

Bound::Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
             std::size_t required)
    : values_(names.size()) {
  if (arguments.positional.size() > names.size()) {
    raise(function, "() takes at most ", names.size(), " arguments, ", arguments.positional.size(), " given");
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) raise(function, "() takes no argument '", name, "'");
    const Value*& slot = values_[static_cast<std::size_t>(found - names.begin())];
    if (slot) raise(function, "() got '", name, "' twice");
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!values_[i]) raise(function, "() lacks the argument '", *(names.begin() + i), "'");
  }
}

}  // namespace quire::jinja
