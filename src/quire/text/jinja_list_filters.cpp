// Filters on sequences and mappings.

#include <algorithm>

#include "quire/text/jinja_machine.h"

namespace quire::jinja {
namespace {

/// Follows an attribute path such as "function.name" or "0"; numbers are indices.
class AttributePath {
 public:
  AttributePath(Machine& machine, const Value& path) : machine_(machine) {
    if (path.is(Kind::kNone) || path.is(Kind::kUndefined)) return;
    if (!path.is_string()) {
      keys_.push_back(path);
      return;
    }
    for (const Text& part : split(*path.text, ".", -1)) {
      const bool digits = !part.empty() && std::all_of(part.bytes().begin(), part.bytes().end(),
                                                       [](char c) { return c >= '0' && c <= '9'; });
      keys_.push_back(digits && part.size() < 10 ? Value::of_int(std::stoll(part.bytes())) : machine.make_text(part));
    }
  }

  Value of(Value item) const {
    for (const Value& key : keys_) {
      item = machine_.item(item, key);
      if (otherwise && item.is(Kind::kUndefined)) item = *otherwise;
    }
    return item;
  }

  std::optional<Value> otherwise;

 private:
  Machine& machine_;
  std::vector<Value> keys_;
};

Value lowered(Machine& machine, const Value& value) {
  if (!value.is_string()) return value;
  machine.charge_bytes(8 * value.text->size());
  return machine.make_text(to_lower(*value.text));
}

enum class Order { kAscending, kDescending };

/// Stable; `keys` are parallel to `items`.
std::vector<Value> sorted_by(Machine& machine, const std::vector<Value>& items, const std::vector<Value>& keys,
                             Order order) {
  std::vector<std::size_t> positions(items.size());
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = i;
  // A merge by hand: std::sort with a comparison that throws or contradicts itself would be undefined.
  std::vector<std::size_t> merged(positions.size());
  for (std::size_t width = 1; width < positions.size(); width *= 2) {
    for (std::size_t begin = 0; begin < positions.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, positions.size());
      const std::size_t end = std::min(begin + 2 * width, positions.size());
      std::size_t left = begin, right = middle;
      for (std::size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
          const Value& a = keys[positions[left]];
          const Value& b = keys[positions[right]];
          take_right = order == Order::kAscending ? machine.compare(b, a) < 0 : machine.compare(a, b) < 0;
        }
        merged[out] = positions[take_right ? right++ : left++];
      }
    }
    positions.swap(merged);
  }
  std::vector<Value> out;
  out.reserve(items.size());
  for (std::size_t position : positions) out.push_back(items[position]);
  return out;
}

Order order_of(Machine& machine, const Value* reverse) {
  return reverse && machine.truth(*reverse) ? Order::kDescending : Order::kAscending;
}

Value join(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("join", arguments, {"d", "attribute"});
  const AttributePath path(machine, bound.get(1, {}));
  const Text separator = bound[0] ? machine.to_text(*bound[0]) : Text();
  Text out;
  bool is_first = true;
  for (const Value& item : machine.items_of(value)) {
    if (!is_first) out.append(separator);
    is_first = false;
    out.append(machine.to_text(path.of(item)));
    machine.charge_bytes(separator.size());
    if (out.size() > machine.limits().max_output_bytes) break;  // make_text() refuses it
  }
  return machine.make_text(std::move(out));
}

Value first(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("first", arguments, {});
  if (value.is(Kind::kGenerator)) {
    List& list = *value.list;
    if (list.taken < list.items.size()) return list.items[list.taken++];
    return machine.make_undefined("No first item, sequence was empty.");
  }
  const std::vector<Value> items = machine.items_of(value);
  return items.empty() ? machine.make_undefined("No first item, sequence was empty.") : items.front();
}

Value last(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("last", arguments, {});
  if (value.is(Kind::kGenerator)) raise("a generator has no last item; make it a list first");
  const std::vector<Value> items = machine.items_of(value);
  return items.empty() ? machine.make_undefined("No last item, sequence was empty.") : items.back();
}

Value list(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("list", arguments, {});
  return machine.make_list(machine.items_of(value));
}

Value reverse(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("reverse", arguments, {});
  if (value.is_string()) {
    machine.charge_bytes(8 * value.text->size());
    return machine.make_text(reversed(*value.text));
  }
  std::vector<Value> items = machine.items_of(value);
  std::reverse(items.begin(), items.end());
  return machine.make_generator(std::move(items));
}

Value sort(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound[1] && machine.truth(*bound[1]);
  std::vector<AttributePath> paths;
  const Value attribute = bound.get(2, {});
  if (attribute.is_string()) {
    for (const Text& path : split(*attribute.text, ",", -1)) paths.emplace_back(machine, machine.make_text(path));
  } else {
    paths.emplace_back(machine, attribute);
  }
  const std::vector<Value> items = machine.items_of(value);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const AttributePath& path : paths) {
      const Value part = path.of(item);
      parts.push_back(case_sensitive ? part : lowered(machine, part));
    }
    keys.push_back(machine.make_list(std::move(parts)));
  }
  return machine.make_list(sorted_by(machine, items, keys, order_of(machine, bound[0])));
}

Value unique(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  const bool case_sensitive = bound[0] && machine.truth(*bound[0]);
  const AttributePath path(machine, bound.get(1, {}));
  Dict seen;
  std::vector<Value> out;
  for (const Value& item : machine.items_of(value)) {
    const Value part = path.of(item);
    const Value key = case_sensitive ? part : lowered(machine, part);
    if (machine.find_in_dict(seen, key)) continue;
    seen.items.emplace_back(key, Value::none());
    out.push_back(item);
  }
  return machine.make_generator(std::move(out));
}

Value extreme(Machine& machine, const Value& value, const Arguments& arguments, Order order) {
  Bound bound("min or max", arguments, {"case_sensitive", "attribute"});
  const bool case_sensitive = bound[0] && machine.truth(*bound[0]);
  const AttributePath path(machine, bound.get(1, {}));
  const std::vector<Value> items = machine.items_of(value);
  if (items.empty()) return machine.make_undefined("No aggregated item, sequence was empty.");
  Value best, best_key;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Value part = path.of(items[i]);
    const Value key = case_sensitive ? part : lowered(machine, part);
    const bool better = i == 0 || (order == Order::kAscending ? machine.compare(key, best_key) < 0
                                                              : machine.compare(best_key, key) < 0);
    if (!better) continue;
    best = items[i];
    best_key = key;
  }
  return best;
}

Value min_filter(Machine& machine, const Value& value, const Arguments& arguments) {
  return extreme(machine, value, arguments, Order::kAscending);
}
Value max_filter(Machine& machine, const Value& value, const Arguments& arguments) {
  return extreme(machine, value, arguments, Order::kDescending);
}

Value sum(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("sum", arguments, {"attribute", "start"});
  const AttributePath path(machine, bound.get(0, {}));
  Value total = bound.get(1, Value::of_int(0));
  for (const Value& item : machine.items_of(value)) total = machine.arithmetic("+", total, path.of(item));
  return total;
}

Value map(Machine& machine, const Value& value, const Arguments& arguments) {
  std::vector<Value> out;
  if (!machine.truth(value)) return machine.make_generator({});
  if (arguments.positional.empty()) {
    Bound bound("map", arguments, {"attribute", "default"}, 1);
    AttributePath path(machine, *bound[0]);
    if (bound[1] && !bound[1]->is(Kind::kNone)) path.otherwise = *bound[1];
    for (const Value& item : machine.items_of(value)) out.push_back(path.of(item));
    return machine.make_generator(std::move(out));
  }
  if (!arguments.positional[0].is_string()) raise("map() needs the name of a filter");
  const std::string name = arguments.positional[0].text->bytes();
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : machine.items_of(value)) {
    Machine::Nested nested(machine);
    out.push_back(machine.apply_filter(name, item, rest));
  }
  return machine.make_generator(std::move(out));
}

enum class Keep { kMatching, kOthers };
enum class Of { kItem, kAttribute };

template <Keep keep, Of of>
Value select(Machine& machine, const Value& value, const Arguments& arguments) {
  if (!machine.truth(value)) return machine.make_generator({});
  Arguments rest = arguments;
  auto take = [&] {
    const Value front = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return front;
  };
  if (of == Of::kAttribute && rest.positional.empty()) raise("missing parameter for attribute name");
  const AttributePath path(machine, of == Of::kAttribute ? take() : Value());
  std::optional<std::string> test;
  if (!rest.positional.empty()) test = machine.to_text(take()).bytes();
  std::vector<Value> out;
  for (const Value& item : machine.items_of(value)) {
    const Value examined = path.of(item);
    const bool matches = test ? machine.apply_test(*test, examined, rest) : machine.truth(examined);
    if (matches == (keep == Keep::kMatching)) out.push_back(item);
  }
  return machine.make_generator(std::move(out));
}

std::vector<Value> pairs_of(Machine& machine, const Dict& dict) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict.items) pairs.push_back(machine.make_tuple({key, value}));
  return pairs;
}

Value items(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound("items", arguments, {});
  if (value.is(Kind::kUndefined)) return machine.make_generator({});
  if (!value.is(Kind::kDict)) raise("items() needs a mapping, not ", type_name(value));
  return machine.make_generator(pairs_of(machine, *value.dict));
}

Value dictsort(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!value.is(Kind::kDict)) raise("dictsort() needs a mapping, not ", type_name(value));
  const bool case_sensitive = bound[0] && machine.truth(*bound[0]);
  const std::string by = bound[1] ? machine.to_text(*bound[1]).bytes() : "key";
  if (by != "key" && by != "value") raise("dictsort() sorts by \"key\" or \"value\"");
  std::vector<Value> keys;
  for (const auto& [key, item] : value.dict->items) {
    const Value& part = by == "key" ? key : item;
    keys.push_back(case_sensitive ? part : lowered(machine, part));
  }
  return machine.make_list(sorted_by(machine, pairs_of(machine, *value.dict), keys, order_of(machine, bound[2])));
}

Value batch(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t size = machine.to_integer(*bound[0], "the size of a batch");
  if (size < 1 || size > static_cast<std::int64_t>(machine.limits().max_range))
    raise("the size of a batch is out of range");
  std::vector<Value> out, current;
  for (const Value& item : machine.items_of(value)) {
    if (static_cast<std::int64_t>(current.size()) == size) out.push_back(machine.make_list(std::exchange(current, {})));
    current.push_back(item);
  }
  if (!current.empty()) {
    if (bound[1] && !bound[1]->is(Kind::kNone)) current.resize(static_cast<std::size_t>(size), *bound[1]);
    out.push_back(machine.make_list(std::move(current)));
  }
  return machine.make_generator(std::move(out));
}

Value slice(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  const std::int64_t slices = machine.to_integer(*bound[0], "the number of slices");
  if (slices < 1 || slices > static_cast<std::int64_t>(machine.limits().max_range))
    raise("the number of slices is out of range");
  const std::vector<Value> all = machine.items_of(value);
  const std::size_t count = static_cast<std::size_t>(slices);
  const std::size_t each = all.size() / count, longer = all.size() % count;
  std::vector<Value> out;
  auto at = all.begin();
  for (std::size_t i = 0; i < count; ++i) {
    const auto end = at + static_cast<std::ptrdiff_t>(each + (i < longer ? 1 : 0));
    std::vector<Value> part(at, end);
    at = end;
    if (bound[1] && !bound[1]->is(Kind::kNone) && i >= longer) part.push_back(*bound[1]);
    out.push_back(machine.make_list(std::move(part)));
  }
  return machine.make_generator(std::move(out));
}

Value groupby(Machine& machine, const Value& value, const Arguments& arguments) {
  Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  AttributePath path(machine, *bound[0]);
  if (bound[1] && !bound[1]->is(Kind::kNone)) path.otherwise = *bound[1];
  const bool case_sensitive = bound[2] && machine.truth(*bound[2]);
  const std::vector<Value> all = machine.items_of(value);
  auto key_of = [&](const Value& item) {
    const Value part = path.of(item);
    return case_sensitive ? part : lowered(machine, part);
  };
  std::vector<Value> keys;
  for (const Value& item : all) keys.push_back(key_of(item));
  const std::vector<Value> sorted = sorted_by(machine, all, keys, Order::kAscending);
  std::vector<Value> groups, members;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    members.push_back(sorted[i]);
    if (i + 1 < sorted.size() && machine.equal(key_of(sorted[i]), key_of(sorted[i + 1]))) continue;
    const Value name = path.of(members.front());
    groups.push_back(machine.make_tuple({name, machine.make_list(std::exchange(members, {}))}));
  }
  return machine.make_list(std::move(groups));
}

constexpr NativeEntry kListFilters[] = {
    {"batch", batch},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", items},
    {"join", join},
    {"last", last},
    {"list", list},
    {"map", map},
    {"max", max_filter},
    {"min", min_filter},
    {"reject", select<Keep::kOthers, Of::kItem>},
    {"rejectattr", select<Keep::kOthers, Of::kAttribute>},
    {"reverse", reverse},
    {"select", select<Keep::kMatching, Of::kItem>},
    {"selectattr", select<Keep::kMatching, Of::kAttribute>},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

NativeCall find_list_filter(std::string_view name) { return find_native(kListFilters, name); }

}  // namespace quire::jinja
