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

}  // namespace

Scheduler::Scheduler(const CoreOptions& options, KvManager& kv)
    : options_(options),
      queue_policy_(*make_queue_policy(options.queue_policy)),
      victim_policy_(*make_victim_policy(options.victim_policy)),
      composition_(*parse_step_composition(options.step_composition)),
      preemption_mode_(*parse_preemption(options.preemption)),
      served_before_{queue_policy_.get()},
      max_running_(std::min(options.max_rows, options.token_budget)),
      watermark_blocks_(watermark(options)),
      kv_(kv),
      queue_(served_before_) {
  QUIRE_CHECK(check_options(options).ok(), "options were not checked");
}

Scheduler::~Scheduler() = default;

bool Scheduler::Request::is_stop_token(TokenId token) const {
  return std::binary_search(stop_tokens.begin(), stop_tokens.end(), token);
}

Scheduler::Request* Scheduler::find(RequestId request) const {
  auto found = requests_.find(request);
  return found == requests_.end() ? nullptr : found->second.get();
}

std::optional<RequestState> Scheduler::find_state(RequestId request) const {
  const Request* found = find(request);
  return found ? std::optional(found->state) : std::nullopt;
}

std::optional<std::int32_t> Scheduler::num_generated(RequestId request) const {
  const Request* found = find(request);
  return found ? std::optional(found->num_generated()) : std::nullopt;
}

void Scheduler::move_to(Request& request, RequestState state) {
  QUIRE_CHECK(is_legal_edge(request.state, state), "request ", request.view.request, ": ", to_string(request.state),
              " to ", to_string(state));
  if (request.state == RequestState::preempted) --num_preempted_;
  if (state == RequestState::preempted) ++num_preempted_;
  request.state = state;
}

void Scheduler::insert_running(Request* request) {
  running_.insert(std::upper_bound(running_.begin(), running_.end(), request, served_before_), request);
}

// -- requests enter and leave --

std::optional<Refusal> Scheduler::submit(CoreRequest request) {
  if (auto refusal = find_fault(request)) {
    ++counters_.refused;
    return refusal;
  }
  auto live = std::make_unique<Request>();
  const auto prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
  const auto room = static_cast<std::int32_t>(std::min<std::int64_t>(options_.context_tokens, options_.pool_tokens()));
  live->view = {request.id, next_arrival_++, request.priority, 0, prompt_tokens};
  live->submitted_at = step_;
  live->tokens = std::move(request.prompt);
  live->stop_tokens = std::move(request.stop_tokens);
  std::sort(live->stop_tokens.begin(), live->stop_tokens.end());
  live->max_tokens = request.max_tokens.value_or(room - prompt_tokens);
  live->min_tokens = request.min_tokens;
  live->logits_begin = request.logits_from.value_or(prompt_tokens - 1);
  live->chain.salt = std::move(request.salt);
  live->view.cached_tokens = cached_tokens(*live);
  queue_.insert(live.get());
  by_arrival_.emplace(live->view.arrival, live.get());
  requests_.emplace(request.id, std::move(live));
  ++counters_.submitted;
  counters_.prompt_tokens += static_cast<std::uint64_t>(prompt_tokens);
  return std::nullopt;
}

std::optional<std::int32_t> Scheduler::end(RequestId id, FinishReason reason) {
  Request* request = find(id);
  if (!request) return std::nullopt;
  const std::int32_t num_generated = request->num_generated();
  if (request->state == RequestState::running) {
    kv_.release(request->sequence);
    dropped_.push_back(request->sequence);
    std::erase(running_, request);
  } else {
    queue_.erase(request);
  }
  kv_.forget_kept(request->chain);
  by_arrival_.erase(request->view.arrival);
  move_to(*request, RequestState::finished);
  ++counters_.finished[static_cast<std::size_t>(reason)];
  requests_.erase(id);
  return num_generated;
}

RowOutcome Scheduler::commit_row(const PlanRow& row, TokenId token) {
  Request* request = find(row.request);
  QUIRE_CHECK(request && request->state == RequestState::running && request->sequence == row.sequence &&
                  request->computed == row.begin,
              "a row of request ", row.request, " that is not the planned one");
  counters_.computed_tokens += static_cast<std::uint64_t>(row.num_tokens);
  counters_.recomputed_tokens +=
      static_cast<std::uint64_t>(std::max(0, std::min(row.end(), request->ever_computed) - row.begin));
  request->computed = row.end();
  request->ever_computed = std::max(request->ever_computed, row.end());
  request->logits_begin = std::max(request->logits_begin, row.end());
  kv_.publish(request->sequence, request->chain, std::span(request->tokens).first(static_cast<std::size_t>(row.end())));

  RowOutcome outcome;
  if (row.samples) {
    QUIRE_CHECK(token.value >= 0, "sampled token ", token);
    if (request->is_stop_token(token) && request->num_generated() >= request->min_tokens) {
      outcome.finished = FinishReason::stop_token;
      outcome.stop_token = token;
    } else {
      request->tokens.push_back(token);
      outcome.emitted = token;
      ++counters_.generated_tokens;
      if (request->num_generated() == request->max_tokens) outcome.finished = FinishReason::length;
    }
  } else if (request->remaining() == 0) {
    outcome.finished = FinishReason::length;  // max_tokens is 0: the prompt's logits were all that was wanted
  }
  outcome.num_generated = request->num_generated();
  if (outcome.finished) end(row.request, *outcome.finished);
  return outcome;
}

// -- the order of waiting requests that changes with time --

void Scheduler::age_requests() {
  for (std::int32_t i = 0; i < kMaxAgedPerStep; ++i) {
    const auto found = by_arrival_.lower_bound(next_to_age_);
    if (found == by_arrival_.end()) return;
    const auto age = step_ - found->second->submitted_at;
    if (age <= static_cast<std::uint64_t>(options_.ageing_steps)) return;
    set_aged(*found->second);
    next_to_age_ = found->first + 1;
  }
}

void Scheduler::set_aged(Request& request) {
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
    Request& request = *found->second;
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
std::int32_t Scheduler::cached_tokens(Request& request) const {
  return queue_policy_->reads_cached_tokens() ? match(request).num_tokens : 0;
}

// -- planning a step --

void Scheduler::plan_step(BatchPlan& plan) {
  plan.clear();
  plan.step = ++step_;
  counters_.steps = step_;
  plan.dropped.swap(dropped_);
  age_requests();
  look_up_prefixes();
  make_draft();
  commit_draft(plan);
}

void Scheduler::make_draft() {
  draft_.victims.clear();
  while (try_draft() != nullptr) draft_.victims.push_back(choose_victim());
}

/// One attempt with the victims known so far. nullptr: done; otherwise the request that found no block.
Scheduler::Request* Scheduler::try_draft() {
  kv_.begin_plan();
  draft_.rows.clear();
  for (const Request* victim : draft_.victims) kv_.plan_release(victim->sequence);
  const bool prefills_first = composition_ == StepComposition::prefill_first;
  if (Request* is_short = prefills_first ? nullptr : draft_decodes()) return is_short;
  collect_prefills();
  const bool gate_is_open = composition_ != StepComposition::static_gate || running_.empty();
  if (draft_.victims.empty() && gate_is_open) admit_from_queue();
  if (prefills_first && draft_.prefills.empty()) return draft_decodes();
  return draft_prefills();
}

bool Scheduler::draft_row(Request* request, std::int32_t num_tokens) {
  if (!kv_.plan_reserve(request->sequence, request->computed + num_tokens)) return false;
  draft_.rows.push_back({request, request->sequence, request->computed, num_tokens, false});
  return true;
}

bool Scheduler::draft_start(Request* request, SequenceId sequence, PrefixHit& hit, std::int32_t num_tokens) {
  const std::int64_t end = hit.num_tokens + num_tokens;
  if (!(hit.num_tokens > 0 ? kv_.plan_start(sequence, hit, end) : kv_.plan_reserve(sequence, end))) return false;
  draft_.rows.push_back({request, sequence, hit.num_tokens, num_tokens, true});
  return true;
}

Scheduler::Request* Scheduler::draft_decodes() {
  for (Request* request : running_)
    if (request->is_decode() && !is_victim(request) && !draft_row(request, 1)) return request;
  return nullptr;
}

void Scheduler::collect_prefills() {
  draft_.prefills.clear();
  draft_.hits.clear();
  draft_.asking_files.clear();
  for (Request* request : running_)
    if (!request->is_decode() && !is_victim(request)) draft_.prefills.push_back(request);
  draft_.num_running_prefills = draft_.prefills.size();
}

/// Blocks that the running prefills among the candidates have still to take.
std::int64_t Scheduler::promised_blocks() const {
  std::int64_t num_blocks = 0;
  for (const Request* request : draft_.prefills)
    num_blocks += kv_.blocks_for(request->num_tokens()) - kv_.blocks_held(request->computed);
  return num_blocks;
}

std::int64_t Scheduler::exempt_blocks_running() const {
  std::int64_t num_blocks = 0;
  for (const Request* request : running_)
    if (request->is_exempt()) num_blocks += kv_.blocks_for(request->largest_need());
  return num_blocks;
}

/// What the cache has of the request's tokens: at least one is computed, and every one whose logits are wanted.
PrefixHit Scheduler::match(Request& request) const {
  return kv_.match(request.chain, request.tokens, std::min(request.num_tokens() - 1, request.logits_begin));
}

/// True if a candidate computes the first block that the request lacks, and has not stood still since the request was
/// last passed over for it.
bool Scheduler::is_passed_over(Request& request, const PrefixHit& hit) const {
  const auto block = static_cast<std::size_t>(hit.num_tokens / options_.block_size);
  const std::int64_t end = (static_cast<std::int64_t>(block) + 1) * options_.block_size;
  if (request.is_exempt() || request.is_aged || end > std::min(request.num_tokens() - 1, request.logits_begin))
    return false;
  if (block >= request.chain.keys.size()) return false;  // no cache
  for (std::size_t i = 0; i < draft_.prefills.size(); ++i) {
    const Request& owner = *draft_.prefills[i];
    const bool computes_it = draft_.begin(i) < end && block < owner.chain.keys.size() &&
                             owner.chain.keys[block] == request.chain.keys[block];
    if (!computes_it) continue;
    if (i >= draft_.num_running_prefills) return true;
    if (request.waited_for == owner.view.request && request.waited_at == owner.computed) return false;
    request.waited_for = owner.view.request;
    request.waited_at = owner.computed;
    return true;
  }
  return false;
}

/// True if more of its prefix is on its way from files, or is asked for now.
bool Scheduler::waits_for_files(Request& request, const PrefixHit& hit) {
  if (request.is_exempt() || request.is_aged) return false;
  if (kv_.is_reading(request.chain, hit)) return true;
  if (request.has_asked_files) return false;
  const std::int32_t limit = std::min(request.num_tokens() - 1, request.logits_begin);
  if (!kv_.plan_reads(request.chain, request.tokens, limit, hit)) return false;
  draft_.asking_files.push_back(&request);
  return true;
}

void Scheduler::admit_from_queue() {
  std::int64_t free_blocks = kv_.plan_free_blocks() - promised_blocks();
  std::int64_t exempt_room = kv_.capacity().num_blocks - exempt_blocks_running();
  std::size_t num_running = running_.size();
  std::int32_t num_passed_over = 0;
  for (Request* request : queue_) {
    if (num_running >= static_cast<std::size_t>(max_running_)) return;
    PrefixHit hit = match(*request);
    if (waits_for_files(*request, hit) || is_passed_over(*request, hit)) {
      if (++num_passed_over > kMaxPassedOver) return;
      continue;
    }
    const std::int64_t needed = kv_.blocks_for(request->num_tokens()) - hit.num_saved_blocks;
    const std::int64_t room = free_blocks - (num_running > 0 ? watermark_blocks_ : 0);
    if (needed > room) return;
    if (needed + hit.num_idle_sources > room) hit.drop_copy(options_.block_size);
    if (request->is_exempt()) {
      exempt_room -= kv_.blocks_for(request->largest_need());
      if (exempt_room < 0) return;
    }
    free_blocks -= needed + hit.num_idle_sources;
    ++num_running;
    draft_.prefills.push_back(request);
    draft_.hits.push_back(std::move(hit));
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
      if (last >= draft_.num_running_prefills && draft_.prefills[last]->is_aged) break;
    }
    for (std::int32_t share : share_prefill_budget(remaining.first(count), budget)) {
      shares.push_back(share);
      budget -= share;
    }
    remaining = remaining.subspan(count);
  }
  return shares;
}

Scheduler::Request* Scheduler::draft_prefills() {
  draft_.remaining.clear();
  for (std::size_t i = 0; i < draft_.prefills.size(); ++i)
    draft_.remaining.push_back(draft_.prefills[i]->num_tokens() - draft_.begin(i));
  const auto budget = options_.token_budget - static_cast<std::int32_t>(draft_.rows.size());
  const std::vector<std::int32_t> shares = share_budget(budget);
  std::uint64_t next_sequence = next_sequence_;
  for (std::size_t i = 0; i < draft_.prefills.size(); ++i) {
    if (shares[i] == 0) continue;
    Request* request = draft_.prefills[i];
    const bool fits = i < draft_.num_running_prefills
                          ? draft_row(request, shares[i])
                          : draft_start(request, SequenceId{next_sequence++},
                                        draft_.hits[i - draft_.num_running_prefills], shares[i]);
    if (!fits) return request;
  }
  return nullptr;
}

bool Scheduler::is_victim(const Request* request) const {
  return std::find(draft_.victims.begin(), draft_.victims.end(), request) != draft_.victims.end();
}

RunningView Scheduler::running_view(const Request& request) const {
  return {request.view, kv_.blocks_held(request.computed), request.num_generated(), request.computed};
}

Scheduler::Request* Scheduler::choose_victim() const {
  Request* victim = nullptr;
  for (Request* request : running_)
    if (!request->is_exempt() && !is_victim(request) &&
        (!victim || victim_policy_->yields_before(running_view(*request), running_view(*victim))))
      victim = request;
  QUIRE_CHECK(victim != nullptr, "out of blocks with exempt requests only");
  return victim;
}

// -- committing it: the only place where a step changes requests and memory --

void Scheduler::commit_draft(BatchPlan& plan) {
  preempted_.clear();
  started_.clear();
  for (Request* victim : draft_.victims) commit_victim(victim, plan);
  reservations_.clear();
  kv_.commit_plan(plan, reservations_);
  QUIRE_CHECK(reservations_.size() == draft_.rows.size(), "rows and reservations differ");
  for (std::size_t i = 0; i < draft_.rows.size(); ++i) {
    const DraftRow& row = draft_.rows[i];
    if (row.starts) commit_admission(row);
    append_row(row, reservations_[i], plan);
  }
  for (Request* request : draft_.asking_files) request->has_asked_files = true;
  counters_.copied_blocks += plan.copies.size();
}

void Scheduler::commit_victim(Request* request, BatchPlan& plan) {
  const PreemptionKind kind = choose_preemption(preemption_mode_, kv_.estimate_keep(std::span(&request->sequence, 1)),
                                                options_.copy_block_ns, options_.compute_token_ns);
  if (kind == PreemptionKind::swap) kv_.plan_keep(request->sequence, request->chain);
  plan.dropped.push_back(request->sequence);
  std::erase(running_, request);
  move_to(*request, RequestState::preempted);
  ++request->view.num_preemptions;
  request->computed = 0;
  request->view.cached_tokens = cached_tokens(*request);
  queue_.insert(request);
  preempted_.push_back({request->view.request, request->view.num_preemptions, kind});
  ++counters_.preemptions;
  ++counters_.preemptions_by[static_cast<std::size_t>(kind)];
}

void Scheduler::commit_admission(const DraftRow& row) {
  Request* request = row.request;
  queue_.erase(request);
  if (request->state == RequestState::waiting) started_.push_back({request->view.request, row.begin});
  move_to(*request, RequestState::running);
  QUIRE_CHECK(row.sequence.value == next_sequence_, "sequence ids out of order");
  ++next_sequence_;
  request->sequence = row.sequence;
  request->computed = row.begin;
  request->has_asked_files = false;
  kv_.forget_kept(request->chain);
  counters_.prefix_queries += static_cast<std::uint64_t>(request->num_tokens());
  counters_.prefix_hits += static_cast<std::uint64_t>(row.begin);
  insert_running(request);
}

void Scheduler::append_row(const DraftRow& drafted, const KvReservation& reservation, BatchPlan& plan) {
  const Request& request = *drafted.request;
  PlanRow row;
  row.sequence = drafted.sequence;
  row.request = request.view.request;
  row.begin = request.computed;
  row.num_tokens = drafted.num_tokens;
  row.token_offset = plan.num_tokens();
  row.new_blocks_offset = reservation.new_blocks_offset;
  row.num_new_blocks = reservation.num_new_blocks;
  row.place = reservation.place;
  row.logits_begin = request.logits_begin;
  row.samples = row.end() == request.num_tokens() && request.max_tokens > 0;
  row.is_prefill = drafted.starts || !request.is_decode();
  const auto first = request.tokens.begin() + row.begin;
  plan.tokens.insert(plan.tokens.end(), first, first + row.num_tokens);
  plan.rows.push_back(row);
}

}  // namespace quire
