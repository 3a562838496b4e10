// What a request must satisfy to be accepted at all.

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/sched/scheduler.h"

namespace quire {
namespace {

Refusal bad_request(std::string message) {
  return {.reason = Refusal::Reason::bad_request, .message = std::move(message)};
}

std::optional<Refusal> find_bad_search(const CoreRequest& request) {
  if (auto fault = find_fault(*request.beams)) return bad_request(std::move(*fault));
  if (request.num_branches != 1)
    return bad_request(cat("num_branches is ", request.num_branches, "; a beam search has 1"));
  if (request.max_tokens == 0) return bad_request("max_tokens is 0; a beam search needs at least 1");
  return std::nullopt;
}

std::optional<Refusal> find_bad_field(const CoreRequest& request) {
  if (request.prompt.empty()) return bad_request("the prompt is empty; at least one token is needed");
  for (std::size_t i = 0; i < request.prompt.size(); ++i)
    if (request.prompt[i].value < 0)
      return bad_request(cat("prompt token ", i, " is ", request.prompt[i], "; token ids start at 0"));
  if (request.max_tokens && *request.max_tokens < 0)
    return bad_request(cat("max_tokens is ", *request.max_tokens, "; at least 0 is needed"));
  if (request.min_tokens < 0) return bad_request(cat("min_tokens is ", request.min_tokens, "; at least 0 is needed"));
  const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  if (request.logits_from && (*request.logits_from < 0 || *request.logits_from >= prompt_tokens))
    return bad_request(
        cat("logits_from is ", *request.logits_from, "; the prompt has positions 0 to ", prompt_tokens - 1));
  if (request.num_branches < 1 || request.num_branches > kMaxBranches)
    return bad_request(cat("num_branches is ", request.num_branches, "; 1 to ", kMaxBranches, " branches are allowed"));
  return request.beams ? find_bad_search(request) : std::nullopt;
}

std::string needed_text(const CoreRequest& request, std::int64_t needed) {
  const std::string prompt = cat("the prompt has ", request.prompt.size(), " tokens");
  if (request.max_tokens)
    return cat(prompt, " and max_tokens is ", *request.max_tokens, ": ", needed, " tokens are needed");
  return cat(prompt, ": with one token to generate ", needed, " tokens are needed");
}

}  // namespace

std::optional<Refusal> Scheduler::find_fault(const CoreRequest& request) const {
  if (auto refusal = find_bad_field(request)) return refusal;
  Refusal refusal;
  refusal.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  refusal.max_tokens = request.max_tokens.value_or(1);
  refusal.needed_tokens = refusal.prompt_tokens + refusal.max_tokens;
  if (find(request.id)) {
    refusal.reason = Refusal::Reason::duplicate_id;
    refusal.message = cat("a request with id ", request.id, " is being served");
    return refusal;
  }
  if (refusal.needed_tokens > options_.context_tokens) {
    refusal.reason = Refusal::Reason::exceeds_context;
    refusal.limit_tokens = options_.context_tokens;
    refusal.message =
        cat(needed_text(request, refusal.needed_tokens), ", but the context is ", refusal.limit_tokens, " tokens");
    return refusal;
  }
  return find_shortage(request, refusal);
}

std::optional<Refusal> Scheduler::find_shortage(const CoreRequest& request, Refusal refusal) const {
  const std::int32_t branches = num_branches(request);
  if (branches > max_running_rows_)
    return bad_request(cat("the request has ", branches, " branches, but a step has at most ", max_running_rows_,
                           " rows (max_rows is ", options_.max_rows, ", token_budget ", options_.token_budget, ")"));
  if (branches > 1 && !kv_.can_fork())
    return bad_request(cat("the request has ", branches, " branches, but this KV memory cannot be shared"));
  const std::int64_t num_blocks = blocks_needed(kv_, refusal.prompt_tokens, refusal.max_tokens, branches);
  const std::int64_t num_entries = entries_needed(kv_, refusal.prompt_tokens, refusal.max_tokens, branches);
  const bool fits_pool = refusal.needed_tokens <= options_.pool_tokens() && num_blocks <= kv_.capacity().num_blocks;
  if (fits_pool && num_entries <= kv_.most_entries()) return std::nullopt;
  refusal.reason = Refusal::Reason::exceeds_pool;
  refusal.limit_tokens = options_.pool_tokens();
  const std::string pool =
      cat("the whole KV pool holds ", refusal.limit_tokens, " tokens (", options_.pool_text(), ")");
  if (fits_pool) {
    refusal.message =
        cat(needed_text(request, refusal.needed_tokens), " by each of ", branches, " branches, ", num_entries,
            " mappings in all, but there are ", kv_.most_entries(), " (max_mappings is ", options_.max_mappings, ")");
  } else if (branches == 1) {
    refusal.message = cat(needed_text(request, refusal.needed_tokens), ", but ", pool);
  } else {
    refusal.message = cat(needed_text(request, refusal.needed_tokens), " by each of ", branches, " branches, ",
                          num_blocks, " blocks in all, but ", pool);
  }
  return refusal;
}

}  // namespace quire
