#include "quire/kv/vattention_kv_manager.h"

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire {
namespace {

/// By one group that takes another one's place in the midst of a run.
constexpr std::int64_t kMostRunsAdded = 2;

}  // namespace

std::int64_t most_groups(const VAttentionOptions& options) {
  // In each tensor, a place is its groups and one gap behind them; one more gap is the rest.
  return options.max_mappings / options.geometry.num_tensors - options.num_places - 1;
}

VAttentionKvManager::VAttentionKvManager(const VAttentionOptions& options, std::optional<CacheIdentity> cache)
    : options_(options),
      max_runs_(most_groups(options)),
      table_(options.num_groups, options.num_places),
      occupants_(static_cast<std::size_t>(options.num_places)),
      planned_(static_cast<std::size_t>(options.num_groups) + 1) {
  QUIRE_CHECK(options.num_groups >= 1 && options.num_groups <= max_runs_, options.num_groups, " groups, ", max_runs_,
              " mappings");
  if (cache) keys_.emplace(options.num_places, kKvTileTokens, *cache);
  begin_plan();
}

KvCapacity VAttentionKvManager::capacity() const {
  KvCapacity capacity;
  capacity.block_size = kKvTileTokens;
  capacity.num_blocks = options_.num_groups;
  capacity.free_blocks = table_.num_available();
  const std::int32_t num_spare = table_.num_available() - table_.num_free();
  capacity.cached_blocks = keys_ ? num_spare : 0;
  return capacity;
}

std::int64_t VAttentionKvManager::blocks_for(std::int64_t num_tokens) const {
  return options_.geometry.groups_for(num_tokens);
}

std::int32_t VAttentionKvManager::first_written(std::int64_t num_tokens) const {
  return static_cast<std::int32_t>(options_.geometry.first_written(num_tokens));
}

std::int32_t VAttentionKvManager::place_of(SequenceId sequence) const {
  const auto found = place_of_.find(sequence);
  return found == place_of_.end() ? -1 : found->second;
}

std::int64_t VAttentionKvManager::reserved_tokens(SequenceId sequence) const {
  const std::int32_t place = place_of(sequence);
  return place < 0 ? 0 : occupant(place).num_tokens;
}

KvUsage VAttentionKvManager::usage() const {
  KvUsage usage;
  usage.used_blocks = table_.num_groups() - table_.num_available();
  for (std::int32_t place = 0; place < table_.num_places_and_lists(); ++place) {
    if (!table_.is_live(place)) continue;
    usage.table_entries += table_.held(place);
    usage.unfilled_slots += options_.geometry.tokens_in(table_.held(place)) - occupant(place).num_tokens;
  }
  return usage;
}

VAttentionKvManager::GroupUsage VAttentionKvManager::group_usage() const {
  GroupUsage usage;
  usage.held = table_.num_groups() - table_.num_available();
  usage.spare = table_.num_available() - table_.num_free();
  usage.unmapped = table_.num_free();
  std::int64_t num_gaps = 1;
  for (std::int32_t place = 0; place < table_.num_places(); ++place) num_gaps += table_.size(place) > 0 ? 1 : 0;
  usage.mappings = (table_.num_runs() + num_gaps) * options_.geometry.num_tensors;
  return usage;
}

// -- planning: counts of what is available and of runs, and planned changes by group --

void VAttentionKvManager::begin_plan() {
  ++plan_number_;
  plan_available_ = table_.num_available();
  plan_entries_ = table_.num_held_entries();
  plan_alias_runs_ = num_alias_runs_;
  operations_.clear();
  planned_hits_.clear();
  released_late_ = false;
}

VAttentionKvManager::PlannedChange& VAttentionKvManager::planned(BlockId group) {
  PlannedChange& change = planned_[group.value];
  if (change.plan != plan_number_) change = {plan_number_, 0, 0, false};
  return change;
}

std::int32_t VAttentionKvManager::planned_holders(BlockId group) const {
  const PlannedChange& change = planned_[group.value];
  return table_.state(group_of(group)).holders + (change.plan == plan_number_ ? change.holders : 0);
}

bool VAttentionKvManager::is_planned_held(BlockId group) const {
  const PlannedChange& change = planned_[group.value];
  return planned_holders(group) > 0 || (change.plan == plan_number_ && change.pins > 0);
}

void VAttentionKvManager::plan_holders(BlockId group, std::int32_t change) {
  const bool was_held = is_planned_held(group);
  planned(group).holders += change;
  plan_available_ += static_cast<int>(was_held) - static_cast<int>(is_planned_held(group));
}

void VAttentionKvManager::plan_pin(BlockId group) {
  const bool was_held = is_planned_held(group);
  ++planned(group).pins;
  plan_available_ -= was_held ? 0 : 1;
}

/// False, and nothing noted: so many more might exceed the limit on mappings.
bool VAttentionKvManager::plan_mappings(std::int64_t num_entries, std::int64_t num_alias_runs) {
  if (num_entries == 0) return true;
  if (plan_entries_ + num_entries > max_runs_ && options_.num_groups + plan_alias_runs_ + num_alias_runs > max_runs_)
    return false;
  plan_entries_ += num_entries;
  plan_alias_runs_ += num_alias_runs;
  return true;
}

void VAttentionKvManager::note_operation(std::int32_t place, SequenceId sequence, std::int64_t num_tokens) {
  if (place >= 0) {
    QUIRE_CHECK(occupant(place).planned_in != plan_number_, "two operations on sequence ", sequence, " in one plan");
    occupant(place).planned_in = plan_number_;
  }
  operations_.push_back({sequence, num_tokens, kNoHit});
}

bool VAttentionKvManager::plan_reserve(SequenceId sequence, std::int64_t num_tokens) {
  const std::int32_t place = place_of(sequence);
  const std::int64_t reserved = reserved_tokens(sequence);
  QUIRE_CHECK(num_tokens >= reserved && num_tokens <= options_.context_tokens, "sequence ", sequence, " has ", reserved,
              " tokens, asked for ", num_tokens);
  const std::int32_t held = groups_of(reserved);
  const std::int64_t num_new = groups_of(num_tokens) - held;
  std::vector<BlockId> shared;
  for (std::int32_t i = first_written(reserved); num_tokens > reserved && i < held; ++i) {
    const BlockId group = block_of(table_.groups(place)[static_cast<std::size_t>(i)]);
    if (planned_holders(group) > 1) shared.push_back(group);
  }
  const std::int64_t num_needed = num_new + static_cast<std::int64_t>(shared.size());
  if (num_needed > plan_available_) return false;
  const bool moves_in = place >= 0 && table_.is_list(place);
  if (!plan_mappings(num_new + (moves_in ? held : 0), moves_in ? table_.count_runs(place, held) : 0)) return false;
  plan_available_ -= num_needed;
  for (BlockId group : shared) plan_holders(group, -1);
  note_operation(place, sequence, num_tokens);
  return true;
}

void VAttentionKvManager::plan_release(SequenceId sequence) {
  const std::int32_t place = place_of(sequence);
  QUIRE_CHECK(place >= 0, "no sequence ", sequence);
  released_late_ = released_late_ || (!operations_.empty() && operations_.back().num_tokens != kRelease);
  QUIRE_CHECK(!released_late_ || planned_hits_.empty(), "a release after a start");
  note_operation(place, sequence, kRelease);
  plan_entries_ -= table_.is_list(place) ? 0 : table_.held(place);
  plan_alias_runs_ -= occupant(place).alias_runs;
  for (std::int32_t group : table_.groups(place).first(static_cast<std::size_t>(table_.held(place))))
    plan_holders(block_of(group), -1);
}

bool VAttentionKvManager::plan_start(SequenceId sequence, const PrefixHit& hit, std::int64_t num_tokens) {
  QUIRE_CHECK(place_of(sequence) < 0 && hit.num_tokens > 0 && num_tokens > hit.num_tokens &&
                  num_tokens <= options_.context_tokens,
              "start of sequence ", sequence, " with ", hit.num_tokens, " of ", num_tokens, " tokens");
  QUIRE_CHECK(!released_late_, "a start after a late release");
  const std::int64_t num_new = blocks_for(num_tokens) - static_cast<std::int64_t>(hit.blocks.size());
  const bool has_idle_source = !hit.copy_from.empty() && !is_planned_held(hit.copy_from[0]);
  const bool takes_source = has_idle_source && hit.takes_source;
  std::int64_t num_taken = num_new + (has_idle_source && !takes_source ? 1 : 0), num_runs = 0;
  for (std::size_t i = 0; i < hit.blocks.size(); ++i) {
    if (planned(hit.blocks[i]).is_taken_over) return false;
    num_taken += is_planned_held(hit.blocks[i]) ? 0 : 1;
    num_runs += i == 0 || group_of(hit.blocks[i]) != group_of(hit.blocks[i - 1]) + 1 ? 1 : 0;
  }
  if (num_taken > plan_available_ || !plan_mappings(blocks_for(num_tokens), num_runs)) return false;
  for (BlockId group : hit.blocks) plan_holders(group, 1);
  if (!hit.copy_from.empty()) plan_pin(hit.copy_from[0]);
  // What is taken over is one of the new ones.
  plan_available_ -= num_new - (takes_source ? 1 : 0);
  if (takes_source) planned(hit.copy_from[0]).is_taken_over = true;
  note_operation(-1, sequence, num_tokens);
  operations_.back().hit = planned_hits_.size();
  planned_hits_.push_back(hit);
  planned_hits_.back().takes_source = takes_source;
  return true;
}

// -- committing --

void VAttentionKvManager::commit_plan(KvChanges& changes, std::vector<KvReservation>& reservations) {
  // What was found stays until it is mapped or copied, whatever is reclaimed on the way.
  for (const PrefixHit& hit : planned_hits_) {
    for (BlockId group : hit.blocks) table_.add_holder(group_of(group), 1);
    if (!hit.copy_from.empty()) table_.add_pin(group_of(hit.copy_from[0]), 1);
  }
  for (const PlannedOperation& operation : operations_) {
    if (operation.num_tokens == kRelease) {
      end_sequence(place_of_.at(operation.sequence));
      continue;
    }
    if (place_of(operation.sequence) >= 0) {
      commit_reserve(operation, changes);
    } else {
      commit_new(operation, changes);
    }
    reservations.push_back({operation.sequence, 0, 0, place_of(operation.sequence)});
  }
  for (const PrefixHit& hit : planned_hits_)
    if (!hit.copy_from.empty()) table_.add_pin(group_of(hit.copy_from[0]), -1);
  changes.group_maps = std::exchange(late_maps_, {});
  const std::vector<GroupMap> maps = table_.take_maps();
  changes.group_maps.insert(changes.group_maps.end(), maps.begin(), maps.end());
  map_ahead();
  changes.ahead_maps = table_.take_maps();
  begin_plan();
}

void VAttentionKvManager::commit_reserve(const PlannedOperation& operation, KvChanges& changes) {
  std::int32_t place = place_of_.at(operation.sequence);
  if (table_.is_list(place)) place = move_in(operation.sequence);
  if (operation.num_tokens > occupant(place).num_tokens) copy_shared(place, changes);
  fill(place, operation.num_tokens, kNullBlock);
}

void VAttentionKvManager::commit_new(const PlannedOperation& operation, KvChanges& changes) {
  const PrefixHit* hit = operation.hit == kNoHit ? nullptr : &planned_hits_[operation.hit];
  const std::int32_t place = choose_place(groups_of(operation.num_tokens), hit);
  const bool continues = hit && can_continue_in(place, *hit);
  begin_sequence(place, operation.sequence);
  if (!continues && keys_) {
    cache_counters_.evicted_blocks += static_cast<std::uint64_t>(keys_->num_tiles(place));
    keys_->truncate(place, 0);
  }
  if (!hit) return fill(place, operation.num_tokens, kNullBlock);
  const auto num_aliased = static_cast<std::int32_t>(hit->blocks.size());
  for (std::int32_t i = 0; i < num_aliased; ++i) {
    hold_mapped(place, i, group_of(hit->blocks[static_cast<std::size_t>(i)]));
    table_.add_holder(table_.groups(place)[static_cast<std::size_t>(i)], -1);
  }
  note_aliases(place, num_aliased);
  if (hit->takes_source) {
    hold_mapped(place, num_aliased, group_of(hit->copy_from[0]));
    take_from_others(place, num_aliased);
  }
  fill(place, operation.num_tokens, continues && !hit->copy_from.empty() ? hit->copy_from[0] : kNullBlock);
  if (!hit->copy_from.empty()) {
    const BlockId own = block_of(table_.groups(place)[static_cast<std::size_t>(num_aliased)]);
    if (own != hit->copy_from[0]) changes.copies.push_back({hit->copy_from[0], own});
  }
}

/// `group` at the next index of the place, held.
void VAttentionKvManager::hold_mapped(std::int32_t place, std::int32_t index, std::int32_t group) {
  keep_mappings_within_limit(kMostRunsAdded);
  table_.map(place, index, group);
  table_.hold(place, index + 1, index + 1);
}

/// A forked sequence gets a place.
std::int32_t VAttentionKvManager::move_in(SequenceId sequence) {
  const std::int32_t list = place_of_.at(sequence), place = place_like(list), count = table_.held(list);
  const std::int64_t num_tokens = occupant(list).num_tokens;
  place_of_.erase(sequence);
  begin_sequence(place, sequence);
  if (keys_) keys_->truncate(place, 0);
  for (std::int32_t i = 0; i < count; ++i) hold_mapped(place, i, table_.groups(list)[static_cast<std::size_t>(i)]);
  note_aliases(place, count);
  drop_shared_spare(place);
  empty_list(list);
  set_tokens(place, num_tokens);
  return place;
}

/// The groups that the sequence's next positions lie in become its own.
void VAttentionKvManager::copy_shared(std::int32_t place, KvChanges& changes) {
  const std::int32_t held = table_.held(place), first = table_.writable_from(place);
  std::vector<std::pair<std::int32_t, std::int32_t>> replaced;  // index, group
  for (std::int32_t i = first; i < held; ++i) {
    const std::int32_t shared = table_.groups(place)[static_cast<std::size_t>(i)];
    if (table_.state(shared).holders == 1) continue;
    const std::int32_t own = take_group(i > 0 ? table_.groups(place)[static_cast<std::size_t>(i - 1)] + 1 : 0);
    // Until it is mapped it must not be given out again.
    table_.add_pin(own, 1);
    changes.copies.push_back({block_of(shared), block_of(own)});
    replaced.emplace_back(i, own);
  }
  if (replaced.empty()) return;
  keep_mappings_within_limit(kMostRunsAdded * static_cast<std::int64_t>(replaced.size()));
  table_.hold(place, first, first);
  for (const auto& [index, group] : replaced) {
    table_.map(place, index, group);
    table_.add_pin(group, -1);
  }
  table_.hold(place, first, held);
}

/// Holds what num_tokens tokens need: groups that are mapped there and nobody else holds, or free ones. `continued`:
/// a pinned group that the sequence may go on writing, if it is where it lies and nobody else has it.
void VAttentionKvManager::fill(std::int32_t place, std::int64_t num_tokens, BlockId continued) {
  const std::int32_t needed = groups_of(num_tokens);
  const std::int32_t had = table_.held(place);
  table_.hold(place, had, had);  // set_tokens says what may be written
  reclaim(needed - std::max(had, table_.size(place)));
  for (std::int32_t i = had; i < needed; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (i < table_.size(place)) {
      const std::int32_t group = table_.groups(place)[at];
      PlaceTable::GroupState state = table_.state(group);
      if (block_of(group) == continued && state.pins == 1) --state.pins;
      const bool is_taken = state.is_held();
      if (!is_taken && state.mappings > 1 && table_.num_free() == 0) take_from_others(place, i);
      if (!is_taken && table_.state(group).mappings == 1) {
        table_.hold(place, i + 1, i + 1);
        continue;
      }
    }
    hold_mapped(place, i, take_group(i > 0 ? table_.groups(place)[at - 1] + 1 : 0));
  }
  drop_shared_spare(place);
  set_tokens(place, num_tokens);
}

/// What a live place has beyond its need is its own alone: sharing is of a prefix, so the first spare group decides.
void VAttentionKvManager::drop_shared_spare(std::int32_t place) {
  const std::int32_t held = table_.held(place);
  if (table_.size(place) == held) return;
  // Held: by a start of the same plan that is still to come.
  const PlaceTable::GroupState& first = table_.state(table_.groups(place)[static_cast<std::size_t>(held)]);
  if (first.mappings > 1 || first.is_held()) shrink_to(place, held);
}

void VAttentionKvManager::map_ahead() {
  int num_done = 0;
  for (const PlannedOperation& operation : operations_) {
    if (operation.num_tokens == kRelease || num_done == kMostAhead) continue;
    const std::int32_t place = place_of_.at(operation.sequence);
    const std::int64_t ahead = std::min(operation.num_tokens + kAheadTokens, options_.context_tokens);
    const std::int32_t missing = groups_of(ahead) - table_.size(place);
    if (missing <= 0 || missing > table_.num_free() || table_.num_runs() + missing > max_runs_) continue;
    for (std::int32_t i = table_.size(place); i < groups_of(ahead); ++i)
      table_.map(place, i, table_.allocate(i > 0 ? table_.groups(place)[static_cast<std::size_t>(i - 1)] + 1 : 0));
    ++num_done;
  }
}

// -- sequences and places --

void VAttentionKvManager::begin_sequence(std::int32_t place, SequenceId sequence) {
  const bool is_new = place_of_.emplace(sequence, place).second;
  QUIRE_CHECK(is_new, "sequence ", sequence, " exists");
  set_idle(place, false);
  table_.set_live(place, true);
  occupant(place).sequence = sequence;
  occupant(place).num_tokens = 0;
  occupant(place).planned_in = 0;
}

void VAttentionKvManager::set_tokens(std::int32_t place, std::int64_t num_tokens) {
  occupant(place).num_tokens = num_tokens;
  table_.hold(place, first_written(num_tokens), groups_of(num_tokens));
}

void VAttentionKvManager::note_aliases(std::int32_t place, std::int32_t num_groups) {
  occupant(place).alias_runs = table_.count_runs(place, num_groups);
  num_alias_runs_ += occupant(place).alias_runs;
}

void VAttentionKvManager::end_sequence(std::int32_t place) {
  num_alias_runs_ -= std::exchange(occupant(place).alias_runs, 0);
  place_of_.erase(occupant(place).sequence);
  if (table_.is_list(place)) return empty_list(place);
  occupant(place).num_tokens = 0;
  table_.set_live(place, false);
  // What others may write is no content to keep.
  const std::int32_t size = table_.size(place);
  std::int32_t kept = 0;
  while (kept < size && table_.state(table_.groups(place)[static_cast<std::size_t>(kept)]).writers == 0) ++kept;
  set_idle(place, true);
  shrink_to(place, kept);
}

void VAttentionKvManager::empty_list(std::int32_t list) {
  occupant(list).num_tokens = 0;
  table_.set_live(list, false);
  shrink_to(list, 0);
}

void VAttentionKvManager::fork(SequenceId parent, SequenceId child, std::int64_t num_tokens) {
  QUIRE_CHECK(operations_.empty(), "fork while a plan is open");
  const std::int32_t from = place_of(parent);
  QUIRE_CHECK(from >= 0 && parent != child, "no sequence ", parent);
  QUIRE_CHECK(num_tokens >= 0 && num_tokens <= occupant(from).num_tokens, "fork at ", num_tokens, " of ",
              occupant(from).num_tokens, " tokens");
  const std::int32_t list = table_.find_list();
  occupants_.resize(static_cast<std::size_t>(table_.num_places_and_lists()));
  begin_sequence(list, child);
  const std::int32_t count = groups_of(num_tokens);
  for (std::int32_t i = 0; i < count; ++i) {
    table_.map(list, i, table_.groups(from)[static_cast<std::size_t>(i)]);
    table_.hold(list, i + 1, i + 1);
  }
  // The child will write where ended sequences may keep content.
  for (std::int32_t i = first_written(num_tokens); i < count; ++i) take_from_others(list, i);
  set_tokens(list, num_tokens);
  note_late_maps();
  begin_plan();
}

void VAttentionKvManager::release(SequenceId sequence) {
  QUIRE_CHECK(operations_.empty(), "release while a plan is open");
  QUIRE_CHECK(place_of(sequence) >= 0, "no sequence ", sequence);
  end_sequence(place_of(sequence));
  note_late_maps();
  begin_plan();
}

void VAttentionKvManager::note_refused() {
  QUIRE_CHECK(operations_.empty(), "a refusal while a plan is open");
  while (!idle_.empty()) unmap_last(idle_.begin()->second);
  for (std::int32_t place = 0; place < table_.num_places(); ++place) shrink_to(place, table_.held(place));
  note_late_maps();
  begin_plan();
}

void VAttentionKvManager::note_late_maps() {
  const std::vector<GroupMap> maps = table_.take_maps();
  late_maps_.insert(late_maps_.end(), maps.begin(), maps.end());
}

/// Of the places without a sequence: the smallest with num_groups groups, else the largest. -1: there is none.
std::int32_t VAttentionKvManager::best_fit(std::int32_t num_groups, bool with_content) const {
  std::int32_t best = -1;
  const auto is_better = [&](std::int32_t size, std::int32_t than) {
    if ((size >= num_groups) != (than >= num_groups)) return size >= num_groups;
    return size >= num_groups ? size < than : size > than;
  };
  for (std::int32_t place = 0; place < table_.num_places(); ++place) {
    if (table_.is_live(place) || (!with_content && keys_ && keys_->num_tiles(place) > 0)) continue;
    if (best < 0 || is_better(table_.size(place), table_.size(best))) best = place;
  }
  return best;
}

/// True if the hit is all that can be found in this place, and the sequence may go on in it where it ended.
bool VAttentionKvManager::can_continue_in(std::int32_t place, const PrefixHit& hit) const {
  if (table_.is_live(place) || keys_->num_tiles(place) * kKvTileTokens != hit.num_tokens) return false;
  const auto groups = table_.groups(place);
  if (groups.size() < hit.blocks.size() + (!hit.copy_from.empty() ? 1 : 0)) return false;
  for (std::size_t i = 0; i < hit.blocks.size(); ++i)
    if (block_of(groups[i]) != hit.blocks[i]) return false;
  return hit.copy_from.empty() || block_of(groups[hit.blocks.size()]) == hit.copy_from[0];
}

std::int32_t VAttentionKvManager::choose_place(std::int32_t num_groups, const PrefixHit* hit) const {
  if (hit && can_continue_in(hit->place, *hit)) return hit->place;
  std::int32_t place = best_fit(num_groups, false);
  if (place < 0) place = best_fit(num_groups, true);
  QUIRE_CHECK(place >= 0, "more sequences than places");
  return place;
}

/// For a forked sequence: where the most of its groups are mapped already, else the best fit.
std::int32_t VAttentionKvManager::place_like(std::int32_t list) const {
  const auto wanted = table_.groups(list);
  std::int32_t best = -1;
  std::ptrdiff_t most = 0;
  for (std::int32_t place = 0; place < table_.num_places(); ++place) {
    if (table_.is_live(place)) continue;
    const auto groups = table_.groups(place);
    const std::ptrdiff_t count =
        std::mismatch(wanted.begin(), wanted.end(), groups.begin(), groups.end()).first - wanted.begin();
    if (count <= most) continue;
    most = count;
    best = place;
  }
  return best >= 0 ? best : choose_place(table_.size(list), nullptr);
}

// -- memory --

void VAttentionKvManager::set_idle(std::int32_t place, bool idle) {
  idle_.erase({occupant(place).idle_since, place});
  if (!idle || table_.size(place) == 0) return;
  occupant(place).idle_since = next_idle_++;
  idle_.emplace(occupant(place).idle_since, place);
}

void VAttentionKvManager::unmap_last(std::int32_t place) {
  table_.unmap_last(place);
  if (table_.size(place) == 0) idle_.erase({occupant(place).idle_since, place});
  if (!keys_ || table_.is_list(place)) return;
  const auto num_left = static_cast<std::int32_t>(options_.geometry.tiles_in(table_.size(place)));
  if (num_left >= keys_->num_tiles(place)) return;
  cache_counters_.evicted_blocks += static_cast<std::uint64_t>(keys_->num_tiles(place) - num_left);
  keys_->truncate(place, num_left);
}

void VAttentionKvManager::shrink_to(std::int32_t place, std::int32_t size) {
  while (table_.size(place) > size) unmap_last(place);
}

/// Places without a sequence lose the group at `index` of `place`, and what they have behind it.
void VAttentionKvManager::take_from_others(std::int32_t place, std::int32_t index) {
  const auto at = static_cast<std::size_t>(index);
  const std::int32_t group = table_.groups(place)[at];
  if (table_.state(group).mappings == std::max(table_.state(group).holders, 1)) return;
  for (std::int32_t other = 0; other < table_.num_places(); ++other)
    if (other != place && !table_.is_live(other) && table_.size(other) > index && table_.groups(other)[at] == group)
      shrink_to(other, index);
}

/// A free group; the plan has counted it.
std::int32_t VAttentionKvManager::take_group(std::int32_t wanted) {
  if (table_.num_free() == 0) reclaim(1);
  if (table_.num_free() == 0) reclaim_spare();
  QUIRE_CHECK(table_.num_free() > 0, "the plan promised a page-group that the pool does not have");
  return table_.allocate(wanted);
}

/// Unmaps what ended sequences have left, the longest ended first, until num_free groups are free or nothing is left.
void VAttentionKvManager::reclaim(std::int32_t num_free) {
  for (auto next = idle_.begin(); next != idle_.end() && table_.num_free() < num_free;) {
    const std::int32_t place = next->second;
    ++next;  // the entry may go
    while (table_.size(place) > 0 && table_.num_free() < num_free &&
           !table_.state(table_.groups(place).back()).is_held())
      unmap_last(place);
  }
}

/// Unmaps what was mapped ahead, or what a place had that is being filled, until a group is free.
void VAttentionKvManager::reclaim_spare() {
  for (std::int32_t place = table_.num_places() - 1; place >= 0; --place)
    while (table_.num_free() == 0 && table_.is_live(place) && table_.size(place) > table_.held(place))
      unmap_last(place);
}

void VAttentionKvManager::keep_mappings_within_limit(std::int64_t num_more) {
  const std::int64_t limit = max_runs_ - num_more;
  while (table_.num_runs() > limit && !idle_.empty()) unmap_last(idle_.begin()->second);
  for (std::int32_t place = 0; place < table_.num_places() && table_.num_runs() > limit; ++place)
    if (table_.is_live(place)) shrink_to(place, table_.held(place));
}

}  // namespace quire
