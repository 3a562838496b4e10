#pragma once
// PlaceTable: which page-group is mapped at which index of which place, and who holds it. A place is an address range
// for one sequence; groups are mapped in it from index 0 on, without gaps. Of these, the first `held` hold what a live
// sequence has reserved; those behind are spare: mapped ahead, or left by a sequence that has ended. Of the held ones,
// those from `writable_from` on may be written by the sequence's next steps.
//
// Only spare indices change; held ones first become spare. What has changed is noted as maps, in order, for the plan.
//
// Places from num_places() on are lists: they hold groups as any place does and have no addresses, so what is in them
// takes no mapping of the kernel and is noted nowhere. There are as many as were needed at a time.
//
// Counts of a group: mappings (indices of places that name it), holders (of these: held), writers (of these: writable),
// pins (taken by a plan while it is committed). A group nobody holds or pins is available, mapped or not.
//
// Invariants (validate):
//  G1  a group is free in the pool if and only if it has no mapping; mappings, holders and writers are what counting
//      gives; num_available() is right
//  G2  a group is mapped at one and the same index everywhere; two places share a prefix and nothing behind it
//  G3  a spare index of a live place names a group that is mapped there alone
//  G4  a group that somebody may write is mapped by holders alone
//  G5  the numbers of runs (consecutive groups at consecutive indices: one mapping for the kernel) and of entries are
//      right
//
// Thread-safety: none.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/kv/kv_manager.h"
#include "quire/kv/page_group_pool.h"

namespace quire {

class PlaceTable {
 public:
  PlaceTable(std::int32_t num_groups, std::int32_t num_places);

  struct GroupState {
    std::int32_t mappings = 0, holders = 0, writers = 0, pins = 0;
    bool is_held() const { return holders > 0 || pins > 0; }
  };

  std::int32_t num_places() const { return num_places_; }  ///< with addresses
  std::int32_t num_places_and_lists() const { return static_cast<std::int32_t>(places_.size()); }
  bool is_list(std::int32_t place) const { return place >= num_places_; }
  /// One that is empty and not live.
  std::int32_t find_list();
  std::int32_t num_groups() const { return static_cast<std::int32_t>(states_.size()) - 1; }
  std::int32_t num_free() const { return pool_.num_free(); }
  std::int32_t num_available() const { return num_groups() - num_held_; }
  std::int32_t num_mapped() const { return num_groups() - pool_.num_free(); }
  const GroupState& state(std::int32_t group) const { return states_[static_cast<std::size_t>(group)]; }

  std::span<const std::int32_t> groups(std::int32_t place) const { return at(place).groups; }
  std::int32_t size(std::int32_t place) const { return static_cast<std::int32_t>(at(place).groups.size()); }
  std::int32_t held(std::int32_t place) const { return at(place).held; }
  std::int32_t writable_from(std::int32_t place) const { return at(place).writable_from; }
  bool is_live(std::int32_t place) const { return at(place).is_live; }

  /// Mappings for the kernel: of all that is mapped, at most of what is held in places, of the first `count` groups of
  /// a place or list.
  std::int64_t num_runs() const { return num_runs_; }
  std::int64_t num_held_entries() const { return num_held_entries_; }
  std::int64_t count_runs(std::int32_t place, std::int32_t count) const { return starts_in(at(place), 0, count); }

  /// A sequence begins, or ends: nothing is held then, and what is mapped stays.
  void set_live(std::int32_t place, bool is_live);
  /// The first `held` groups are held, those from writable_from on may be written.
  void hold(std::int32_t place, std::int32_t writable_from, std::int32_t held);

  /// A group taken from the pool; the neighbour of `wanted` if it is free. num_free() >= 1. To be mapped at once.
  std::int32_t allocate(std::int32_t wanted) { return pool_.allocate(wanted); }
  /// `group` at a spare index, or behind the last one.
  void map(std::int32_t place, std::int32_t index, std::int32_t group);
  /// The last index, a spare one.
  void unmap_last(std::int32_t place);

  /// As if one more held it.
  void add_holder(std::int32_t group, std::int32_t count) { change_holders(group, count); }
  void add_pin(std::int32_t group, std::int32_t count);

  /// What has been mapped and unmapped since the last call.
  std::vector<GroupMap> take_maps();

  std::optional<std::string> validate() const;

 private:
  struct Place {
    std::vector<std::int32_t> groups;
    std::int32_t held = 0, writable_from = 0;
    bool is_live = false;
  };
  Place& at(std::int32_t place) { return places_[static_cast<std::size_t>(place)]; }
  const Place& at(std::int32_t place) const { return places_[static_cast<std::size_t>(place)]; }
  GroupState& state_of(std::int32_t group) { return states_[static_cast<std::size_t>(group)]; }

  static bool starts_run(const Place& place, std::int32_t index);
  static std::int64_t starts_in(const Place& place, std::int32_t begin, std::int32_t end);
  void change_holders(std::int32_t group, std::int32_t change);
  void drop_mapping(std::int32_t group);
  void free_if_unused(std::int32_t group);
  void note_map(std::int32_t place, std::int32_t index, std::int32_t group);
  std::optional<std::string> validate_places() const;
  std::optional<std::string> validate_groups() const;

  PageGroupPool pool_;
  const std::int32_t num_places_;
  std::vector<Place> places_;       ///< then lists
  std::vector<GroupState> states_;  ///< [num_groups + 1]
  std::int32_t num_held_ = 0;
  std::int64_t num_runs_ = 0, num_held_entries_ = 0;
  std::vector<GroupMap> maps_;
};

}  // namespace quire
