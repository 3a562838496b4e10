#include "quire/core/shadow_executor.h"

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/base/checked.h"
#include "quire/base/hash.h"
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

std::uint64_t fold_of(std::string_view salt, const std::vector<TokenId>& tokens) {
  const std::uint64_t tenant = tenant_number(salt);
  Digest fold;
  std::uint64_t chain = 0;
  for (std::size_t p = 0; p < tokens.size(); ++p) {
    chain = next_chain(chain, tenant, static_cast<std::int32_t>(p), tokens[p]);
    fold.add(chain);
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

}  // namespace

TokenId shadow_token(std::string_view salt, const std::vector<TokenId>& tokens, std::int32_t vocabulary,
                     std::int32_t branch) {
  return token_of(fold_of(salt, tokens), vocabulary, branch);
}

std::vector<Candidate> shadow_candidates(std::string_view salt, const std::vector<TokenId>& tokens,
                                         std::int32_t vocabulary, std::int32_t count) {
  return candidates_of(fold_of(salt, tokens), vocabulary, count);
}

ShadowExecutor::ShadowExecutor(std::int32_t num_blocks, std::int32_t block_size, std::int32_t vocabulary,
                               std::int32_t num_frames)
    : block_size_(block_size),
      vocabulary_(vocabulary),
      mirror_(block_size),
      tiers_(num_frames),
      blocks_(static_cast<std::size_t>(num_blocks) + 1, ShadowBlock(static_cast<std::size_t>(block_size))),
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
  if (violation_) {
    StepResult result;
    for (const PlanRow& row : plan.rows) result.rows.push_back(result_of(row, 0, vocabulary_));
    return result;
  }
  tiers_.start(plan.tiers, blocks_);
  if (tiers_.violation()) note(*tiers_.violation());
  for (const BlockCopy& copy : plan.copies) blocks_.at(copy.to.value) = blocks_.at(copy.from.value);
  for (const PlanRow& row : plan.rows) check_row(row);
  for (const PlanRow& row : plan.rows) write_row(plan, row);
  StepResult result;
  for (const PlanRow& row : plan.rows) {
    result.rows.push_back(result_of(row, fold_row(row), vocabulary_));
  }
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
    next_block += row.num_new_blocks;
  }
  if (next_token != plan.num_tokens() || next_block != static_cast<std::int32_t>(plan.new_blocks.size()))
    note(cat("B2: step ", plan.step, " has tokens or blocks that belong to no row"));
}

/// Keeps num_holders_ up to date; the mirror still has the tables from before the plan.
void ShadowExecutor::count_holders(const BatchPlan& plan) {
  std::unordered_map<SequenceId, std::vector<BlockId>> forked;
  const auto table = [&](SequenceId sequence) {
    const auto found = forked.find(sequence);
    return found == forked.end() ? mirror_.table(sequence) : std::span<const BlockId>(found->second);
  };
  for (const SequenceFork& fork : plan.forks) {
    const auto shared = table(fork.parent).first(static_cast<std::size_t>(ceil_div(fork.num_tokens, block_size_)));
    for (BlockId block : shared) ++num_holders_.at(block.value);
    end_of_[fork.child] = fork.num_tokens;
    forked.emplace(fork.child, std::vector<BlockId>(shared.begin(), shared.end()));
  }
  for (SequenceId sequence : plan.dropped) {
    for (BlockId block : table(sequence)) --num_holders_.at(block.value);
    end_of_.erase(sequence);
  }
  for (const TableEdit& edit : plan.table_edits) {
    --num_holders_.at(table(edit.sequence)[static_cast<std::size_t>(edit.index)].value);
    ++num_holders_.at(edit.block.value);
  }
  for (const PlanRow& row : plan.rows) {
    // A new sequence may share the full blocks before its begin.
    const bool is_new = table(row.sequence).empty();
    for (std::int32_t i = 0; i < row.num_new_blocks; ++i) {
      const BlockId block = plan.new_blocks[static_cast<std::size_t>(row.new_blocks_offset + i)];
      const bool may_share = is_new && i < row.begin / block_size_;
      if (block == kNullBlock || (++num_holders_.at(block.value) != 1 && !may_share))
        note(cat("B4: step ", plan.step, " gives out block ", block, ", which is in use"));
    }
    if (is_new) end_of_[row.sequence] = row.begin;
  }
}

/// B1 and B3.
void ShadowExecutor::check_row(const PlanRow& row) {
  if (row.begin != end_of_[row.sequence])
    note(cat("B1: sequence ", row.sequence, " goes on at ", row.begin, ", it ended at ", end_of_[row.sequence]));
  end_of_[row.sequence] = row.end();
  const auto num_blocks = static_cast<std::int64_t>(mirror_.table(row.sequence).size());
  if (num_blocks != ceil_div(row.end(), block_size_))
    note(cat("B3: sequence ", row.sequence, " has ", num_blocks, " blocks for ", row.end(), " tokens"));
}

ShadowSlot* ShadowExecutor::slot_at(const PlanRow& row, std::int32_t position) {
  const std::span<const BlockId> table = mirror_.table(row.sequence);
  const auto index = static_cast<std::size_t>(position / block_size_);
  if (index >= table.size()) return nullptr;
  return &blocks_.at(table[index].value)[static_cast<std::size_t>(position % block_size_)];
}

void ShadowExecutor::write_row(const BatchPlan& plan, const PlanRow& row) {
  const std::uint64_t tenant = tenant_of(row.request);
  for (std::int32_t p = row.begin; p < row.end(); ++p) {
    ShadowSlot* slot = slot_at(row, p);
    const ShadowSlot* before = p > 0 ? slot_at(row, p - 1) : nullptr;
    if (!slot || (p > 0 && !before)) return;  // noted by check_row
    const TokenId token = plan.tokens[static_cast<std::size_t>(row.token_offset + p - row.begin)];
    if (slot->written_in_step == plan.step) note(cat("B4: step ", plan.step, " writes one slot twice"));
    if (num_holders_.at(mirror_.table(row.sequence)[static_cast<std::size_t>(p / block_size_)].value) != 1)
      note(cat("B4: sequence ", row.sequence, " writes into a shared block at position ", p));
    *slot = {tenant, p, token, next_chain(before ? before->chain : 0, tenant, p, token), plan.step};
  }
}

std::uint64_t ShadowExecutor::fold_row(const PlanRow& row) {
  Digest fold;
  for (std::int32_t p = 0; p < row.end(); ++p) {
    const ShadowSlot* slot = slot_at(row, p);
    if (!slot) return 0;
    if (slot->tenant != tenant_of(row.request) || slot->position != p)
      note(cat("request ", row.request, " reads at position ", p, " what ",
               slot->tenant == tenant_of(row.request) ? "its" : "another", " tenant wrote for ", slot->position));
    fold.add(slot->chain);
  }
  return fold.value();
}

}  // namespace quire
