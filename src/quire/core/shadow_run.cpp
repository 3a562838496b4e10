#include "quire/core/shadow_run.h"

#include <algorithm>

#include "quire/base/cat.h"
#include "quire/base/rng.h"
#include "quire/sched/scheduler.h"

namespace quire {

OracleAnswer oracle_answer(const CoreRequest& request, const CoreOptions& options, std::int32_t vocabulary) {
  const std::int64_t room = std::min<std::int64_t>(options.context_tokens, options.pool_tokens());
  const std::int64_t max_tokens =
      request.max_tokens ? *request.max_tokens : room - static_cast<std::int64_t>(request.prompt.size());
  OracleAnswer answer{{}, FinishReason::length};
  std::vector<TokenId> all = request.prompt;
  while (static_cast<std::int64_t>(answer.tokens.size()) < max_tokens) {
    const TokenId token = shadow_token(request.salt, all, vocabulary, options.layer_groups);
    const bool stops = std::count(request.stop_tokens.begin(), request.stop_tokens.end(), token) > 0;
    if (stops && static_cast<std::int32_t>(answer.tokens.size()) >= request.min_tokens)
      return {answer.tokens, FinishReason::stop_token, token};
    answer.tokens.push_back(token);
    all.push_back(token);
  }
  return answer;
}

std::vector<TokenId> make_prompt(RequestId request, std::int32_t num_tokens, std::int32_t vocabulary) {
  std::vector<TokenId> prompt;
  for (std::int32_t p = 0; p < num_tokens; ++p)
    prompt.push_back(TokenId{static_cast<std::int32_t>(random_at(request.value, static_cast<std::uint64_t>(p)) %
                                                       static_cast<std::uint64_t>(vocabulary))});
  return prompt;
}

ShadowRun::ShadowRun(const CoreOptions& options, std::int32_t vocabulary, const BlockHasher* hasher)
    : options_(options),
      vocabulary_(vocabulary),
      identity_{hasher, {}},
      core_(*EngineCore::create(options, &log_, identity_)),
      executor_(options.num_blocks, options.geometry(), vocabulary, options.kv_ram_frames) {}

namespace {
std::int32_t prompt_size(const ShadowRun::Answer& answer) {
  return static_cast<std::int32_t>(answer.request.prompt.size());
}
}  // namespace

void ShadowRun::note(std::string text) {
  if (!problem_) problem_ = cat("step ", num_steps_, ": ", text);
}

std::optional<Refusal> ShadowRun::submit(const CoreRequest& request) {
  auto refusal = core_->submit(request);
  if (refusal) return refusal;
  executor_.set_salt(request.id, request.salt);
  Answer& answer = answers_[request.id];
  answer.request = request;
  answer.next_logits = request.logits_from.value_or(static_cast<std::int32_t>(request.prompt.size()) - 1);
  answer.submitted_at_step = num_steps_;
  arrivals_.push_back(request.id);
  steps_left_ += steps_needed(request);
  return std::nullopt;
}

/// Rows of one token that the request takes at most, its preemptions included.
std::uint64_t ShadowRun::steps_needed(const CoreRequest& request) const {
  const std::int64_t room = std::min<std::int64_t>(options_.context_tokens, options_.pool_tokens());
  const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t need = prompt_tokens + (request.max_tokens ? *request.max_tokens : room - prompt_tokens);
  return static_cast<std::uint64_t>((kMaxPreemptions + 1) * need);
}

/// Requests that have waited for more than ageing_steps must start within the documented bound. (Tests have fewer
/// requests live than may age in a step.)
void ShadowRun::note_aged() {
  std::uint64_t needed = 0;
  for (RequestId id : live()) needed += steps_needed(answers_.at(id).request);
  for (RequestId id : live()) {
    Answer& answer = answers_.at(id);
    const auto age = num_steps_ - answer.submitted_at_step;
    if (answer.started_at_step || answer.start_due_at || age <= static_cast<std::uint64_t>(options_.ageing_steps))
      continue;
    answer.start_due_at = num_steps_ + needed;
  }
}

/// After a step: nobody has started before an aged one that came earlier, and nobody aged has waited too long.
void ShadowRun::check_waits() {
  std::optional<RequestId> overtaken;
  for (RequestId id : arrivals_) {
    const Answer& answer = answers_.at(id);
    if (overtaken && answer.started_at_step == num_steps_)
      note(cat("request ", id, " starts before request ", *overtaken, ", which has aged"));
    if (answer.finished || answer.started_at_step || !answer.start_due_at) continue;
    overtaken = overtaken.value_or(id);
    if (num_steps_ > *answer.start_due_at) note(cat("request ", id, " has waited longer than the bound"));
  }
}

bool ShadowRun::cancel(RequestId request) {
  const bool ended = core_->cancel(request);
  for (const Event& event : core_->take_events()) handle(event);
  return ended;
}

bool ShadowRun::finish(RequestId request) {
  const bool ended = core_->finish(request);
  for (const Event& event : core_->take_events()) handle(event);
  return ended;
}

std::vector<RequestId> ShadowRun::live() const {
  std::vector<RequestId> ids;
  for (const auto& [id, answer] : answers_)
    if (!answer.finished) ids.push_back(id);
  return ids;
}

void ShadowRun::put_files(ShadowFiles files) {
  std::vector<BlockKey> keys;
  for (const auto& [key, file] : files) keys.push_back(key);
  tiers().files() = std::move(files);
  core_->note_files(keys);
}

/// In any order. One at least, if nothing else goes on.
void ShadowRun::end_transfers() {
  constexpr ShadowFault kFaults[] = {ShadowFault::io_error, ShadowFault::no_space, ShadowFault::lost,
                                     ShadowFault::torn,     ShadowFault::deleted,  ShadowFault::timed_out};
  bool must_end = stands_still_;
  for (std::size_t left = tiers().num_in_flight(); left > 0; --left) {
    if (!must_end && !disk_rng_.chance(disk_.ends)) continue;
    must_end = false;
    const auto last = static_cast<std::int64_t>(tiers().num_in_flight()) - 1;
    const auto index = static_cast<std::size_t>(disk_.ends < 1 ? disk_rng_.between(0, last) : 0);
    const bool fails = disk_.faults > 0 && disk_rng_.chance(disk_.faults);
    core_->end_transfer(tiers().end(index, fails ? kFaults[disk_rng_.between(0, 5)] : ShadowFault::none));
    if (disk_.faults > 0 && disk_rng_.chance(0.05)) core_->end_transfer({TransferId{disk_rng_() | 1ull << 40}, {}, {}});
  }
  if (auto violation = core_->validate()) note(*violation);
}

const BatchPlan& ShadowRun::step() {
  end_transfers();
  const bool had_work = core_->has_work();
  const BatchPlan& plan = core_->plan_step();
  num_steps_ = plan.step;
  note_aged();
  digests_.push_back(plan.digest());
  stands_still_ = had_work && plan.rows.empty();
  if (stands_still_ && core_->num_reads_in_flight() == 0) note("I7: there is work and no row");
  if (steps_left_ == 0 && had_work) note("the liveness bound is exceeded");
  if (!plan.rows.empty() && steps_left_ > 0) --steps_left_;
  check_plan(plan);
  if (auto violation = core_->validate()) note(*violation);
  StepResult result = executor_.execute(plan);
  if (executor_.violation()) note(*executor_.violation());
  for (std::size_t i = 0; i < plan.rows.size(); ++i)
    if (failing_.erase(plan.rows[i].request) > 0) result.rows[i] = {TokenId{-1}, true};
  for (const Event& event : core_->commit(result)) handle(event);
  check_waits();
  if (auto violation = core_->validate()) note(*violation);
  return plan;
}

void ShadowRun::check_plan(const BatchPlan& plan) {
  if (plan.num_tokens() > options_.token_budget) note(cat("I7: ", plan.num_tokens(), " tokens are over the budget"));
  if (static_cast<std::int32_t>(plan.rows.size()) > options_.max_rows) note(cat("I7: ", plan.rows.size(), " rows"));
  bool prefill_seen = false;
  for (const PlanRow& row : plan.rows) {
    if (!row.is_prefill && prefill_seen) note("B5: a decode comes after a prefill");
    prefill_seen = prefill_seen || row.is_prefill;
    Answer& answer = answers_.at(row.request);
    if (answer.num_preemptions == 0)
      answer.computed_tokens += std::min(row.end(), prompt_size(answer)) - std::min(row.begin, prompt_size(answer));
    if (answer.finished) note(cat("request ", row.request, " has a row after its end"));
    // Logits of every position from logits_from on are delivered once, whatever the chunks and preemptions.
    if (row.num_logits() > 0) {
      if (row.first_logits() != answer.next_logits)
        note(cat("request ", row.request, " gets logits of ", row.first_logits(), ", due is ", answer.next_logits));
      answer.next_logits = row.end();
    }
    if (row.samples && row.num_logits() == 0) note(cat("request ", row.request, " samples without logits"));
  }
}

void ShadowRun::handle(const Event& event) {
  events_.push_back(event);
  if (const auto* sampled = std::get_if<TokenSampled>(&event)) {
    Answer& answer = answers_.at(sampled->request);
    if (answer.finished) note(cat("request ", sampled->request, " gets a token after its end"));
    if (sampled->index != static_cast<std::int32_t>(answer.tokens.size())) note("a token's index is out of order");
    if (answer.tokens.empty()) answer.first_token_step = num_steps_;
    answer.tokens.push_back(sampled->token);
  } else if (const auto* finished = std::get_if<RequestFinished>(&event)) {
    Answer& answer = answers_.at(finished->request);
    if (answer.finished) note(cat("request ", finished->request, " ends twice"));
    if (finished->num_tokens != static_cast<std::int32_t>(answer.tokens.size())) note("I9: num_tokens is wrong");
    answer.finished = *finished;
    check_answer(answer);
  } else if (const auto* started = std::get_if<RequestStarted>(&event)) {
    Answer& answer = answers_.at(started->request);
    if (answer.cached_tokens) note(cat("request ", started->request, " starts twice"));
    answer.cached_tokens = started->cached_tokens;
    answer.started_at_step = num_steps_;
    if (started->cached_tokens >= static_cast<std::int32_t>(answer.request.prompt.size()))
      note(cat("request ", started->request, " has nothing to compute"));
  } else if (const auto* preempted = std::get_if<RequestPreempted>(&event)) {
    Answer& answer = answers_.at(preempted->request);
    if (preempted->num_preemptions != ++answer.num_preemptions) note("a preemption is counted wrongly");
    if (answer.num_preemptions > kMaxPreemptions)
      note(cat("I10: request ", preempted->request, " preempted too often"));
  }
}

void ShadowRun::check_answer(const Answer& answer) {
  const OracleAnswer expected = oracle_answer(answer.request, options_, vocabulary_);
  const FinishReason reason = answer.finished->reason;
  const bool by_itself = reason == FinishReason::length || reason == FinishReason::stop_token;
  if (answer.tokens.size() > expected.tokens.size() ||
      !std::equal(answer.tokens.begin(), answer.tokens.end(), expected.tokens.begin()))
    note(cat("request ", answer.request.id, " got other tokens than alone"));
  if (!by_itself) return;
  if (answer.tokens.size() != expected.tokens.size() || reason != expected.reason ||
      answer.finished->stop_token != expected.stop_token)
    note(cat("request ", answer.request.id, " ended after ", answer.tokens.size(), " tokens with ", to_string(reason),
             ", alone after ", expected.tokens.size(), " with ", to_string(expected.reason)));
  if (answer.num_preemptions == 0 && answer.cached_tokens.value_or(0) + answer.computed_tokens != prompt_size(answer))
    note(cat("I9: request ", answer.request.id, " computed ", answer.computed_tokens, " and found ",
             answer.cached_tokens.value_or(0), " tokens of its prompt"));
  // Without sampling all logits of the prompt were due; with it, those before the last token sampled from.
  const auto prompt_tokens = static_cast<std::int32_t>(answer.request.prompt.size());
  const std::int32_t num_sampled =
      static_cast<std::int32_t>(answer.tokens.size()) + (reason == FinishReason::stop_token ? 1 : 0);
  if (answer.next_logits != prompt_tokens + std::max(0, num_sampled - 1))
    note(cat("request ", answer.request.id, " got logits up to ", answer.next_logits));
}

void ShadowRun::run_to_end() {
  while (core_->has_work() && !problem_) step();
}

void ShadowRun::check_end() {
  if (core_->has_work()) note("there is work left");
  const KvCapacity capacity = core_->kv_capacity();
  if (capacity.used_blocks() != 0) note(cat("the pool ends with ", capacity.used_blocks(), " blocks used"));
  step();  // without work: lets the executor forget the last sequences
  check_tiers();
  if (executor_.num_sequences() != 0) note("the executor still knows sequences");
  for (const auto& [id, answer] : answers_)
    if (!answer.finished) note(cat("request ", id, " never ended"));
  check_counters();
  check_replay();
}

/// B05: when nothing is left, no frame is anybody's.
void ShadowRun::check_tiers() {
  const auto goes_on = [&] { return tiers().num_in_flight() > 0 || core_->has_transfers_to_start(); };
  for (int i = 0; i < 1000 && goes_on(); ++i) step();
  if (goes_on()) note("transfers go on without end");
  const KvTierCounters counters = core_->kv().tier_counters();
  if (counters.frames_private != 0) note(cat("B05: ", counters.frames_private, " frames are lost"));
  if (counters.reads_in_flight != 0 || counters.writes_in_flight != 0) note("the core waits for transfers that ended");
}

void ShadowRun::check_counters() {
  std::uint64_t num_tokens = 0;
  std::uint64_t num_finished = 0;
  std::uint64_t num_preemptions = 0;
  for (const Event& event : events_) {
    num_tokens += std::holds_alternative<TokenSampled>(event);
    num_finished += std::holds_alternative<RequestFinished>(event);
    num_preemptions += std::holds_alternative<RequestPreempted>(event);
  }
  const CoreCounters& counters = core_->counters();
  if (counters.generated_tokens != num_tokens || counters.finished_total() != num_finished ||
      counters.preemptions != num_preemptions || counters.submitted != answers_.size())
    note("I9: counters and events differ");
}

void ShadowRun::check_replay() {
  MemoryLog second_log;
  const Result<Replay> second = replay(log_.bytes(), &second_log, identity_);
  if (!second) return note(second.error().message);
  if (second->first_difference) note(cat("I11: the replay differs at step ", *second->first_difference));
  if (second->plan_digests != digests_) note("I11: the replay has other plan digests");
  if (second->events != events_) note("I11: the replay has other events");
  if (second_log.bytes() != log_.bytes()) note("I11: the log of the replay has other bytes");
}

}  // namespace quire
