#include "quire/kv/vattention_checker_test.h"

#include <algorithm>
#include <set>

namespace quire {

VAttentionChecker::VAttentionChecker(const VAttentionOptions& options, bool with_cache)
    : options_(options),
      with_cache_(with_cache),
      manager_(options, with_cache ? std::optional(CacheIdentity{}) : std::nullopt),
      memory_(options.geometry, options.num_groups, options.num_places) {}

void VAttentionChecker::note(std::string text) {
  if (!difference_) difference_ = std::move(text);
}

std::vector<SequenceId> VAttentionChecker::sequences() const {
  std::vector<SequenceId> ids;
  for (const auto& [id, sequence] : model_) ids.push_back(id);
  return ids;
}

// -- the model: groups are counted, places do not exist --

int VAttentionChecker::num_holders(const Model& model, int group) {
  int count = 0;
  for (const auto& [id, sequence] : model)
    count += static_cast<int>(std::count(sequence.groups.begin(), sequence.groups.end(), group));
  return count;
}

std::int64_t VAttentionChecker::num_free(const Model& model) const {
  std::set<int> held;
  for (const auto& [id, sequence] : model) held.insert(sequence.groups.begin(), sequence.groups.end());
  return options_.num_groups - static_cast<std::int64_t>(held.size());
}

bool VAttentionChecker::reserve_in_model(Model& model, SequenceId id, const std::vector<TokenId>& more) {
  Sequence next = model.count(id) ? model[id] : Sequence{};
  const auto had = static_cast<std::int64_t>(next.tokens.size());
  const auto needed = options_.geometry.groups_for(had + static_cast<std::int64_t>(more.size()));
  std::int64_t num_new = needed - static_cast<std::int64_t>(next.groups.size());
  for (auto i = static_cast<std::size_t>(options_.geometry.first_written(had)); !more.empty() && i < next.groups.size();
       ++i) {
    if (num_holders(model, next.groups[i]) == 1) continue;
    next.groups[i] = next_group_++;
    ++num_new;
  }
  if (num_new > num_free(model)) return false;
  while (static_cast<std::int64_t>(next.groups.size()) < needed) next.groups.push_back(next_group_++);
  next.tokens.insert(next.tokens.end(), more.begin(), more.end());
  model[id] = std::move(next);
  return true;
}

// -- operations --

std::vector<TokenId> VAttentionChecker::tokens_to_append(const Operation& operation) {
  std::vector<TokenId> tokens;
  const auto like = history_.find(operation.like);
  if (!has(operation.sequence) && like != history_.end()) {
    const auto count = std::min<std::int64_t>(
        {operation.num_like, static_cast<std::int64_t>(like->second.size()), operation.num_more});
    tokens.assign(like->second.begin(), like->second.begin() + count);
  }
  while (static_cast<std::int64_t>(tokens.size()) < operation.num_more) tokens.push_back(TokenId{next_token_++});
  return tokens;
}

bool VAttentionChecker::plan_in_manager(const Operation& operation, const std::vector<TokenId>& tokens,
                                        std::int64_t& begin) {
  const auto total = manager_.reserved_tokens(operation.sequence) + operation.num_more;
  begin = total - operation.num_more;
  if (!with_cache_ || has(operation.sequence) || tokens.empty())
    return manager_.plan_reserve(operation.sequence, total);
  KeyChain chain;
  PrefixHit hit = manager_.match(chain, tokens, total - 1);
  if (hit.num_tokens == 0) return manager_.plan_reserve(operation.sequence, total);
  const std::int64_t needed = manager_.blocks_for(total) - hit.num_saved_blocks;
  if (needed > manager_.plan_free_blocks()) return false;
  begin = hit.num_tokens;
  bool fits = manager_.plan_start(operation.sequence, hit, total);
  if (!fits) {
    hit.take_less(kKvTileTokens);
    fits = manager_.plan_start(operation.sequence, hit, total);
  }
  // What the plan has released before is no longer held, and the hit takes it from the free groups. One start before
  // may have taken over what this one wanted to share, or the last mappings.
  if (!fits && !plan_has_releases_ && num_starts_ == 0) note("a start that was said to fit does not");
  ++num_starts_;
  num_cached_ += fits ? hit.num_tokens : 0;
  return fits;
}

void VAttentionChecker::run_plan(const std::vector<Operation>& operations, bool commit) {
  Model planned = model_;
  std::set<SequenceId> touched;
  std::map<SequenceId, std::int64_t> begins;
  manager_.begin_plan();
  plan_has_releases_ = false;
  num_starts_ = 0;
  // Releases first: starts ask for that.
  for (const bool releases : {true, false}) {
    for (const Operation& operation : operations) {
      if ((operation.num_more < 0) != releases || touched.count(operation.sequence)) continue;
      if (releases) {
        if (!has(operation.sequence)) continue;
        touched.insert(operation.sequence);
        plan_has_releases_ = true;
        manager_.plan_release(operation.sequence);
        planned.erase(operation.sequence);
        continue;
      }
      touched.insert(operation.sequence);
      const std::vector<TokenId> tokens = tokens_to_append(operation);
      std::int64_t begin = 0;
      const bool fits = plan_in_manager(operation, tokens, begin);
      if (with_cache_) {
        if (fits)
          planned[operation.sequence].tokens.insert(planned[operation.sequence].tokens.end(), tokens.begin(),
                                                    tokens.end());
      } else {
        if (fits != reserve_in_model(planned, operation.sequence, tokens))
          note(cat("plan_reserve of ", operation.num_more, " more for sequence ", operation.sequence, " gave ", fits));
        if (manager_.plan_free_blocks() != num_free(planned))
          note(cat("planned free: ", manager_.plan_free_blocks(), ", model ", num_free(planned)));
      }
      if (fits) begins[operation.sequence] = begin;
    }
  }
  if (!commit) {
    manager_.begin_plan();
    return compare();
  }
  const std::int64_t expected_free = manager_.plan_free_blocks();
  changes_ = {};
  std::vector<KvReservation> reservations;
  manager_.commit_plan(changes_, reservations);
  if (manager_.capacity().free_blocks < expected_free)
    note(cat("free: ", manager_.capacity().free_blocks, ", planned were ", expected_free));
  model_ = planned;
  if (auto error = memory_.apply(changes_)) note(*error);
  if (reservations.size() != begins.size()) note("reservations and operations differ in number");
  for (const KvReservation& row : reservations) {
    if (row.place != manager_.place_of(row.sequence)) note("a row has another place than its sequence");
    write(row.sequence, begins.at(row.sequence));
  }
  compare();
  if (!with_cache_) return;
  for (const KvReservation& row : reservations) {
    Sequence& sequence = model_.at(row.sequence);
    manager_.publish(row.sequence, sequence.chain, sequence.tokens);
  }
  compare();
}

void VAttentionChecker::write(SequenceId id, std::int64_t begin) {
  const std::vector<TokenId>& tokens = model_.at(id).tokens;
  history_[id] = tokens;
  const std::int32_t place = manager_.place_of(id);
  for (std::int64_t p = begin; p < static_cast<std::int64_t>(tokens.size()); ++p) {
    const std::vector<Value*> values = memory_.values_at(place, p);
    if (values.empty()) return note(cat("position ", p, " of sequence ", id, " is not mapped"));
    if (memory_.sharers_at(place, p) != 1) note(cat("V4: sequence ", id, " writes shared memory at position ", p));
    for (Value* value : values) *value = {tokens[static_cast<std::size_t>(p)], p};
  }
}

void VAttentionChecker::fork(SequenceId parent, SequenceId child, std::int64_t num_tokens) {
  manager_.fork(parent, child, num_tokens);
  Sequence& to = model_[child] = model_.at(parent);
  to.tokens.resize(static_cast<std::size_t>(num_tokens));
  to.groups.resize(std::min(to.groups.size(), static_cast<std::size_t>(options_.geometry.groups_for(num_tokens))));
  to.chain = {};
  history_[child] = to.tokens;
  run_plan({});  // tells memory
}

void VAttentionChecker::release(SequenceId sequence) {
  manager_.release(sequence);
  model_.erase(sequence);
  run_plan({});
}

void VAttentionChecker::compare() {
  if (auto violation = manager_.validate()) note(*violation);
  if (manager_.num_sequences() != static_cast<std::int32_t>(model_.size())) note("another number of sequences");
  if (!with_cache_ && manager_.capacity().free_blocks != num_free(model_))
    note(cat("free: ", manager_.capacity().free_blocks, ", model ", num_free(model_)));
  if (manager_.group_usage().mappings > options_.max_mappings) note("more mappings than allowed");
  for (const auto& [id, sequence] : model_) {
    if (manager_.reserved_tokens(id) != static_cast<std::int64_t>(sequence.tokens.size()))
      note(cat("sequence ", id, " has ", manager_.reserved_tokens(id), " tokens"));
    const std::int32_t place = manager_.place_of(id);
    // A forked one has no addresses yet.
    for (std::size_t p = 0; p < sequence.tokens.size() && !manager_.table().is_list(place); ++p) {
      const auto values = memory_.values_at(manager_.place_of(id), static_cast<std::int64_t>(p));
      bool is_right = !values.empty();
      for (const Value* value : values)
        is_right = is_right && value->token == sequence.tokens[p] && value->position == static_cast<std::int64_t>(p);
      if (!is_right) return note(cat("sequence ", id, " reads something else at position ", p));
    }
  }
}

}  // namespace quire
