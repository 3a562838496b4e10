// The functions that every template sees.

#include <algorithm>

#include "quire/text/jinja_machine.h"

namespace quire::jinja {
namespace {

Value range(Machine& machine, const Value&, const Arguments& arguments) {
  Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  auto number = [&](std::size_t i) { return machine.to_integer(*bound[i], "a bound of range()"); };
  const std::int64_t start = bound[1] ? number(0) : 0;
  const std::int64_t stop = bound[1] ? number(1) : number(0);
  const std::int64_t step = bound[2] ? number(2) : 1;
  if (step == 0) raise("the step of range() cannot be zero");
  std::vector<Value> items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() == machine.limits().max_range) raise("range() gives more than ", items.size(), " numbers");
    items.push_back(Value::of_int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return machine.make_list(std::move(items));
}

/// dict(...) and namespace(...): a mapping to start from, then keywords.
Value make_mapping(Machine& machine, const Arguments& arguments, Kind kind) {
  if (arguments.positional.size() > 1) raise("dict() takes at most one argument without a name");
  const Value made = machine.make_dict(kind);
  for (const Value& start : arguments.positional) {
    if (start.is(Kind::kDict)) {
      const auto members = start.dict->items;
      for (const auto& [key, value] : members) machine.set_in_dict(*made.dict, key, value);
      continue;
    }
    for (const Value& pair : machine.items_of(start)) {
      const std::vector<Value> parts = machine.items_of(pair);
      if (parts.size() != 2) raise("dict() needs pairs of a key and a value");
      machine.set_in_dict(*made.dict, parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) machine.set_in_dict(*made.dict, machine.make_text(name), value);
  return made;
}

Value dict(Machine& machine, const Value&, const Arguments& arguments) {
  return make_mapping(machine, arguments, Kind::kDict);
}

Value name_space(Machine& machine, const Value&, const Arguments& arguments) {
  return make_mapping(machine, arguments, Kind::kNamespace);
}

Value raise_exception(Machine& machine, const Value&, const Arguments& arguments) {
  Bound bound("raise_exception", arguments, {"message"}, 1);
  throw Failure{machine.to_text(*bound[0]).bytes()};
}

Value strftime_now(Machine& machine, const Value&, const Arguments& arguments) {
  Bound bound("strftime_now", arguments, {"format"}, 1);
  if (!bound[0]->is_string()) raise("strftime_now() needs a string");
  return machine.make_text(format_time(bound[0]->text->bytes(), machine.now()), bound[0]->text->origin());
}

/// The separator at each call but the first. `self` is [separator, used].
Value joiner_call(Machine& machine, const Value& self, const Arguments&) {
  Value& used = self.list->items[1];
  if (used.boolean) return self.list->items[0];
  used = Value::of_bool(true);
  return machine.make_text("");
}

Value joiner(Machine& machine, const Value&, const Arguments& arguments) {
  Bound bound("joiner", arguments, {"sep"});
  const Value separator = bound[0] ? *bound[0] : machine.make_text(", ");
  Function function;
  function.name = "joiner";
  function.native = joiner_call;
  function.self = machine.make_list({separator, Value::of_bool(false)});
  return machine.make_function(function);
}

// A cycler is a namespace with `current`, next() and reset(); the functions hold [values, position, cycler].

void show_current(Machine& machine, const std::vector<Value>& state) {
  const auto& values = state[0].list->items;
  machine.set_in_dict(*state[2].dict, machine.make_text("current"), values[static_cast<std::size_t>(state[1].integer)]);
}

Value cycler_next(Machine& machine, const Value& self, const Arguments&) {
  auto& state = self.list->items;
  const auto& values = state[0].list->items;
  const Value current = values[static_cast<std::size_t>(state[1].integer)];
  state[1].integer = (state[1].integer + 1) % static_cast<std::int64_t>(values.size());
  show_current(machine, state);
  return current;
}

Value cycler_reset(Machine& machine, const Value& self, const Arguments&) {
  self.list->items[1].integer = 0;
  show_current(machine, self.list->items);
  return Value::none();
}

Value cycler(Machine& machine, const Value&, const Arguments& arguments) {
  if (arguments.positional.empty()) raise("cycler() needs at least one value");
  const Value made = machine.make_dict(Kind::kNamespace);
  const Value state = machine.make_list({machine.make_list(arguments.positional), Value::of_int(0), made});
  Function next, reset;
  next.native = cycler_next;
  reset.native = cycler_reset;
  next.self = reset.self = state;
  machine.set_in_dict(*made.dict, machine.make_text("next"), machine.make_function(next));
  machine.set_in_dict(*made.dict, machine.make_text("reset"), machine.make_function(reset));
  show_current(machine, state.list->items);
  return made;
}

constexpr NativeEntry kFunctions[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", name_space},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"joiner", joiner},
    {"cycler", cycler},
};

}  // namespace

NativeCall find_function(std::string_view name) { return find_native(kFunctions, name); }

}  // namespace quire::jinja
