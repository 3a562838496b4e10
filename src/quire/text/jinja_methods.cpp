// Methods of strings, lists, dicts, loops and cyclers.

#include <algorithm>

#include "quire/text/jinja_machine.h"

namespace quire::jinja {
namespace {

const std::string& string_argument(const Value& value, std::string_view method) {
  if (value.is(Kind::kUndefined)) raise_undefined(value);
  if (!value.is_string()) raise(method, "() needs a string, not ", type_name(value));
  return value.text->bytes();
}

bool is_given(const Value* value) { return value && !value->is(Kind::kNone); }

// ---- strings ----

template <Text (*change)(const Text&)>
Value changed(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound("the method", arguments, {});
  machine.charge_bytes(8 * self.text->size());
  return machine.make_text(change(*self.text));
}

template <Side side>
Value strip_method(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("strip", arguments, {"chars"});
  std::optional<std::string_view> characters;
  if (is_given(bound[0])) characters = string_argument(*bound[0], "strip");
  machine.charge_bytes(self.text->size() * std::min<std::size_t>(characters ? characters->size() : 1, 256));
  return machine.make_text(strip(*self.text, side, characters));
}

enum class Direction { kLeft, kRight };

template <Direction direction>
Value split_method(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("split", arguments, {"sep", "maxsplit"});
  std::optional<std::string_view> separator;
  if (is_given(bound[0])) separator = string_argument(*bound[0], "split");
  if (separator && separator->empty()) raise("split() needs a separator that is not empty");
  const std::int64_t max_splits = bound[1] ? machine.to_integer(*bound[1], "maxsplit") : -1;
  machine.charge_bytes(8 * self.text->size());
  const auto parts = direction == Direction::kLeft ? split(*self.text, separator, max_splits)
                                                   : split_from_right(*self.text, separator, max_splits);
  std::vector<Value> out;
  for (const Text& part : parts) out.push_back(machine.make_text(part));
  return machine.make_list(std::move(out));
}

Value split_lines_method(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound("splitlines", arguments, {});
  machine.charge_bytes(8 * self.text->size());
  std::vector<Value> out;
  for (const Text& line : split_lines(*self.text)) out.push_back(machine.make_text(line));
  return machine.make_list(std::move(out));
}

template <Direction direction>
Value partition(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("partition", arguments, {"sep"}, 1);
  const std::string& separator = string_argument(*bound[0], "partition");
  if (separator.empty()) raise("partition() needs a separator that is not empty");
  const Text& text = *self.text;
  machine.charge_bytes(text.size());
  const bool from_left = direction == Direction::kLeft;
  const std::size_t at = from_left ? text.bytes().find(separator) : text.bytes().rfind(separator);
  const Value nothing = machine.make_text("");
  if (at == std::string::npos) {
    return from_left ? machine.make_tuple({self, nothing, nothing}) : machine.make_tuple({nothing, nothing, self});
  }
  const std::size_t end = at + separator.size();
  return machine.make_tuple({machine.make_text(text.slice(0, at)), machine.make_text(text.slice(at, end)),
                             machine.make_text(text.slice(end, text.size()))});
}

template <Direction direction>
Value has_affix(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("startswith", arguments, {"prefix"}, 1);
  const std::vector<Value> affixes = bound[0]->is(Kind::kTuple) ? bound[0]->list->items : std::vector<Value>{*bound[0]};
  for (const Value& affix : affixes) {
    machine.charge();
    const std::string& bytes = string_argument(affix, "startswith");
    const bool found =
        direction == Direction::kLeft ? self.text->bytes().starts_with(bytes) : self.text->bytes().ends_with(bytes);
    if (found) return Value::of_bool(true);
  }
  return Value::of_bool(false);
}

template <Direction direction>
Value remove_affix(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("removeprefix", arguments, {"affix"}, 1);
  const std::string& affix = string_argument(*bound[0], "removeprefix");
  const Text& text = *self.text;
  if (direction == Direction::kLeft) {
    return text.bytes().starts_with(affix) ? machine.make_text(text.slice(affix.size(), text.size())) : self;
  }
  return text.bytes().ends_with(affix) ? machine.make_text(text.slice(0, text.size() - affix.size())) : self;
}

Value replace_method(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const std::string& old = string_argument(*bound[0], "replace");
  string_argument(*bound[1], "replace");
  const std::int64_t count = bound[2] ? machine.to_integer(*bound[2], "the count") : -1;
  return replaced(machine, *self.text, {old, *bound[1]->text, count});
}

/// The code point index of a byte offset, -1 for npos.
std::int64_t index_of(const Text& text, std::size_t offset) {
  if (offset == std::string::npos) return -1;
  return static_cast<std::int64_t>(text.slice(0, offset).length());
}

template <Direction direction>
Value find(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("find", arguments, {"sub"}, 1);
  const std::string& wanted = string_argument(*bound[0], "find");
  const Text& text = *self.text;
  machine.charge_bytes(2 * text.size());
  const bool from_left = direction == Direction::kLeft;
  return Value::of_int(index_of(text, from_left ? text.bytes().find(wanted) : text.bytes().rfind(wanted)));
}

Value index_method(Machine& machine, const Value& self, const Arguments& arguments) {
  const Value found = find<Direction::kLeft>(machine, self, arguments);
  if (found.integer < 0) raise("index() did not find the text");
  return found;
}

Value count_method(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("count", arguments, {"sub"}, 1);
  const std::string& wanted = string_argument(*bound[0], "count");
  const std::string& bytes = self.text->bytes();
  machine.charge_bytes(bytes.size());
  if (wanted.empty()) return Value::of_int(static_cast<std::int64_t>(self.text->length()) + 1);
  std::int64_t count = 0;
  for (std::size_t at = bytes.find(wanted); at != std::string::npos; at = bytes.find(wanted, at + wanted.size()))
    ++count;
  return Value::of_int(count);
}

Value join_method(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("join", arguments, {"iterable"}, 1);
  Text out;
  bool is_first = true;
  for (const Value& item : machine.items_of(*bound[0])) {
    string_argument(item, "join");
    machine.charge_bytes(item.text->size() + self.text->size());
    if (!is_first) out.append(*self.text);
    is_first = false;
    out.append(*item.text);
    if (out.size() > machine.limits().max_output_bytes) break;  // make_text() refuses it
  }
  return machine.make_text(std::move(out));
}

template <bool (*test)(char32_t)>
Value every_character(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound("the method", arguments, {});
  machine.charge_bytes(8 * self.text->size());
  bool all = !self.text->empty();
  for_each_character(self.text->bytes(), [&](const Character& c) { all = all && test(c.code_point); });
  return Value::of_bool(all);
}

bool is_alphanumeric(char32_t c) { return is_alpha(c) || is_digit(c); }

template <bool (*wanted)(char32_t), bool (*refused)(char32_t)>
Value in_one_case(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound("the method", arguments, {});
  machine.charge_bytes(8 * self.text->size());
  bool found = false, other = false;
  for_each_character(self.text->bytes(), [&](const Character& c) {
    found = found || wanted(c.code_point);
    other = other || refused(c.code_point);
  });
  return Value::of_bool(found && !other);
}

Value center_method(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("center", arguments, {"width", "fillchar"}, 1);
  const std::string fill = bound[1] ? string_argument(*bound[1], "center") : " ";
  return centered(machine, *self.text, machine.to_integer(*bound[0], "the width"), fill);
}

template <Direction text_at>
Value justified(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("ljust", arguments, {"width", "fillchar"}, 1);
  const std::string fill = bound[1] ? string_argument(*bound[1], "ljust") : " ";
  const std::int64_t missing =
      machine.to_integer(*bound[0], "the width") - static_cast<std::int64_t>(self.text->length());
  if (missing > static_cast<std::int64_t>(machine.limits().max_output_bytes)) raise("a width is out of range");
  Text blanks;
  for (std::int64_t i = 0; i < missing; ++i) blanks.append(fill, Origin::kTemplate);
  Text out = text_at == Direction::kLeft ? *self.text : blanks;
  out.append(text_at == Direction::kLeft ? blanks : *self.text);
  return machine.make_text(std::move(out));
}

Value zfill(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("zfill", arguments, {"width"}, 1);
  const std::int64_t missing =
      machine.to_integer(*bound[0], "the width") - static_cast<std::int64_t>(self.text->length());
  if (missing > static_cast<std::int64_t>(machine.limits().max_output_bytes)) raise("a width is out of range");
  const Text& text = *self.text;
  const bool has_sign = text.bytes().starts_with('-') || text.bytes().starts_with('+');
  Text out = text.slice(0, has_sign ? 1 : 0);
  out.append(std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, missing)), '0'), Origin::kTemplate);
  out.append(text, has_sign ? 1 : 0, text.size());
  return machine.make_text(std::move(out));
}

/// str.format with {} {0} {name}, without format specifications.
class BraceFormatter {
 public:
  BraceFormatter(Machine& machine, const Text& format, const Arguments& arguments)
      : machine_(machine), format_(format), arguments_(arguments) {}

  Text run() {
    const std::string& bytes = format_.bytes();
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      out_.append(format_, at, brace);
      if (brace == bytes.size()) break;
      if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
        out_.append(format_, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      const std::size_t close = bytes[brace] == '{' ? bytes.find('}', brace) : std::string::npos;
      if (close == std::string::npos) raise("a single brace in a format string");
      out_.append(machine_.to_text(field(bytes.substr(brace + 1, close - brace - 1))));
      if (out_.size() > machine_.limits().max_output_bytes) break;  // make_text() refuses it
      at = close + 1;
    }
    return std::move(out_);
  }

 private:
  Value field(const std::string& name) {
    const bool digits = std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits && name.size() < 6) {
      const std::size_t index = name.empty() ? next_++ : static_cast<std::size_t>(std::stoi(name));
      if (index >= arguments_.positional.size()) raise("format() lacks an argument for {", name, "}");
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    raise("format() does not support or lacks {", std::string_view(name).substr(0, 40), "}");
  }

  Machine& machine_;
  const Text& format_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
  Text out_;
};

Value format_method(Machine& machine, const Value& self, const Arguments& arguments) {
  machine.charge_bytes(self.text->size());
  return machine.make_text(BraceFormatter(machine, *self.text, arguments).run());
}

constexpr NativeEntry kStringMethods[] = {
    {"strip", strip_method<Side::kBoth>},
    {"lstrip", strip_method<Side::kLeft>},
    {"rstrip", strip_method<Side::kRight>},
    {"split", split_method<Direction::kLeft>},
    {"rsplit", split_method<Direction::kRight>},
    {"splitlines", split_lines_method},
    {"partition", partition<Direction::kLeft>},
    {"rpartition", partition<Direction::kRight>},
    {"startswith", has_affix<Direction::kLeft>},
    {"endswith", has_affix<Direction::kRight>},
    {"removeprefix", remove_affix<Direction::kLeft>},
    {"removesuffix", remove_affix<Direction::kRight>},
    {"replace", replace_method},
    {"find", find<Direction::kLeft>},
    {"rfind", find<Direction::kRight>},
    {"index", index_method},
    {"count", count_method},
    {"join", join_method},
    {"upper", changed<to_upper>},
    {"lower", changed<to_lower>},
    {"casefold", changed<to_lower>},
    {"title", changed<title_case>},
    {"capitalize", changed<capitalize>},
    {"swapcase", changed<swap_case>},
    {"isspace", every_character<is_space>},
    {"isalpha", every_character<is_alpha>},
    {"isdigit", every_character<is_digit>},
    {"isdecimal", every_character<is_digit>},
    {"isnumeric", every_character<is_digit>},
    {"isalnum", every_character<is_alphanumeric>},
    {"isupper", in_one_case<is_upper, is_lower>},
    {"islower", in_one_case<is_lower, is_upper>},
    {"center", center_method},
    {"ljust", justified<Direction::kLeft>},
    {"rjust", justified<Direction::kRight>},
    {"zfill", zfill},
    {"format", format_method},
};

// ---- lists ----

Value append(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("append", arguments, {"object"}, 1);
  machine.charge();
  self.list->items.push_back(*bound[0]);
  return Value::none();
}

Value extend(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("extend", arguments, {"iterable"}, 1);
  const std::vector<Value> more = machine.items_of(*bound[0]);
  machine.charge_items(more.size());
  self.list->items.insert(self.list->items.end(), more.begin(), more.end());
  return Value::none();
}

/// Where an index points in a list of `size`, Python's way; size or more is out of range.
std::size_t position(std::int64_t index, std::size_t size) {
  if (index < 0) index += static_cast<std::int64_t>(size);
  return index < 0 ? SIZE_MAX : static_cast<std::size_t>(index);
}

Value insert(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("insert", arguments, {"index", "object"}, 2);
  auto& items = self.list->items;
  machine.charge_items(items.size());
  const std::int64_t index = machine.to_integer(*bound[0], "the index");
  std::size_t at = position(index, items.size());
  if (at > items.size()) at = index < 0 ? 0 : items.size();
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(at), *bound[1]);
  return Value::none();
}

Value pop(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("pop", arguments, {"index"});
  auto& items = self.list->items;
  machine.charge_items(items.size());
  const std::size_t at = position(bound[0] ? machine.to_integer(*bound[0], "the index") : -1, items.size());
  if (at >= items.size()) raise("pop() from an empty list, or the index is out of range");
  const Value popped = items[at];
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
  return popped;
}

Value clear_list(Machine&, const Value& self, const Arguments& arguments) {
  Bound("clear_list", arguments, {});
  self.list->items.clear();
  return Value::none();
}

Value reverse_list(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound("reverse_list", arguments, {});
  machine.charge_items(self.list->items.size());
  std::reverse(self.list->items.begin(), self.list->items.end());
  return Value::none();
}

Value copy_list(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound("copy_list", arguments, {});
  return machine.make_list(self.list->items);
}

Value list_index(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("index", arguments, {"value"}, 1);
  for (std::size_t i = 0; i < self.list->items.size(); ++i) {
    if (machine.equal(self.list->items[i], *bound[0])) return Value::of_int(static_cast<std::int64_t>(i));
  }
  raise("index() did not find the value");
}

Value list_count(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("count", arguments, {"value"}, 1);
  const auto& items = self.list->items;
  return Value::of_int(
      std::count_if(items.begin(), items.end(), [&](const Value& x) { return machine.equal(x, *bound[0]); }));
}

constexpr NativeEntry kListMethods[] = {
    {"append", append},        {"extend", extend},  {"insert", insert},    {"pop", pop},          {"clear", clear_list},
    {"reverse", reverse_list}, {"copy", copy_list}, {"index", list_index}, {"count", list_count},
};
constexpr NativeEntry kTupleMethods[] = {{"index", list_index}, {"count", list_count}};

// ---- dicts ----

Value dict_items(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound("items", arguments, {});
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.dict->items) pairs.push_back(machine.make_tuple({key, value}));
  return machine.make_list(std::move(pairs));
}

Value dict_keys(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound("keys", arguments, {});
  return machine.make_list(machine.items_of(self));
}

Value dict_values(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound("values", arguments, {});
  std::vector<Value> values;
  for (const auto& member : self.dict->items) values.push_back(member.second);
  return machine.make_list(std::move(values));
}

Value dict_get(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("get", arguments, {"key", "default"}, 1);
  const Value* found = machine.find_in_dict(*self.dict, *bound[0]);
  return found ? *found : bound.get(1, Value::none());
}

Value dict_update(Machine& machine, const Value& self, const Arguments& arguments) {
  for (const Value& other : arguments.positional) {
    if (!other.is(Kind::kDict)) raise("update() needs a dict, not ", type_name(other));
    const auto members = other.dict->items;
    for (const auto& [key, value] : members) machine.set_in_dict(*self.dict, key, value);
  }
  for (const auto& [name, value] : arguments.named) machine.set_in_dict(*self.dict, machine.make_text(name), value);
  return Value::none();
}

Value dict_pop(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("pop", arguments, {"key", "default"}, 1);
  const Value* found = machine.find_in_dict(*self.dict, *bound[0]);
  if (!found) {
    if (bound[1]) return *bound[1];
    raise("pop() did not find the key");
  }
  const Value popped = *found;
  auto& items = self.dict->items;
  items.erase(std::find_if(items.begin(), items.end(), [&](const auto& member) { return &member.second == found; }));
  return popped;
}

Value dict_setdefault(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound bound("setdefault", arguments, {"key", "default"}, 1);
  if (const Value* found = machine.find_in_dict(*self.dict, *bound[0])) return *found;
  const Value value = bound.get(1, Value::none());
  machine.set_in_dict(*self.dict, *bound[0], value);
  return value;
}

Value dict_copy(Machine& machine, const Value& self, const Arguments& arguments) {
  Bound("copy", arguments, {});
  const Value copy = machine.make_dict();
  machine.charge_items(self.dict->items.size());
  copy.dict->items = self.dict->items;
  return copy;
}

constexpr NativeEntry kDictMethods[] = {
    {"items", dict_items},   {"keys", dict_keys}, {"values", dict_values},         {"get", dict_get},
    {"update", dict_update}, {"pop", dict_pop},   {"setdefault", dict_setdefault}, {"copy", dict_copy},
};

// ---- loops ----

Value loop_cycle(Machine&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) raise("cycle() needs at least one value");
  return arguments.positional[self.loop->index % arguments.positional.size()];
}

Value loop_changed(Machine& machine, const Value& self, const Arguments& arguments) {
  Loop& loop = *self.loop;
  const auto& now = arguments.positional;
  const bool same = loop.has_last_changed && loop.last_changed.size() == now.size() &&
                    std::equal(now.begin(), now.end(), loop.last_changed.begin(),
                               [&](const Value& a, const Value& b) { return machine.equal(a, b); });
  loop.has_last_changed = true;
  loop.last_changed = now;
  return Value::of_bool(!same);
}

constexpr NativeEntry kLoopMethods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};

}  // namespace

NativeCall find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kString:
      return find_native(kStringMethods, name);
    case Kind::kList:
      return find_native(kListMethods, name);
    case Kind::kTuple:
      return find_native(kTupleMethods, name);
    case Kind::kDict:
      return find_native(kDictMethods, name);
    case Kind::kLoop:
      return find_native(kLoopMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace quire::jinja
