#include "quire/kv/place_table.h"

#include <algorithm>
#include <utility>

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire {

PlaceTable::PlaceTable(std::int32_t num_groups, std::int32_t num_places)
    : pool_(num_groups),
      num_places_(num_places),
      places_(static_cast<std::size_t>(num_places)),
      states_(static_cast<std::size_t>(num_groups) + 1) {}

std::int32_t PlaceTable::find_list() {
  for (std::int32_t list = num_places_; list < num_places_and_lists(); ++list)
    if (!at(list).is_live && at(list).groups.empty()) return list;
  places_.emplace_back();
  return num_places_and_lists() - 1;
}

// -- runs --

bool PlaceTable::starts_run(const Place& place, std::int32_t index) {
  const auto i = static_cast<std::size_t>(index);
  return i == 0 || place.groups[i] != place.groups[i - 1] + 1;
}

std::int64_t PlaceTable::starts_in(const Place& place, std::int32_t begin, std::int32_t end) {
  std::int64_t count = 0;
  for (std::int32_t i = begin; i < end; ++i) count += starts_run(place, i) ? 1 : 0;
  return count;
}

// -- holding --

void PlaceTable::change_holders(std::int32_t group, std::int32_t change) {
  GroupState& state = state_of(group);
  const bool was_held = state.is_held();
  state.holders += change;
  QUIRE_CHECK(state.holders >= 0, "group ", group);
  num_held_ += static_cast<int>(state.is_held()) - static_cast<int>(was_held);
  if (was_held) free_if_unused(group);
}

void PlaceTable::add_pin(std::int32_t group, std::int32_t count) {
  GroupState& state = state_of(group);
  const bool was_held = state.is_held();
  state.pins += count;
  QUIRE_CHECK(state.pins >= 0, "group ", group);
  num_held_ += static_cast<int>(state.is_held()) - static_cast<int>(was_held);
  if (was_held) free_if_unused(group);
}

/// What a plan has taken stays, even if its last mapping goes before the plan is done.
void PlaceTable::free_if_unused(std::int32_t group) {
  if (state(group).mappings == 0 && !state(group).is_held()) pool_.free(group);
}

void PlaceTable::set_live(std::int32_t number, bool is_live) {
  QUIRE_CHECK(at(number).is_live != is_live, "place ", number);
  hold(number, 0, 0);
  at(number).is_live = is_live;
}

void PlaceTable::hold(std::int32_t number, std::int32_t writable_from, std::int32_t held) {
  Place& place = at(number);
  QUIRE_CHECK(held <= size(number) && writable_from <= held, "place ", number, " has ", size(number), ", not ", held);
  const auto group = [&](std::int32_t i) { return place.groups[static_cast<std::size_t>(i)]; };
  for (std::int32_t i = held; i < place.held; ++i) change_holders(group(i), -1);
  for (std::int32_t i = place.held; i < held; ++i) change_holders(group(i), 1);
  if (!is_list(number)) num_held_entries_ += held - place.held;
  for (std::int32_t i = place.writable_from; i < place.held; ++i) --state_of(group(i)).writers;
  for (std::int32_t i = writable_from; i < held; ++i) ++state_of(group(i)).writers;
  place.held = held;
  place.writable_from = writable_from;
}

// -- mapping --

void PlaceTable::drop_mapping(std::int32_t group) {
  QUIRE_CHECK(state(group).mappings > 0, "group ", group);
  --state_of(group).mappings;
  free_if_unused(group);
}

void PlaceTable::map(std::int32_t number, std::int32_t index, std::int32_t group) {
  Place& place = at(number);
  QUIRE_CHECK(index >= place.held && index <= size(number), "index ", index, " of place ", number);
  const auto i = static_cast<std::size_t>(index);
  const bool replaces = i < place.groups.size();
  if (replaces && place.groups[i] == group) return;
  ++state_of(group).mappings;
  const std::int64_t had_runs = starts_in(place, index, std::min(index + 2, size(number)));
  const std::int32_t old = replaces ? std::exchange(place.groups[i], group) : 0;
  if (!replaces) place.groups.push_back(group);
  if (old != 0) drop_mapping(old);
  if (is_list(number)) return;
  num_runs_ += starts_in(place, index, std::min(index + 2, size(number))) - had_runs;
  note_map(number, index, group);
}

void PlaceTable::unmap_last(std::int32_t number) {
  Place& place = at(number);
  const std::int32_t index = size(number) - 1;
  QUIRE_CHECK(index >= place.held, "place ", number, " holds its last group");
  if (!is_list(number)) num_runs_ -= starts_run(place, index) ? 1 : 0;
  const std::int32_t group = place.groups.back();
  place.groups.pop_back();
  drop_mapping(group);
  if (is_list(number)) return;
  GroupMap* last = maps_.empty() ? nullptr : &maps_.back();
  if (last && last->place == number && last->group == kNullBlock && last->index == index + 1) {
    --last->index;
    ++last->count;
  } else {
    maps_.push_back({number, index, 1, kNullBlock});
  }
}

void PlaceTable::note_map(std::int32_t place, std::int32_t index, std::int32_t group) {
  GroupMap* last = maps_.empty() ? nullptr : &maps_.back();
  if (last && last->place == place && last->group != kNullBlock && last->index + last->count == index &&
      static_cast<std::int32_t>(last->group.value) + last->count == group) {
    ++last->count;
  } else {
    maps_.push_back({place, index, 1, BlockId{static_cast<std::uint32_t>(group)}});
  }
}

std::vector<GroupMap> PlaceTable::take_maps() { return std::exchange(maps_, {}); }

// -- invariants --

std::optional<std::string> PlaceTable::validate_places() const {
  std::vector<std::int32_t> index_of(states_.size(), -1);
  std::int64_t runs = 0, held_entries = 0;
  for (std::int32_t p = 0; p < num_places_and_lists(); ++p) {
    const Place& place = at(p);
    if (place.held > size(p) || place.writable_from > place.held || (!place.is_live && place.held > 0))
      return cat("G1: place ", p, " holds ", place.held, " of ", size(p), " groups");
    runs += is_list(p) ? 0 : starts_in(place, 0, size(p));
    held_entries += is_list(p) ? 0 : place.held;
    for (std::int32_t i = 0; i < size(p); ++i) {
      const std::int32_t group = place.groups[static_cast<std::size_t>(i)];
      std::int32_t& index = index_of[static_cast<std::size_t>(group)];
      if (index >= 0 && index != i) return cat("G2: group ", group, " is mapped at ", index, " and at ", i);
      index = i;
      if (place.is_live && i >= place.held && state(group).mappings != 1)
        return cat("G3: place ", p, " has the shared group ", group, " at its spare index ", i);
    }
    for (std::int32_t q = 0; q < p; ++q) {
      bool shares = true;
      for (std::int32_t i = 0; i < std::min(size(p), size(q)); ++i) {
        const bool is_same = groups(p)[static_cast<std::size_t>(i)] == groups(q)[static_cast<std::size_t>(i)];
        if (is_same && !shares) return cat("G2: places ", q, " and ", p, " share index ", i, " but not what is before");
        shares = is_same;
      }
    }
  }
  if (runs != num_runs_ || held_entries != num_held_entries_)
    return cat("G5: ", num_runs_, " runs, ", num_held_entries_, " entries held; counted are ", runs, " and ",
               held_entries);
  return std::nullopt;
}

std::optional<std::string> PlaceTable::validate_groups() const {
  std::vector<GroupState> counted(states_.size());
  for (const Place& place : places_)
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(place.groups.size()); ++i) {
      GroupState& state = counted[static_cast<std::size_t>(place.groups[static_cast<std::size_t>(i)])];
      ++state.mappings;
      state.holders += i < place.held ? 1 : 0;
      state.writers += i >= place.writable_from && i < place.held ? 1 : 0;
    }
  std::int32_t num_held = 0;
  for (std::int32_t group = 1; group <= num_groups(); ++group) {
    const GroupState& state = states_[static_cast<std::size_t>(group)];
    const GroupState& count = counted[static_cast<std::size_t>(group)];
    if (state.mappings != count.mappings || state.holders != count.holders || state.writers != count.writers ||
        state.pins != 0)
      return cat("G1: group ", group, " has ", state.mappings, " mappings, ", state.holders, " holders, ",
                 state.writers, " writers, ", state.pins, " pins; counted are ", count.mappings, ", ", count.holders,
                 ", ", count.writers, ", 0");
    if (pool_.is_free(group) != (state.mappings == 0)) return cat("G1: group ", group, " is free and mapped, or lost");
    if (state.writers > 0 && state.mappings != state.holders)
      return cat("G4: group ", group, " may be written and is kept by an ended sequence");
    num_held += state.is_held() ? 1 : 0;
  }
  if (num_held != num_held_) return cat("G1: ", num_held_, " groups are held, counted are ", num_held);
  return std::nullopt;
}

std::optional<std::string> PlaceTable::validate() const {
  if (auto violation = pool_.validate()) return violation;
  if (auto violation = validate_places()) return violation;
  return validate_groups();
}

}  // namespace quire
