#include "quire/sched/scheduler.h"

#include <algorithm>
#include <span>

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/base/checked.h"
#include "quire/sched/prefill_share.h"

namespace quire {
namespace {

std::int32_t watermark(const CoreOptions& options) {
  return options.watermark_blocks >= 0 ? options.watermark_blocks : std::max(1, options.num_blocks / 100);
}

/// Of what may be found: a prefill computes at least one token, and every one whose logits are wanted.
std::int32_t match_limit(const LiveRequest& request, const Branch& branch) {
  return std::min(branch.logits_begin, request.prefill_left(branch, 0) - 1);
}

}  // namespace

Scheduler::Scheduler(const CoreOptions& options, KvManager& kv)
    : options_(options),
      queue_policy_(*make_queue_policy(options.queue_policy)),
      victim_policy_(*make_victim_policy(options.victim_policy)),
      composition_(*parse_step_composition(options.step_composition)),
      preemption_mode_(*parse_preemption(options.preemption)),
      served_before_{queue_policy_.get()},
      max_running_rows_(std::min(options.max_rows, options.token_budget)),
      watermark_blocks_(watermark(options)),
      kv_(kv),
      queue_(served_before_) {
  QUIRE_CHECK(check_options(options).ok(), "options were not checked");
}

Scheduler::~Scheduler() = default;

LiveRequest* Scheduler::find(RequestId request) const {
  auto found = requests_.find(request);
  return found == requests_.end() ? nullptr : found->second.get();
}

std::optional<RequestState> Scheduler::find_state(RequestId request) const {
  const LiveRequest* found = find(request);
  return found ? std::optional(found->state) : std::nullopt;
}

std::optional<std::int32_t> Scheduler::num_generated(RequestId request) const {
  const LiveRequest* found = find(request);
  return found ? std::optional(found->num_generated) : std::nullopt;
}

void Scheduler::move_to(LiveRequest& request, RequestState state) {
  QUIRE_CHECK(is_legal_edge(request.state, state), "request ", request.view.request, ": ", to_string(request.state),
              " to ", to_string(state));
  if (request.state == RequestState::preempted) --num_preempted_;
  if (state == RequestState::preempted) ++num_preempted_;
  request.state = state;
}

void Scheduler::insert_running(LiveRequest* request) {
  running_.insert(std::upper_bound(running_.begin(), running_.end(), request, served_before_), request);
}

// -- requests enter and leave --

std::optional<Refusal> Scheduler::submit(CoreRequest request) {
  if (auto refusal = find_fault(request)) {
    ++counters_.refused;
    return refusal;
  }
  auto live = std::make_unique<LiveRequest>();
  const auto prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
  live->view = {request.id, next_arrival_++, request.priority, 0, prompt_tokens};
  live->submitted_at = step_;
  live->stop_tokens = std::move(request.stop_tokens);
  std::sort(live->stop_tokens.begin(), live->stop_tokens.end());
  live->stop_tokens.erase(std::unique(live->stop_tokens.begin(), live->stop_tokens.end()), live->stop_tokens.end());
  live->num_branches = num_branches(request);
  live->max_tokens = request.max_tokens.value_or(
      static_cast<std::int32_t>(tokens_that_fit(options_, kv_, prompt_tokens, live->num_branches)));
  live->min_tokens = request.min_tokens;
  live->prompt_blocks = kv_.whole_blocks(prompt_tokens);
  live->resumes_apart = options_.geometry().has_windows();
  live->largest_need = blocks_needed(kv_, prompt_tokens, live->max_tokens, live->num_branches);
  live->most_entries = entries_needed(kv_, prompt_tokens, live->max_tokens, live->num_branches);
  live->has_forked = live->num_branches == 1 && !request.beams;
  if (request.beams)
    live->search.emplace(*request.beams, BeamSearch::Limits{live->max_tokens, live->min_tokens, live->stop_tokens});
  Branch& root = *live->branches.emplace_back(std::make_unique<Branch>());
  root.tokens = std::move(request.prompt);
  root.logits_begin = request.logits_from.value_or(prompt_tokens - 1);
  root.chain.salt = std::move(request.salt);
  if (options_.num_speculative_tokens > 0 && !request.beams) root.proposer.emplace(options_.ngram);
  live->view.cached_tokens = cached_tokens(*live);
  queue_.insert(live.get());
  by_arrival_.emplace(live->view.arrival, live.get());
  requests_.emplace(request.id, std::move(live));
  ++counters_.submitted;
  counters_.prompt_tokens += static_cast<std::uint64_t>(prompt_tokens);
  return std::nullopt;
}

// -- the order of waiting requests that changes with time --

void Scheduler::age_requests() {
  for (std::int32_t i = 0; i < kMaxAgedPerStep; ++i) {
    const auto found = by_arrival_.lower_bound(next_to_age_);
    if (found == by_arrival_.end()) return;
    ++counters_.visited_requests;
    const auto age = step_ - found->second->submitted_at;
    if (age <= static_cast<std::uint64_t>(options_.ageing_steps)) return;
    set_aged(*found->second);
    next_to_age_ = found->first + 1;
  }
}

void Scheduler::set_aged(LiveRequest& request) {
  if (request.state == RequestState::running) {
    std::erase(running_, &request);
    request.is_aged = true;
    insert_running(&request);
  } else {
    queue_.erase(&request);
    request.is_aged = true;
    queue_.insert(&request);
  }
}

void Scheduler::look_up_prefixes() {
  if (!queue_policy_->reads_cached_tokens()) return;
  const auto num_visited = std::min<std::size_t>(by_arrival_.size(), kMaxLookedUp);
  std::int64_t num_blocks = 0;
  for (std::size_t i = 0; i < num_visited && num_blocks < kMaxLookedUpBlocks; ++i) {
    auto found = by_arrival_.lower_bound(next_to_look_up_);
    if (found == by_arrival_.end()) found = by_arrival_.begin();
    next_to_look_up_ = found->first + 1;
    ++counters_.visited_requests;
    LiveRequest& request = *found->second;
    if (request.state == RequestState::running) continue;
    const std::int32_t num_tokens = cached_tokens(request);
    num_blocks += ceil_div(num_tokens, options_.block_size);
    if (num_tokens == request.view.cached_tokens) continue;
    queue_.erase(&request);
    request.view.cached_tokens = num_tokens;
    queue_.insert(&request);
  }
}

/// For the queue policy; 0 if it does not look.
std::int32_t Scheduler::cached_tokens(LiveRequest& request) const {
  return queue_policy_->reads_cached_tokens() ? match(request, request.root()).num_tokens : 0;
}

// -- planning a step --

void Scheduler::plan_step(BatchPlan& plan) {
  plan.clear();
  plan.step = ++step_;
  counters_.steps = step_;
  plan.forks.swap(forks_);
  plan.dropped.swap(dropped_);
  age_requests();
  look_up_prefixes();
  make_draft();
  commit_draft(plan);
}

void Scheduler::make_draft() {
  draft_.victims.clear();
  draft_.starts_wait = false;
  while (try_draft() != nullptr) {
    if (LiveRequest* victim = choose_victim()) {
      draft_.victims.push_back(victim);
    } else {
      QUIRE_CHECK(!draft_.starts_wait, "out of blocks with exempt requests only");
      draft_.starts_wait = true;
    }
  }
  if (options_.num_speculative_tokens > 0) draft_proposals();
}

/// One attempt with the victims known so far. nullptr: done; otherwise the request that found no block.
LiveRequest* Scheduler::try_draft() {
  kv_.begin_plan();
  draft_.rows.clear();
  draft_.num_decodes = 0;
  for (const LiveRequest* victim : draft_.victims)
    for (const auto& branch : victim->branches)
      if (branch->memory) kv_.plan_release(*branch->memory);
  const bool prefills_first = composition_ == StepComposition::prefill_first;
  if (LiveRequest* is_short = prefills_first ? nullptr : draft_decodes()) return is_short;
  collect_prefills();
  const bool gate_is_open = composition_ != StepComposition::static_gate || running_.empty();
  if (draft_.victims.empty() && gate_is_open) admit_from_queue();
  if (prefills_first && draft_.prefills.empty()) return draft_decodes();
  return draft_prefills();
}

bool Scheduler::draft_row(LiveRequest* request, Branch* branch, std::int32_t num_tokens) {
  if (!kv_.plan_reserve(*branch->memory, branch->computed + num_tokens)) return false;
  draft_.rows.push_back({request, branch, *branch->memory, branch->computed, num_tokens, false});
  return true;
}

bool Scheduler::draft_start(Prefill& prefill, SequenceId sequence, std::int32_t num_tokens) {
  PrefixHit& hit = prefill.hit;
  const auto plan = [&] {
    const std::int64_t end = hit.num_tokens + num_tokens;
    return hit.num_tokens > 0 ? kv_.plan_start(sequence, hit, end) : kv_.plan_reserve(sequence, end);
  };
  bool fits = plan();
  if (!fits && !hit.copy_from.empty()) {
    hit.take_less(options_.block_size);
    fits = plan();
  }
  if (fits) draft_.rows.push_back({prefill.request, prefill.branch, sequence, hit.num_tokens, num_tokens, true});
  return fits;
}

LiveRequest* Scheduler::draft_decodes() {
  for (LiveRequest* request : running_) {
    ++counters_.visited_requests;
    if (is_victim(request)) continue;
    for (const auto& branch : request->branches)
      if (request->is_decode(*branch) && !draft_row(request, branch.get(), 1)) return request;
  }
  draft_.num_decodes = draft_.rows.size();
  return nullptr;
}

void Scheduler::collect_prefills() {
  draft_.prefills.clear();
  draft_.asking_files.clear();
  for (LiveRequest* request : running_) {
    ++counters_.visited_requests;
    if (is_victim(request)) continue;
    for (const auto& branch : request->branches)
      if (branch->memory && !request->is_decode(*branch) && request->prefill_left(*branch, branch->computed) > 0)
        draft_.prefills.push_back({request, branch.get(), {}});
    collect_starts(*request);
  }
  draft_.num_running_prefills = draft_.prefills.size();
}

/// Branches of a running request that lack memory: one without a source starts by itself, and so does one of which the
/// cache has more than its source will have. That one may find the prompt's blocks in other places than its siblings
/// have them, so there must be room for that even if the request were at its largest; an exempt one does not look.
void Scheduler::collect_starts(LiveRequest& request) {
  std::int64_t room = kv_.capacity().num_blocks - request.largest_need;
  room -= request.num_apart * request.prompt_blocks;
  for (const auto& branch : request.branches) {
    if (branch->memory) continue;
    const bool may_look =
        !request.search && !request.is_exempt() && !branch->looked_up && request.prompt_blocks <= room;
    if (branch->source && !may_look) continue;
    if (!branch->source && request.is_prefilling()) return;  // what that computes may be found
    PrefixHit hit = match(request, *branch);
    branch->looked_up = branch->source && hit.num_tokens <= branch->fork_at;
    if (branch->looked_up) continue;
    if (branch->source) room -= request.prompt_blocks;
    draft_.prefills.push_back({&request, branch.get(), std::move(hit)});
    if (!branch->source) return;
  }
}

/// Blocks that those running and not in decode have still to take.
std::int64_t Scheduler::promised_blocks() const {
  std::int64_t num_blocks = 0;
  const LiveRequest* last = nullptr;
  for (const Prefill& prefill : draft_.prefills) {
    if (prefill.request != last) num_blocks += prefill.request->blocks_to_take(kv_);
    last = prefill.request;
  }
  return num_blocks;
}

Scheduler::Need Scheduler::exempt_need_running() const {
  Need need;
  for (const LiveRequest* request : running_)
    if (request->is_exempt()) need.add(*request);
  return need;
}

bool Scheduler::can_have(const Need& need) const {
  return need.blocks <= kv_.capacity().num_blocks && need.entries <= kv_.most_entries();
}

/// Refused by the system again, it waits for others to end.
bool Scheduler::waits_for_memory(const LiveRequest& request) const {
  return request.num_refusals > 1 && request.refused_at == num_ended_;
}

std::int32_t Scheduler::rows_running() const {
  std::int32_t num_rows = 0;
  for (const LiveRequest* request : running_) num_rows += request->rows();
  return num_rows;
}

/// What the cache has of the branch's tokens.
PrefixHit Scheduler::match(const LiveRequest& request, Branch& branch) const {
  return kv_.match(branch.chain, branch.tokens, match_limit(request, branch));
}

/// True if a candidate computes the first block that the request lacks, and has not stood still since the request was
/// last passed over for it.
bool Scheduler::is_passed_over(LiveRequest& request, const PrefixHit& hit) const {
  const Branch& root = request.root();
  const auto block = static_cast<std::size_t>(hit.num_tokens / options_.block_size);
  const std::int64_t end = (static_cast<std::int64_t>(block) + 1) * options_.block_size;
  if (request.is_exempt() || request.is_aged || end > std::min(root.num_tokens() - 1, root.logits_begin)) return false;
  if (block >= root.chain.keys.size()) return false;  // no cache
  for (std::size_t i = 0; i < draft_.prefills.size(); ++i) {
    const Prefill& owner = draft_.prefills[i];
    const KeyChain& chain = owner.branch->chain;
    const bool computes_it =
        owner.begin() < end && block < chain.keys.size() && chain.keys[block] == root.chain.keys[block];
    if (!computes_it) continue;
    if (i >= draft_.num_running_prefills) return true;
    const RequestId id = owner.request->view.request;
    if (request.waited_for == id && request.waited_at == owner.branch->computed) return false;
    request.waited_for = id;
    request.waited_at = owner.branch->computed;
    return true;
  }
  return false;
}

/// True if more of its prefix is on its way from files, or is asked for now.
bool Scheduler::waits_for_files(LiveRequest& request, const PrefixHit& hit) {
  if (request.is_exempt() || request.is_aged) return false;
  const Branch& root = request.root();
  const std::int32_t limit = match_limit(request, root);
  if (kv_.is_reading(root.chain, root.tokens, limit, hit)) return true;
  if (request.has_asked_files) return false;
  if (!kv_.plan_reads(root.chain, root.tokens, limit, hit)) return false;
  draft_.asking_files.push_back(&request);
  return true;
}

void Scheduler::admit_from_queue() {
  std::int64_t free_blocks = kv_.plan_free_blocks() - promised_blocks();
  Need exempt_need = exempt_need_running();
  std::int32_t num_rows = rows_running();
  std::int32_t num_passed_over = 0;
  for (LiveRequest* request : queue_) {
    ++counters_.visited_requests;
    if (num_rows + request->rows() > max_running_rows_) return void(++counters_.short_of_rows);
    if (num_rows > 0 && waits_for_memory(*request)) return void(++counters_.short_of_blocks);
    PrefixHit hit = match(*request, request->root());
    if (waits_for_files(*request, hit) || is_passed_over(*request, hit)) {
      if (++num_passed_over > kMaxPassedOver) return;
      continue;
    }
    const std::int64_t needed = request->blocks_to_take(kv_) - hit.num_saved_blocks;
    const std::int64_t room = free_blocks - (num_rows > 0 ? watermark_blocks_ : 0);
    if (needed > room) return void(++counters_.short_of_blocks);
    if (needed + hit.num_idle_sources > room) hit.take_less(options_.block_size);
    if (request->is_exempt()) {
      exempt_need.add(*request);
      if (!can_have(exempt_need)) return void(++counters_.short_of_blocks);
    }
    free_blocks -= needed + hit.num_idle_sources;
    num_rows += request->rows();
    draft_.prefills.push_back({request, &request->root(), std::move(hit)});
  }
}

/// What each candidate computes in this step [prefills]. Those behind an aged one of the queue get what is left once it
/// has all it needs: so it starts before them.
std::vector<std::int32_t> Scheduler::share_budget(std::int32_t budget) const {
  std::vector<std::int32_t> shares;
  std::span<const std::int32_t> remaining = draft_.remaining;
  while (!remaining.empty()) {
    std::size_t count = 1;
    for (; count < remaining.size(); ++count) {
      const std::size_t last = shares.size() + count - 1;
      if (last >= draft_.num_running_prefills && draft_.prefills[last].request->is_aged) break;
    }
    for (std::int32_t share : share_prefill_budget(remaining.first(count), budget)) {
      shares.push_back(share);
      budget -= share;
    }
    remaining = remaining.subspan(count);
  }
  return shares;
}

LiveRequest* Scheduler::draft_prefills() {
  draft_.remaining.clear();
  for (const Prefill& prefill : draft_.prefills)
    draft_.remaining.push_back(prefill.request->prefill_left(*prefill.branch, prefill.begin()));
  const auto budget = options_.token_budget - static_cast<std::int32_t>(draft_.rows.size());
  const std::vector<std::int32_t> shares = share_budget(budget);
  std::uint64_t next_sequence = next_sequence_;
  for (std::size_t i = 0; i < draft_.prefills.size(); ++i) {
    if (shares[i] == 0) continue;
    Prefill& prefill = draft_.prefills[i];
    const bool fits = prefill.starts() ? draft_start(prefill, SequenceId{next_sequence++}, shares[i])
                                       : draft_row(prefill.request, prefill.branch, shares[i]);
    if (fits) continue;
    // What runs makes room by preemption; what would start with others, or with nobody left to preempt, can wait.
    const bool waits = prefill.starts() && (i >= draft_.num_running_prefills || draft_.starts_wait);
    if (!waits || draft_.rows.empty()) return prefill.request;
    if (i >= draft_.num_running_prefills) return nullptr;
    --next_sequence;
  }
  return nullptr;
}

bool Scheduler::is_victim(const LiveRequest* request) const {
  return std::find(draft_.victims.begin(), draft_.victims.end(), request) != draft_.victims.end();
}

RunningView Scheduler::running_view(const LiveRequest& request) const {
  RunningView view{request.view, request.blocks_held(kv_), request.num_generated, 0};
  for (const auto& branch : request.branches) view.num_computed += branch->computed;
  return view;
}

/// nullptr: there is none.
LiveRequest* Scheduler::choose_victim() const {
  LiveRequest* victim = nullptr;
  for (LiveRequest* request : running_)
    if (!request->is_exempt() && !is_victim(request) &&
        (!victim || victim_policy_->yields_before(running_view(*request), running_view(*victim))))
      victim = request;
  return victim;
}

// -- committing it: the only place where a step changes requests and memory --

void Scheduler::commit_draft(BatchPlan& plan) {
  for (LiveRequest* victim : draft_.victims) commit_victim(victim, plan);
  reservations_.clear();
  kv_.commit_plan(plan, reservations_);
  QUIRE_CHECK(reservations_.size() == draft_.rows.size(), "rows and reservations differ");
  for (std::size_t i = 0; i < draft_.rows.size(); ++i) {
    const DraftRow& row = draft_.rows[i];
    if (row.starts) commit_start(row);
    append_row(row, reservations_[i], plan);
  }
  for (LiveRequest* request : draft_.asking_files) request->has_asked_files = true;
  counters_.copied_blocks += plan.copies.size();
}

void Scheduler::commit_victim(LiveRequest* request, BatchPlan& plan) {
  std::vector<SequenceId> sequences;
  for (const auto& branch : request->branches)
    if (branch->memory) sequences.push_back(*branch->memory);
  const KeepEstimate estimate = kv_.estimate_keep(sequences);
  const PreemptionKind kind =
      choose_preemption(preemption_mode_, estimate, options_.copy_block_ns, options_.compute_token_ns);
  for (const auto& branch : request->branches) {
    if (branch->memory && kind == PreemptionKind::swap) kv_.plan_keep(*branch->memory, branch->chain);
  }
  plan.dropped.insert(plan.dropped.end(), sequences.begin(), sequences.end());
  QUIRE_CHECK(!request->is_exempt(), "I10: request ", request->view.request, " is preempted once too often");
  ++request->view.num_preemptions;
  set_preempted(*request,
                {request->view.request, request->view.num_preemptions, kind, estimate.num_blocks, estimate.num_tokens});
}

/// Its branches' memory has been given up, or is by the plan at hand.
void Scheduler::set_preempted(LiveRequest& request, RequestPreempted event) {
  for (const auto& branch : request.branches) {
    branch->memory.reset();
    branch->computed = 0;
    branch->tail_copies = 0;
  }
  request.choose_sources();
  request.num_apart = 0;
  std::erase(running_, &request);
  move_to(request, RequestState::preempted);
  request.view.cached_tokens = cached_tokens(request);
  queue_.insert(&request);
  ++counters_.preemptions;
  ++counters_.preemptions_by[static_cast<std::size_t>(event.kind)];
  events_.push_back(event);
}

void Scheduler::commit_start(const DraftRow& row) {
  QUIRE_CHECK(row.sequence.value == next_sequence_, "sequence ids out of order");
  ++next_sequence_;
  if (row.request->state != RequestState::running) commit_admission(row);
  if (row.branch->source) ++row.request->num_apart;
  give_memory(*row.branch, row.sequence, row.begin);
  counters_.prefix_queries += static_cast<std::uint64_t>(row.branch->num_tokens());
  counters_.prefix_hits += static_cast<std::uint64_t>(row.begin);
}

void Scheduler::commit_admission(const DraftRow& row) {
  LiveRequest* request = row.request;
  queue_.erase(request);
  if (request->state == RequestState::waiting) events_.push_back(RequestStarted{request->view.request, row.begin});
  move_to(*request, RequestState::running);
  request->has_asked_files = false;
  insert_running(request);
}

void Scheduler::append_row(const DraftRow& drafted, const KvReservation& reservation, BatchPlan& plan) {
  const LiveRequest& request = *drafted.request;
  const Branch& branch = *drafted.branch;
  PlanRow row;
  row.sequence = drafted.sequence;
  row.request = request.view.request;
  row.begin = branch.computed;
  row.num_tokens = drafted.num_tokens;
  row.token_offset = plan.num_tokens();
  row.new_blocks_offset = reservation.new_blocks_offset;
  row.num_new_blocks = reservation.num_new_blocks;
  row.place = reservation.place;
  row.logits_begin = branch.logits_begin;
  row.num_proposed = drafted.num_proposed;
  row.samples = row.end() - row.num_proposed == branch.num_tokens() && request.max_tokens > 0;
  row.is_prefill = drafted.starts || !request.is_decode(branch);
  row.ranked = request.search.has_value();
  row.branch = branch.index;
  if (row.samples) row.num_outputs = request.num_outputs();
  const auto first = branch.tokens.begin() + row.begin;
  plan.tokens.insert(plan.tokens.end(), first, first + row.num_tokens - row.num_proposed);
  const auto proposal = draft_.proposed.begin() + static_cast<std::ptrdiff_t>(drafted.proposal);
  plan.tokens.insert(plan.tokens.end(), proposal, proposal + row.num_proposed);
  plan.rows.push_back(row);
}

}  // namespace quire
