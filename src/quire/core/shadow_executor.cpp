#include "quire/core/shadow_executor.h"

#include <algorithm>

#include "quire/base/cat.h"

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

TokenId token_of(std::uint64_t fold, std::int32_t vocabulary) {
  return TokenId{static_cast<std::int32_t>(fold % static_cast<std::uint64_t>(vocabulary))};
}

}  // namespace

TokenId shadow_token(std::string_view salt, const std::vector<TokenId>& tokens, std::int32_t vocabulary,
                     std::span<const LayerGroup> groups) {
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
  return token_of(fold.value(), vocabulary);
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
  count_holders(plan);
  mirror_.apply(plan);
  if (violation_) return {std::vector<RowResult>(plan.rows.size(), {TokenId{0}, false}), 0};
  tiers_.start(plan.tiers, blocks_);
  if (tiers_.violation()) note(*tiers_.violation());
  for (const BlockCopy& copy : plan.copies) blocks_.at(copy.to.value) = blocks_.at(copy.from.value);
  for (const PlanRow& row : plan.rows) check_row(row);
  for (const PlanRow& row : plan.rows)
    for (std::size_t group = 0; group < geometry_.num_groups(); ++group) write_row(plan, row, group);
  StepResult result;
  for (const PlanRow& row : plan.rows) {
    Digest fold;
    for (std::size_t group = 0; group < geometry_.num_groups(); ++group) fold_row(row, group, fold);
    result.rows.push_back({row.samples ? token_of(fold.value(), vocabulary_) : TokenId{-1}, false});
  }
  forget_passed(plan);
  result.elapsed_ns = 1000 + static_cast<std::uint64_t>(plan.num_tokens());
  return result;
}

/// B2 and B1's "one row a sequence".
void ShadowExecutor::check_offsets(const BatchPlan& plan) {
  std::int32_t next_token = 0;
  std::int32_t next_block = 0;
  std::unordered_map<SequenceId, int> num_rows;
  for (const PlanRow& row : plan.rows) {
    if (row.num_tokens < 1 || row.token_offset != next_token || row.new_blocks_offset != next_block)
      note(cat("B2: step ", plan.step, ", sequence ", row.sequence, ": tokens or blocks do not follow one another"));
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

/// Reads all that the row's positions see, and folds what the last one sees.
void ShadowExecutor::fold_row(const PlanRow& row, std::size_t group, Digest& fold) {
  const std::int32_t window = geometry_.groups()[group].window;
  const auto first_seen = [window](std::int32_t p) { return window == 0 ? 0 : std::max(0, p + 1 - window); };
  for (std::int32_t p = first_seen(row.begin); p < row.end(); ++p) {
    const ShadowSlot* slot = slot_at(row, group, p);
    if (!slot) return note(cat("request ", row.request, " has no block at position ", p, " of group ", group));
    if (slot->tenant != tenant_of(row.request) || slot->position != p || slot->group != group)
      note(cat("request ", row.request, " reads at position ", p, " of group ", group, " what ",
               slot->tenant == tenant_of(row.request) ? "its" : "another", " tenant wrote for ", slot->position,
               " of group ", slot->group));
    if (p >= first_seen(row.end() - 1)) fold.add(slot->chain);
  }
}

/// Step 8: those entries hold nothing any more, in the manager's books neither.
void ShadowExecutor::forget_passed(const BatchPlan& plan) {
  if (!geometry_.has_windows()) return;
  for (const PlanRow& row : plan.rows) {
    for (std::size_t group = 0; group < geometry_.num_groups(); ++group) {
      const auto table = mirror_.table(row.sequence, group);
      const std::int64_t first_kept = geometry_.first_kept(group, row.end());
      for (std::int64_t i = 0; i < first_kept; ++i)
        if (const BlockId block = table[static_cast<std::size_t>(i)]; block != kNullBlock)
          --num_holders_.at(block.value);
    }
  }
  mirror_.forget_passed(plan);
}

}  // namespace quire
