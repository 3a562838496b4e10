// Scheduler: what a computed step does to branches. They take their tokens, fork, take memory over and give it up, end.

#include <algorithm>

#include "quire/base/check.h"
#include "quire/sched/scheduler.h"

namespace quire {
namespace {

std::span<const TokenId> generated_by(const LiveRequest& request, const Branch& branch) {
  return std::span(branch.tokens).subspan(static_cast<std::size_t>(request.view.prompt_tokens));
}

}  // namespace

void Scheduler::commit(const BatchPlan& plan, std::span<const RowResult> results) {
  QUIRE_CHECK(results.size() == plan.rows.size(), results.size(), " results for ", plan.rows.size(), " rows");
  searching_.clear();
  refused_.clear();
  for (std::size_t i = 0; i < plan.rows.size(); ++i) commit_row(plan.rows[i], results[i]);
  refuse_those();
  for (RequestId id : searching_)
    if (std::find(refused_.begin(), refused_.end(), id) == refused_.end()) advance_beams(*find(id));
}

void Scheduler::commit_row(const PlanRow& row, const RowResult& result) {
  LiveRequest* request = find(row.request);
  QUIRE_CHECK(request && request->state == RequestState::running, "a row of request ", row.request);
  const auto found = std::find_if(request->branches.begin(), request->branches.end(),
                                  [&](const auto& branch) { return branch->memory == row.sequence; });
  QUIRE_CHECK(found != request->branches.end() && (*found)->computed == row.begin, "a row of request ", row.request,
              " that is not the planned one");
  Branch& branch = **found;
  if (result.refused) {
    if (refused_.empty() || refused_.back() != row.request) refused_.push_back(row.request);
    return;
  }
  if (result.failed) return fail_row(*request, branch);
  if (row.num_proposed > 0) take_proposals(*request, branch, row, result);
  const std::int32_t end = end_that_counts(row, result);
  counters_.computed_tokens += static_cast<std::uint64_t>(row.num_tokens);
  counters_.recomputed_tokens +=
      static_cast<std::uint64_t>(std::max(0, std::min(end, branch.ever_computed) - row.begin));
  branch.computed = end;
  branch.tail_copies = 0;
  if (end > branch.ever_computed) request->num_refusals = request->num_refused_alone = 0;
  branch.ever_computed = std::max(branch.ever_computed, end);
  branch.logits_begin = std::max(branch.logits_begin, end);
  kv_.publish(*branch.memory, branch.chain, std::span(branch.tokens).first(static_cast<std::size_t>(end)));
  fork_those_due(*request);
  if (row.samples)
    commit_tokens(*request, branch, result);
  else if (branch.remaining() == 0)
    end_request(*request, FinishReason::length);  // max_tokens is 0: the prompt's logits were all that was wanted
}

void Scheduler::fail_row(LiveRequest& request, const Branch& branch) {
  if (!request.has_forked) return end_request(request, FinishReason::failed);
  if (!request.search)
    return end_sample(
        request, branch,
        {request.view.request, branch.index, FinishReason::failed, TokenId{-1}, request.num_generated_by(branch)});
  remove(request, branch);
  note_searching(request);
}

// -- refusals --

/// The other rows of these requests have been committed.
void Scheduler::refuse_those() {
  if (refused_.empty()) return;
  std::sort(refused_.begin(), refused_.end());
  refused_.erase(std::unique(refused_.begin(), refused_.end()), refused_.end());
  const bool is_alone = running_.size() == refused_.size();
  for (RequestId id : refused_) refuse(*find(id), is_alone);
  kv_.note_refused();
}

void Scheduler::refuse(LiveRequest& request, bool is_alone) {
  ++request.num_refusals;
  if (is_alone && ++request.num_refused_alone > kMaxRefusals) return end_request(request, FinishReason::failed);
  request.refused_at = num_ended_;
  for (const auto& branch : request.branches) {
    // A search goes on with all its beams at once: what the others have offered is computed again, its logits too.
    if (request.search) branch->logits_begin = std::min(branch->logits_begin, branch->num_tokens() - 1);
    branch->candidates.clear();
    if (!branch->memory) continue;
    kv_.release(*branch->memory);
    dropped_.push_back(*branch->memory);
  }
  set_preempted(request, {request.view.request, request.view.num_preemptions, PreemptionKind::recompute_refused, 0, 0});
}

// -- samples --

void Scheduler::commit_tokens(LiveRequest& request, Branch& branch, const RowResult& result) {
  if (request.search) {
    branch.candidates = result.candidates;
    return note_searching(request);
  }
  if (!request.has_forked) return fork_samples(request, result.candidates);
  const TokenId last = result.more.empty() ? result.token : result.more.back();
  if (const auto end = take_token(request, branch, last)) end_sample(request, branch, *end);
}

/// The prompt's last row has been computed: a branch for each token.
void Scheduler::fork_samples(LiveRequest& request, std::span<const Candidate> tokens) {
  QUIRE_CHECK(tokens.size() == static_cast<std::size_t>(request.num_branches), tokens.size(), " tokens for ",
              request.num_branches, " branches");
  request.has_forked = true;
  const Branch& first = request.root();
  for (std::int32_t k = 1; k < request.num_branches; ++k) {
    request.branches.push_back(fork_branch(first));
    request.branches.back()->index = k;
  }
  std::vector<std::pair<const Branch*, BranchFinished>> ended;
  for (std::size_t k = 0; k < tokens.size(); ++k) {
    Branch& branch = *request.branches[k];
    if (const auto end = take_token(request, branch, tokens[k].token)) ended.emplace_back(&branch, *end);
  }
  for (const auto& [branch, end] : ended) end_sample(request, *branch, end);
}

/// A value if that was its end.
std::optional<BranchFinished> Scheduler::take_token(LiveRequest& request, Branch& branch, TokenId token) {
  QUIRE_CHECK(token.value >= 0, "sampled token ", token);
  const RequestId id = request.view.request;
  const std::int32_t num_generated = request.num_generated_by(branch);
  if (request.is_stop_token(token) && num_generated >= request.min_tokens)
    return BranchFinished{id, branch.index, FinishReason::stop_token, token, num_generated};
  branch.tokens.push_back(token);
  ++request.num_generated;
  ++counters_.generated_tokens;
  events_.push_back(TokenSampled{id, token, num_generated, branch.index});
  if (num_generated + 1 < request.max_tokens) return std::nullopt;
  return BranchFinished{id, branch.index, FinishReason::length, TokenId{-1}, num_generated + 1};
}

void Scheduler::end_sample(LiveRequest& request, const Branch& branch, const BranchFinished& end) {
  events_.push_back(end);
  remove(request, branch);
  if (request.branches.empty()) forget(request, end.reason);
}

// -- beams --

void Scheduler::note_searching(const LiveRequest& request) {
  if (searching_.empty() || searching_.back() != request.view.request) searching_.push_back(request.view.request);
}

/// All live beams that did not fail have said how they might go on.
void Scheduler::advance_beams(LiveRequest& request) {
  std::vector<LiveBeam> beams;
  for (const auto& branch : request.branches)
    beams.push_back({generated_by(request, *branch), branch->sum, branch->candidates});
  const std::vector<BeamChild> children = request.search->advance(beams);
  if (children.empty()) return end_search(request);
  request.has_forked = true;
  replace_beams(request, children);
}

/// Dead beams give up their memory first. The last child of a beam takes its table, the others begin with a fork of it.
void Scheduler::replace_beams(LiveRequest& request, const std::vector<BeamChild>& children) {
  std::vector<std::unique_ptr<Branch>>& beams = request.branches;
  std::vector<std::int32_t> children_left(beams.size(), 0);
  for (const BeamChild& child : children) ++children_left[static_cast<std::size_t>(child.parent)];
  for (std::size_t b = 0; b < beams.size(); ++b)
    if (children_left[b] == 0) give_up_memory(*beams[b]);

  BeamsAdvanced advanced{request.view.request, {}};
  std::vector<std::unique_ptr<Branch>> next;
  for (const BeamChild& child : children) {
    const auto b = static_cast<std::size_t>(child.parent);
    advanced.steps.push_back({beams[b]->index, child.token});
    next.push_back(--children_left[b] == 0 ? std::move(beams[b]) : fork_branch(*beams[b]));
    next.back()->tokens.push_back(child.token);
    next.back()->sum = child.sum;
    next.back()->candidates.clear();
  }
  for (std::size_t i = 0; i < next.size(); ++i) next[i]->index = static_cast<std::int32_t>(i);
  beams = std::move(next);
  events_.push_back(std::move(advanced));
}

std::unique_ptr<Branch> Scheduler::fork_branch(const Branch& parent) {
  auto child = std::make_unique<Branch>(parent);
  fork_memory(*child, *parent.memory, parent.computed);
  return child;
}

void Scheduler::end_search(LiveRequest& request) {
  const RequestId id = request.view.request;
  const std::vector<Hypothesis>& finished = request.search->finished();
  for (std::int32_t k = 0; k < request.search->params().num_returned; ++k) {
    if (static_cast<std::size_t>(k) >= finished.size()) {
      events_.push_back(BranchFinished{id, k, FinishReason::failed, TokenId{-1}, 0});
      continue;
    }
    const Hypothesis& best = finished[static_cast<std::size_t>(k)];
    const auto num_tokens = static_cast<std::int32_t>(best.tokens.size());
    events_.push_back(BeamReturned{id, k, best.tokens, best.score});
    events_.push_back(BranchFinished{id, k, best.reason, best.stop_token, num_tokens});
    request.num_generated += num_tokens;
    counters_.generated_tokens += static_cast<std::uint64_t>(num_tokens);
  }
  forget(request, finished.empty() ? FinishReason::failed : finished.front().reason);
}

void Scheduler::end_beam(LiveRequest& request, const Branch& beam, FinishReason reason) {
  const std::int32_t length = request.num_generated_by(beam);
  if (reason != FinishReason::failed) request.search->finish({generated_by(request, beam), beam.sum, {}}, reason);
  remove(request, beam);
  const auto best = request.branches.empty() ? std::nullopt : std::optional(request.root().sum);
  if (request.search->is_over(best, length)) end_search(request);
}

// -- ends --

bool Scheduler::end_branch(RequestId id, std::int32_t index, FinishReason reason) {
  LiveRequest* request = find(id);
  if (!request || !request->has_forked) return false;
  const auto found = std::find_if(request->branches.begin(), request->branches.end(),
                                  [&](const auto& branch) { return branch->index == index; });
  if (found == request->branches.end()) return false;
  const Branch& branch = **found;
  if (request->search)
    end_beam(*request, branch, reason);
  else
    end_sample(*request, branch, {id, index, reason, TokenId{-1}, request->num_generated_by(branch)});
  return true;
}

bool Scheduler::end(RequestId id, FinishReason reason) {
  LiveRequest* request = find(id);
  if (request) end_request(*request, reason);
  return request != nullptr;
}

void Scheduler::end_request(LiveRequest& request, FinishReason reason) {
  const RequestId id = request.view.request;
  if (request.has_forked && !request.search) {
    for (const auto& branch : request.branches)
      events_.push_back(BranchFinished{id, branch->index, reason, TokenId{-1}, request.num_generated_by(*branch)});
  } else {
    const std::int32_t count = request.search ? request.search->params().num_returned : request.num_branches;
    for (std::int32_t k = 0; k < count; ++k) events_.push_back(BranchFinished{id, k, reason, TokenId{-1}, 0});
  }
  forget(request, reason);
}

/// The request's last event, and the end of what it holds.
void Scheduler::forget(LiveRequest& request, FinishReason reason) {
  for (const auto& branch : request.branches) give_up_memory(*branch);
  if (request.state == RequestState::running)
    std::erase(running_, &request);
  else
    queue_.erase(&request);
  by_arrival_.erase(request.view.arrival);
  move_to(request, RequestState::finished);
  ++counters_.finished[static_cast<std::size_t>(reason)];
  const RequestId id = request.view.request;
  events_.push_back(RequestFinished{id, reason, request.num_generated});
  requests_.erase(id);
}

// -- memory of branches --

void Scheduler::fork_memory(Branch& child, SequenceId parent, std::int32_t num_tokens) {
  const SequenceId sequence{next_sequence_++};
  kv_.fork(parent, sequence, num_tokens);
  forks_.push_back({parent, sequence, num_tokens});
  give_memory(child, sequence, num_tokens);
  child.tail_copies = kv_.blocks_for(num_tokens) - kv_.whole_blocks(num_tokens);
}

/// What tiers kept for the branch while it was preempted has served.
void Scheduler::give_memory(Branch& branch, SequenceId sequence, std::int32_t computed) {
  branch.memory = sequence;
  branch.computed = computed;
  branch.source = nullptr;
  branch.fork_at = 0;
  kv_.forget_kept(branch.chain);
}

void Scheduler::give_up_memory(Branch& branch) {
  kv_.forget_kept(branch.chain);
  if (!branch.memory) return;
  ++num_ended_;
  kv_.release(*branch.memory);
  dropped_.push_back(*branch.memory);
  branch.memory.reset();
}

/// Those that have no memory yet and had this one as their source get another.
void Scheduler::remove(LiveRequest& request, const Branch& branch) {
  const auto found = std::find_if(request.branches.begin(), request.branches.end(),
                                  [&](const auto& other) { return other.get() == &branch; });
  give_up_memory(**found);
  request.branches.erase(found);
  request.choose_sources();
  fork_those_due(request);
}

/// A source that has gone past the block in which the branch would begin may have published it: then the branch begins
/// at that block, and computes the few tokens in it again.
void Scheduler::fork_those_due(LiveRequest& request) {
  for (const auto& branch : request.branches) {
    const Branch* source = branch->source;
    if (!source || !source->memory || source->computed < branch->fork_at) continue;
    const std::int32_t size = options_.block_size;
    const bool is_past = branch->fork_at / size < source->computed / size;
    const std::int32_t num_tokens = is_past ? branch->fork_at / size * size : branch->fork_at;
    fork_memory(*branch, *source->memory, num_tokens);
  }
}

}  // namespace quire
