// Scheduler: proposals, which rows in decode get behind their token, and what became of them.

#include <algorithm>

#include "quire/base/check.h"
#include "quire/base/checked.h"
#include "quire/sched/scheduler.h"

namespace quire {

/// Rows get equal shares; what one has no use for goes to those behind it.
void Scheduler::draft_proposals() {
  draft_.proposed.clear();
  std::int32_t room = std::min(options_.token_budget, kMaxTokensWithProposals);
  for (const DraftRow& row : draft_.rows) room -= row.num_tokens;
  for (std::size_t i = 0; i < draft_.num_decodes && room > 0; ++i) {
    const auto rows_left = static_cast<std::int64_t>(draft_.num_decodes - i);
    room -= propose(draft_.rows[i], static_cast<std::int32_t>(ceil_div(room, rows_left)));
  }
}

/// How many tokens were proposed for the row.
std::int32_t Scheduler::propose(DraftRow& row, std::int32_t at_most) {
  Branch& branch = *row.branch;
  if (!branch.proposer) return 0;
  const std::int32_t left = row.request->max_tokens - row.request->num_generated_by(branch) - 1;
  const std::span<const TokenId> found =
      branch.proposer->propose(branch.tokens, std::min({at_most, options_.num_speculative_tokens, left}));
  const auto end =
      std::find_if(found.begin(), found.end(), [&](TokenId token) { return row.request->is_stop_token(token); });
  const auto count = static_cast<std::int32_t>(end - found.begin());
  if (count == 0 || !kv_.plan_extend(row.sequence, row.begin + row.num_tokens + count)) return 0;
  row.num_tokens += count;
  row.num_proposed = count;
  row.proposal = draft_.proposed.size();
  draft_.proposed.insert(draft_.proposed.end(), found.begin(), end);
  return count;
}

/// Those that came true become the branch's, the others are given back.
void Scheduler::take_proposals(LiveRequest& request, Branch& branch, const PlanRow& row, const RowResult& result) {
  const auto num_accepted = static_cast<std::int32_t>(result.more.size());
  QUIRE_CHECK(num_accepted <= row.num_proposed, num_accepted, " of ", row.num_proposed, " proposals came true");
  for (std::int32_t i = 0; i < num_accepted; ++i) {
    const TokenId drawn = i == 0 ? result.token : result.more[static_cast<std::size_t>(i) - 1];
    const auto end = take_token(request, branch, drawn);
    QUIRE_CHECK(!end, "a proposal was the end of request ", row.request);
  }
  if (num_accepted < row.num_proposed) kv_.truncate(row.sequence, end_that_counts(row, result));
  counters_.proposed_tokens += static_cast<std::uint64_t>(row.num_proposed);
  counters_.accepted_tokens += static_cast<std::uint64_t>(num_accepted);
}

}  // namespace quire
