#include "quire/core/shadow_executor.h"

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/base/rng.h"

namespace quire {
namespace {

std::uint64_t tenant_number(std::string_view salt) {
  Digest digest;
  digest.add_text(salt);
  return digest.value();
}

std::uint64_t next_chain(std::uint64_t chain, std::uint64_t tenant, std::int32_t position, TokenId token) {
  Digest digest;
  digest.add(chain);
  digest.add(tenant);
  digest.add(std::uint64_t{static_cast<std::uint32_t>(position)} << 32 | static_cast<std::uint32_t>(token.value));
  return digest.value();
}

TokenId token_of(std::uint64_t fold, std::int32_t vocabulary, std::int32_t branch) {
  const std::uint64_t number = branch == 0 ? fold : random_at(fold, static_cast<std::uint64_t>(branch));
  return TokenId{static_cast<std::int32_t>(number % static_cast<std::uint64_t>(vocabulary))};
}

/// Multiples of 1/8, so that ties happen.
std::vector<Candidate> candidates_of(std::uint64_t fold, std::int32_t vocabulary, std::int32_t count) {
  std::vector<Candidate> all;
  for (std::int32_t id = 0; id < vocabulary; ++id)
    all.push_back({TokenId{id}, -static_cast<float>(random_at(fold, static_cast<std::uint64_t>(id)) % 64 + 1) / 8});
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logprob > b.logprob; });
  all.resize(std::min(all.size(), static_cast<std::size_t>(count)));
  return all;
}

std::uint64_t fold_of(std::string_view salt, const std::vector<TokenId>& tokens, std::span<const LayerGroup> groups) {
  const std::uint64_t tenant = tenant_number(salt);
  std::vector<std::uint64_t> chains;
  for (std::size_t p = 0; p < tokens.size(); ++p)
    chains.push_back(next_chain(p > 0 ? chains.back() : 0, tenant, static_cast<std::int32_t>(p), tokens[p]));
  Digest fold;
  for (const LayerGroup& group : groups) {
    const auto window = static_cast<std::size_t>(group.window);
    const std::size_t first = window == 0 || tokens.size() < window ? 0 : tokens.size() - window;
    for (std::size_t p = first; p < tokens.size(); ++p) fold.add(chains[p]);
  }
  return fold.value();
}

RowResult result_of(const PlanRow& row, std::uint64_t fold, std::int32_t vocabulary) {
  RowResult result;
  if (!row.samples) return result;
  if (row.ranked) {
    result.candidates = candidates_of(fold, vocabulary, row.num_outputs);
  } else if (row.num_outputs == 1) {
    result.token = token_of(fold, vocabulary, row.branch);
  } else {
    for (std::int32_t k = 0; k < row.num_outputs; ++k) result.candidates.push_back({token_of(fold, vocabulary, k)});
  }
  return result;
}

std::int32_t first_seen(const GroupGeometry& geometry, std::size_t group, std::int32_t position) {
  const std::int32_t window = geometry.groups()[group].window;
  return window == 0 ? 0 : std::max(0, position + 1 - window);
}

}  // namespace

TokenId shadow_token(std::string_view salt, const std::vector<TokenId>& tokens, std::int32_t vocabulary,
                     std::span<const LayerGroup> groups, std::int32_t branch) {
  return token_of(fold_of(salt, tokens, groups), vocabulary, branch);
}

std::vector<Candidate> shadow_candidates(std::string_view salt, const std::vector<TokenId>& tokens,
                                         std::int32_t vocabulary, std::span<const LayerGroup> groups,
                                         std::int32_t count) {
  return candidates_of(fold_of(salt, tokens, groups), vocabulary, count);
}

ShadowExecutor::ShadowExecutor(std::int32_t num_blocks, const GroupGeometry& geometry, std::int32_t vocabulary,
                               std::int32_t num_frames)
    : geometry_(geometry),
      block_size_(geometry.block_size()),
      vocabulary_(vocabulary),
      mirror_(geometry),
      tiers_(num_frames),
      blocks_(static_cast<std::size_t>(num_blocks) + 1, ShadowBlock(static_cast<std::size_t>(block_size_))),
      num_holders_(static_cast<std::size_t>(num_blocks) + 1, 0) {}

std::uint64_t ShadowExecutor::tenant(std::string_view salt) { return tenant_number(salt); }

std::uint64_t ShadowExecutor::tenant_of(RequestId request) const {
  const auto found = tenants_.find(request);
  return found == tenants_.end() ? tenant_number("") : found->second;
}

void ShadowExecutor::note(std::string text) {
  if (!violation_) violation_ = std::move(text);
}

StepResult ShadowExecutor::execute(const BatchPlan& plan) {
  check_offsets(plan);
  if (places_) return execute_in_places(plan);
  count_holders(plan);
  mirror_.apply(plan);
  if (violation_) {
    StepResult result;
    for (const PlanRow& row : plan.rows) result.rows.push_back(result_of(row, 0, vocabulary_));
    return result;
  }
  tiers_.start(plan.tiers, blocks_);
  if (tiers_.violation()) note(*tiers_.violation());
  for (const BlockCopy& copy : plan.copies) blocks_.at(copy.to.value) = blocks_.at(copy.from.value);
  for (const PlanRow& row : plan.rows) check_row(row);
  for (std::size_t r = 0; r < plan.rows.size(); ++r)
    for (std::size_t group = 0; group < geometry_.num_groups() && !is_refused(r); ++group)
      write_row(plan, plan.rows[r], group);
  StepResult result;
  for (std::size_t r = 0; r < plan.rows.size(); ++r)
    result.rows.push_back(is_refused(r) ? RowResult{.refused = true} : draw(plan, plan.rows[r]));
  end_step(plan, result.rows);
  result.elapsed_ns = 1000 + static_cast<std::uint64_t>(plan.num_tokens());
  return result;
}

/// B2, B7 and B1's "one row a sequence".
void ShadowExecutor::check_offsets(const BatchPlan& plan) {
  std::int32_t next_token = 0;
  std::int32_t next_block = 0;
  std::unordered_map<SequenceId, int> num_rows;
  for (const PlanRow& row : plan.rows) {
    if (row.num_tokens < 1 || row.token_offset != next_token || row.new_blocks_offset != next_block)
      note(cat("B2: step ", plan.step, ", sequence ", row.sequence, ": tokens or blocks do not follow one another"));
    if (row.num_proposed != 0 && (row.num_proposed < 0 || row.num_tokens != 1 + row.num_proposed || !row.samples ||
                                  row.is_prefill || row.ranked || row.num_outputs != 1))
      note(cat("B7: step ", plan.step, ", sequence ", row.sequence, " has ", row.num_proposed, " proposals"));
    if (++num_rows[row.sequence] > 1) note(cat("B1: step ", plan.step, " has two rows of sequence ", row.sequence));
    next_token += row.num_tokens;
    next_block += row.num_new_blocks * static_cast<std::int32_t>(geometry_.num_groups());
  }
  if (next_token != plan.num_tokens() || next_block != static_cast<std::int32_t>(plan.new_blocks.size()))
    note(cat("B2: step ", plan.step, " has tokens or blocks that belong to no row"));
}

/// Keeps num_holders_ up to date; the mirror still has the tables from before the plan.
void ShadowExecutor::count_holders(const BatchPlan& plan) {
  using Tables = std::vector<std::vector<BlockId>>;
  std::unordered_map<SequenceId, Tables> forked;
  const auto tables = [&](SequenceId sequence) {
    const auto found = forked.find(sequence);
    if (found != forked.end()) return found->second;
    Tables all;
    for (std::size_t group = 0; group < geometry_.num_groups(); ++group) {
      const auto table = mirror_.table(sequence, group);
      all.emplace_back(table.begin(), table.end());
    }
    return all;
  };
  for (const SequenceFork& fork : plan.forks) {
    Tables shared = tables(fork.parent);
    for (std::vector<BlockId>& table : shared) {
      table.resize(static_cast<std::size_t>(geometry_.num_entries(fork.num_tokens)));
      for (BlockId block : table) ++num_holders_.at(block.value);
    }
    end_of_[fork.child] = fork.num_tokens;
    forked.emplace(fork.child, std::move(shared));
  }
  for (SequenceId sequence : plan.dropped) {
    for (const std::vector<BlockId>& table : tables(sequence))
      for (BlockId block : table) --num_holders_.at(block.value);
    end_of_.erase(sequence);
  }
  for (const TableEdit& edit : plan.table_edits) {
    const Tables edited = tables(edit.sequence);
    --num_holders_.at(edited.at(static_cast<std::size_t>(edit.group)).at(static_cast<std::size_t>(edit.index)).value);
    ++num_holders_.at(edit.block.value);
  }
  for (const PlanRow& row : plan.rows) count_new_blocks(plan, row, tables(row.sequence)[0].empty());
}

/// B4 and B6.
void ShadowExecutor::count_new_blocks(const BatchPlan& plan, const PlanRow& row, bool is_new) {
  auto block = plan.new_blocks.begin() + row.new_blocks_offset;
  for (std::size_t group = 0; group < geometry_.num_groups(); ++group) {
    for (std::int32_t i = 0; i < row.num_new_blocks; ++i, ++block) {
      if (*block == kNullBlock) {
        if (!is_new || i >= geometry_.first_needed(group, row.begin))
          note(cat("B6: step ", plan.step, " gives sequence ", row.sequence, " no block ", i, " in group ", group));
        continue;
      }
      // A new sequence may share the full blocks before its begin.
      const bool may_share = is_new && i < row.begin / block_size_;
      if (++num_holders_.at(block->value) != 1 && !may_share)
        note(cat("B4: step ", plan.step, " gives out block ", *block, ", which is in use"));
    }
  }
  if (is_new) end_of_[row.sequence] = row.begin;
}

/// B1 and B3.
void ShadowExecutor::check_row(const PlanRow& row) {
  if (row.begin != end_of_[row.sequence])
    note(cat("B1: sequence ", row.sequence, " goes on at ", row.begin, ", it ended at ", end_of_[row.sequence]));
  end_of_[row.sequence] = row.end();
  for (std::size_t group = 0; group < geometry_.num_groups(); ++group) {
    const auto num_entries = static_cast<std::int64_t>(mirror_.table(row.sequence, group).size());
    if (num_entries != geometry_.num_entries(row.end()))
      note(cat("B3: sequence ", row.sequence, " has ", num_entries, " blocks for ", row.end(), " tokens"));
  }
}

BlockId ShadowExecutor::block_at(const PlanRow& row, std::size_t group, std::int32_t position) const {
  const std::span<const BlockId> table = mirror_.table(row.sequence, group);
  const auto index = static_cast<std::size_t>(position / block_size_);
  return index < table.size() ? table[index] : kNullBlock;
}

ShadowSlot* ShadowExecutor::slot_at(const PlanRow& row, std::size_t group, std::int32_t position) {
  const BlockId block = block_at(row, group, position);
  if (block == kNullBlock) return nullptr;
  return &blocks_.at(block.value)[static_cast<std::size_t>(position % block_size_)];
}

void ShadowExecutor::write_row(const BatchPlan& plan, const PlanRow& row, std::size_t group) {
  const std::uint64_t tenant = tenant_of(row.request);
  for (std::int32_t p = row.begin; p < row.end(); ++p) {
    ShadowSlot* slot = slot_at(row, group, p);
    // The first group is full and is written first: it has the slot before, whatever this group's window.
    const ShadowSlot* before = p > 0 ? slot_at(row, 0, p - 1) : nullptr;
    if (!slot || (p > 0 && !before))
      return note(cat("sequence ", row.sequence, " has no block to write at position ", p, " of group ", group));
    const TokenId token = plan.tokens[static_cast<std::size_t>(row.token_offset + p - row.begin)];
    if (slot->written_in_step == plan.step) note(cat("B4: step ", plan.step, " writes one slot twice"));
    if (num_holders_.at(block_at(row, group, p).value) != 1)
      note(cat("B4: sequence ", row.sequence, " writes into a shared block at position ", p));
    *slot = {tenant, group, p, token, next_chain(before ? before->chain : 0, tenant, p, token), plan.step};
  }
}

/// Reads all that the row's positions see.
void ShadowExecutor::read_row(const PlanRow& row, std::size_t group) {
  for (std::int32_t p = first_seen(geometry_, group, row.begin); p < row.end(); ++p) {
    const ShadowSlot* slot = slot_at(row, group, p);
    if (!slot) return note(cat("request ", row.request, " has no block at position ", p, " of group ", group));
    if (slot->tenant != tenant_of(row.request) || slot->position != p || slot->group != group)
      note(cat("request ", row.request, " reads at position ", p, " of group ", group, " what ",
               slot->tenant == tenant_of(row.request) ? "its" : "another", " tenant wrote for ", slot->position,
               " of group ", slot->group));
  }
}

/// What the position sees, in all groups.
std::uint64_t ShadowExecutor::fold_at(const PlanRow& row, std::int32_t position) {
  Digest fold;
  for (std::size_t group = 0; group < geometry_.num_groups(); ++group) {
    for (std::int32_t p = first_seen(geometry_, group, position); p <= position; ++p) {
      const ShadowSlot* slot = slot_at(row, group, p);
      fold.add(slot ? slot->chain : 0);
    }
  }
  return fold.value();
}

RowResult ShadowExecutor::draw(const BatchPlan& plan, const PlanRow& row) {
  for (std::size_t group = 0; group < geometry_.num_groups(); ++group) read_row(row, group);
  RowResult result = result_of(row, fold_at(row, row.end() - 1 - row.num_proposed), vocabulary_);
  TokenId drawn = result.token;
  for (std::int32_t p = row.end() - row.num_proposed; p < row.end(); ++p) {
    if (drawn != plan.tokens[static_cast<std::size_t>(row.token_offset + p - row.begin)]) break;
    drawn = token_of(fold_at(row, p), vocabulary_, row.branch);
    result.more.push_back(drawn);
  }
  return result;
}

/// Steps 8 and 9: those entries hold nothing any more, in the manager's books neither.
void ShadowExecutor::end_step(const BatchPlan& plan, const std::vector<RowResult>& results) {
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    const std::int32_t end = end_of_[row.sequence] = end_that_counts(row, results[r]);
    for (std::size_t group = 0; group < geometry_.num_groups(); ++group) {
      const auto table = mirror_.table(row.sequence, group);
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(table.size()); ++i) {
        const BlockId block = table[static_cast<std::size_t>(i)];
        const bool is_kept = i >= geometry_.first_kept(group, end) && i < geometry_.num_entries(end);
        if (!is_kept && block != kNullBlock) --num_holders_.at(block.value);
      }
    }
  }
  mirror_.end_step(plan, results);
}

// -- vAttention --

void ShadowExecutor::use_places(const VAttentionOptions& options) {
  places_.emplace(options.geometry, options.num_groups, options.num_places);
}

StepResult ShadowExecutor::execute_in_places(const BatchPlan& plan) {
  for (const SequenceFork& fork : plan.forks) end_of_[fork.child] = fork.num_tokens;
  for (SequenceId sequence : plan.dropped) end_of_.erase(sequence);
  if (auto error = places_->apply(plan)) note(*error);
  StepResult result;
  for (const PlanRow& row : plan.rows) check_place(row);
  for (std::size_t r = 0; r < plan.rows.size(); ++r)
    if (!is_refused(r)) write_in_place(plan, plan.rows[r]);
  for (std::size_t r = 0; r < plan.rows.size(); ++r)
    result.rows.push_back(is_refused(r) ? RowResult{.refused = true}
                                        : result_of(plan.rows[r], fold_place(plan.rows[r]), vocabulary_));
  result.elapsed_ns = 1000 + static_cast<std::uint64_t>(plan.num_tokens());
  return result;
}

/// B1, and B3 but for the mapped groups, which writing finds.
void ShadowExecutor::check_place(const PlanRow& row) {
  const auto [end, is_new] = end_of_.try_emplace(row.sequence, row.begin);
  if (row.begin != end->second)
    note(cat("B1: sequence ", row.sequence, " goes on at ", row.begin, ", it ended at ", end->second));
  end->second = row.end();
  const auto [owner, is_first] = owner_of_.try_emplace(row.place, row.sequence);
  if (owner->second != row.sequence && end_of_.count(owner->second) > 0)
    note(cat("B3: sequences ", owner->second, " and ", row.sequence, " have one place, ", row.place));
  owner->second = row.sequence;
}

void ShadowExecutor::write_in_place(const BatchPlan& plan, const PlanRow& row) {
  const std::uint64_t tenant = tenant_of(row.request);
  for (std::int32_t p = row.begin; p < row.end(); ++p) {
    const std::vector<ShadowSlot*> slots = places_->values_at(row.place, p);
    if (slots.empty()) return note(cat("B3: position ", p, " of sequence ", row.sequence, " is not mapped"));
    const std::uint64_t before = p > 0 ? places_->values_at(row.place, p - 1).front()->chain : 0;
    const TokenId token = plan.tokens[static_cast<std::size_t>(row.token_offset + p - row.begin)];
    if (places_->sharers_at(row.place, p) != 1)
      note(cat("B4: sequence ", row.sequence, " writes into shared memory at position ", p));
    for (ShadowSlot* slot : slots) {
      if (slot->written_in_step == plan.step) note(cat("B4: step ", plan.step, " writes one slot twice"));
      *slot = {tenant, 0, p, token, next_chain(before, tenant, p, token), plan.step};
    }
  }
}

std::uint64_t ShadowExecutor::fold_place(const PlanRow& row) {
  Digest fold;
  for (std::int32_t p = 0; p < row.end(); ++p) {
    const std::vector<ShadowSlot*> slots = places_->values_at(row.place, p);
    if (slots.empty()) return 0;
    for (const ShadowSlot* slot : slots)
      if (slot->tenant != tenant_of(row.request) || slot->position != p || slot->chain != slots.front()->chain)
        note(cat("request ", row.request, " reads at position ", p, " what ",
                 slot->tenant == tenant_of(row.request) ? "its" : "another", " tenant wrote for ", slot->position));
    fold.add(slots.front()->chain);
  }
  return fold.value();
}

}  // namespace quire
