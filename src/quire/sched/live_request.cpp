#include "quire/sched/live_request.h"

#include <algorithm>

namespace quire {
namespace {

std::int32_t common_prefix(const Branch& a, const Branch& b, std::int32_t at_least) {
  const auto first =
      std::mismatch(a.tokens.begin() + at_least, a.tokens.end(), b.tokens.begin() + at_least, b.tokens.end());
  return static_cast<std::int32_t>(first.first - a.tokens.begin());
}

}  // namespace

std::int32_t num_branches(const CoreRequest& request) {
  return request.beams ? request.beams->width : request.num_branches;
}

std::int64_t blocks_needed(const KvManager& kv, std::int64_t prompt_tokens, std::int64_t max_tokens,
                           std::int64_t num_branches) {
  if (max_tokens == 0) num_branches = 1;
  const std::int64_t shared = kv.whole_blocks(prompt_tokens);
  return shared + num_branches * (kv.blocks_for(prompt_tokens + max_tokens) - shared);
}

std::int64_t entries_needed(const KvManager& kv, std::int64_t prompt_tokens, std::int64_t max_tokens,
                            std::int64_t num_branches) {
  return (max_tokens == 0 ? 1 : num_branches) * kv.blocks_for(prompt_tokens + max_tokens);
}

std::int64_t tokens_that_fit(const CoreOptions& options, const KvManager& kv, std::int64_t prompt_tokens,
                             std::int64_t num_branches) {
  std::int64_t fits = 0;
  std::int64_t too_many = std::min<std::int64_t>(options.context_tokens, options.pool_tokens()) - prompt_tokens + 1;
  while (fits + 1 < too_many) {
    const std::int64_t middle = fits + (too_many - fits) / 2;
    const bool has_room = blocks_needed(kv, prompt_tokens, middle, num_branches) <= kv.capacity().num_blocks &&
                          entries_needed(kv, prompt_tokens, middle, num_branches) <= kv.most_entries();
    (has_room ? fits : too_many) = middle;
  }
  return fits;
}

bool LiveRequest::is_stop_token(TokenId token) const {
  return std::binary_search(stop_tokens.begin(), stop_tokens.end(), token);
}

std::int32_t LiveRequest::rows() const {
  return has_forked && !search ? static_cast<std::int32_t>(branches.size()) : num_branches;
}

std::int32_t LiveRequest::num_outputs() const {
  if (search) return search->num_candidates();
  return has_forked ? 1 : num_branches;
}

std::int64_t LiveRequest::blocks_to_take(const KvManager& kv) const {
  std::int64_t num_blocks = 0;
  for (const auto& branch : branches) {
    const std::int64_t num_held = branch->memory ? kv.blocks_held(branch->computed) : kv.whole_blocks(branch->fork_at);
    num_blocks += kv.blocks_for(branch->num_tokens()) - num_held + branch->tail_copies;
  }
  // The first fork: all branches but one copy what the prompt leaves unfilled.
  if (!has_forked && max_tokens > 0)
    num_blocks += (num_branches - 1) * (kv.blocks_for(view.prompt_tokens) - prompt_blocks);
  return num_blocks;
}

std::int64_t LiveRequest::blocks_held(const KvManager& kv) const {
  std::int64_t num_blocks = 0;
  std::int64_t num_holders = 0;
  for (const auto& branch : branches) {
    num_blocks += kv.blocks_held(branch->computed);
    num_holders += branch->memory ? 1 : 0;
  }
  return num_holders < 2 ? num_blocks : num_blocks - (num_holders - 1) * prompt_blocks;
}

bool LiveRequest::is_decode(const Branch& branch) const {
  const auto at_its_end = [this](const Branch& b) { return b.memory && b.remaining() == 1 && num_generated_by(b) > 0; };
  if (!at_its_end(branch)) return false;
  return !search || std::all_of(branches.begin(), branches.end(), [&](const auto& b) { return at_its_end(*b); });
}

std::int32_t LiveRequest::prefill_left(const Branch& branch, std::int32_t begin) const {
  return branch.num_tokens() - begin - (search && has_forked ? 1 : 0);
}

void LiveRequest::choose_sources() {
  for (std::size_t i = 0; i < branches.size(); ++i) {
    Branch& branch = *branches[i];
    branch.source = nullptr;
    branch.fork_at = 0;
    branch.looked_up = false;
    if (branch.memory || resumes_apart) continue;
    for (std::size_t j = 0; j < branches.size(); ++j) {
      const Branch& other = *branches[j];
      if (j == i || (j > i && !other.memory)) continue;
      const std::int32_t common = std::min(common_prefix(branch, other, view.prompt_tokens), branch.num_tokens() - 1);
      if (branch.source && common <= branch.fork_at) continue;
      branch.source = &other;
      branch.fork_at = common;
    }
  }
}

bool LiveRequest::is_prefilling() const {
  return std::any_of(branches.begin(), branches.end(),
                     [](const auto& branch) { return branch->memory && branch->remaining() > 1; });
}

}  // namespace quire
