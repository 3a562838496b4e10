#include "quire/core/shadow_run.h"

#include <algorithm>
#include <limits>

#include "quire/base/cat.h"
#include "quire/base/elementary.h"
#include "quire/base/rng.h"
#include "quire/sched/plan_check.h"
#include "quire/sched/scheduler.h"

namespace quire {

namespace {

std::int32_t prompt_size(const CoreRequest& request) { return static_cast<std::int32_t>(request.prompt.size()); }
std::int32_t width_of(const CoreRequest& request) {
  return request.beams ? request.beams->width : request.num_branches;
}

/// As asked for; or, by trying, the most with which the prompt's shared blocks and those of each branch fit the pool.
std::int64_t max_tokens_of(const CoreRequest& request, const CoreOptions& options) {
  if (request.max_tokens) return *request.max_tokens;
  const bool has_places = options.is_vattention();
  const auto blocks_for = [&](std::int64_t n) {
    return has_places ? options.page_groups().groups_for(n) : options.geometry().blocks_for(n);
  };
  const std::int64_t prompt = prompt_size(request);
  const std::int64_t shared = has_places                         ? options.page_groups().first_written(prompt)
                              : options.geometry().has_windows() ? 0
                                                                 : prompt / options.block_size;
  const std::int64_t most_entries =
      has_places ? most_groups(options.vattention()) : std::numeric_limits<std::int64_t>::max();
  std::int64_t count = 0;
  while (prompt + count < std::min<std::int64_t>(options.context_tokens, options.pool_tokens()) &&
         shared + width_of(request) * (blocks_for(prompt + count + 1) - shared) <= options.num_blocks &&
         width_of(request) * blocks_for(prompt + count + 1) <= most_entries)
    ++count;
  return count;
}

/// Whole powers exactly, so that equal scores are equal.
double norm_of(std::int64_t length, const BeamParams& params) {
  if (params.length_penalty == 1) return static_cast<double>(length);
  return pow_f64(static_cast<double>(length), params.length_penalty);
}

bool stops_at(const CoreRequest& request, TokenId token, std::int64_t num_generated) {
  return num_generated >= request.min_tokens &&
         std::count(request.stop_tokens.begin(), request.stop_tokens.end(), token) > 0;
}

}  // namespace

OracleAnswer oracle_answer(const CoreRequest& request, const CoreOptions& options, std::int32_t vocabulary,
                           std::int32_t branch) {
  const std::int64_t max_tokens = max_tokens_of(request, options);
  OracleAnswer answer{{}, FinishReason::length};
  std::vector<TokenId> all = request.prompt;
  while (static_cast<std::int64_t>(answer.tokens.size()) < max_tokens) {
    const TokenId token = shadow_token(request.salt, all, vocabulary, options.layer_groups, branch);
    if (stops_at(request, token, static_cast<std::int64_t>(answer.tokens.size())))
      return {answer.tokens, FinishReason::stop_token, token};
    answer.tokens.push_back(token);
    all.push_back(token);
  }
  return answer;
}

std::vector<OracleAnswer> oracle_beams(const CoreRequest& request, const CoreOptions& options,
                                       std::int32_t vocabulary) {
  struct Beam {
    std::vector<TokenId> tokens;
    double sum;
  };
  struct Continuation {
    double sum;
    std::size_t parent;
    TokenId token;
  };
  const BeamParams& params = *request.beams;
  const auto width = static_cast<std::size_t>(params.width);
  const std::int64_t max_tokens = max_tokens_of(request, options);
  std::vector<Beam> live = {{{}, 0}};
  std::vector<OracleAnswer> finished;
  for (std::int64_t length = 1; !live.empty(); ++length) {
    const double norm = norm_of(length, params);
    std::vector<Continuation> all;
    for (std::size_t parent = 0; parent < live.size(); ++parent) {
      std::vector<TokenId> tokens = request.prompt;
      tokens.insert(tokens.end(), live[parent].tokens.begin(), live[parent].tokens.end());
      for (const Candidate& candidate :
           shadow_candidates(request.salt, tokens, vocabulary, options.layer_groups, vocabulary))
        all.push_back({live[parent].sum + double{candidate.logprob}, parent, candidate.token});
    }
    std::sort(all.begin(), all.end(), [](const Continuation& a, const Continuation& b) {
      return a.sum != b.sum ? a.sum > b.sum : std::pair(a.parent, a.token) < std::pair(b.parent, b.token);
    });
    std::vector<Beam> next;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const auto& [sum, parent, token] = all[rank];
      const bool stops = stops_at(request, token, length - 1);
      std::vector<TokenId> tokens = live[parent].tokens;
      if (!stops) tokens.push_back(token);
      if ((stops || length == max_tokens) && rank < width)
        finished.push_back(
            {tokens, stops ? FinishReason::stop_token : FinishReason::length, stops ? token : TokenId{-1}, sum / norm});
      if (!stops && length < max_tokens && next.size() < width) next.push_back({tokens, sum});
      if (rank >= width && (next.size() == width || length == max_tokens)) break;
    }
    live = std::move(next);
    std::stable_sort(finished.begin(), finished.end(),
                     [](const OracleAnswer& a, const OracleAnswer& b) { return a.score > b.score; });
    if (finished.size() > width) finished.resize(width);
    if (finished.size() < width || live.empty()) continue;
    const bool hopes = params.early_stopping == EarlyStopping::never && params.length_penalty > 0;
    const double best = live[0].sum / (hopes ? norm_of(max_tokens, params) : norm);
    if (params.early_stopping == EarlyStopping::when_full || best <= finished.back().score) break;
  }
  finished.resize(std::min(finished.size(), static_cast<std::size_t>(params.num_returned)));
  return finished;
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
      executor_(options.num_blocks, options.geometry(), vocabulary, options.kv_ram_frames) {
  if (options.is_vattention()) executor_.use_places(options.vattention());
}

void ShadowRun::note(std::string text) {
  if (!problem_) problem_ = cat("step ", num_steps_, ": ", text);
}

std::optional<Refusal> ShadowRun::submit(const CoreRequest& request) {
  auto refusal = core_->submit(request);
  if (refusal) return refusal;
  executor_.set_salt(request.id, request.salt);
  Answer& answer = answers_[request.id];
  answer.request = request;
  answer.branches[0].next_logits = request.logits_from.value_or(prompt_size(request) - 1);
  answer.submitted_at_step = num_steps_;
  arrivals_.push_back(request.id);
  steps_left_ += steps_needed(request);
  return std::nullopt;
}

/// Rows of one token that the request takes at most, its preemptions included.
std::uint64_t ShadowRun::steps_needed(const CoreRequest& request) const {
  const std::int64_t need = prompt_size(request) + width_of(request) * max_tokens_of(request, options_);
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

bool ShadowRun::finish(RequestId request, std::int32_t branch) {
  const bool ended = core_->finish_branch(request, branch);
  if (ended) answers_.at(request).is_disturbed = true;
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
  const std::vector<bool> is_refused = refused_rows(plan);
  check_plan(plan, is_refused);
  if (auto violation = core_->validate()) note(*violation);
  executor_.refuse(is_refused);
  StepResult result = executor_.execute(plan);
  if (executor_.violation()) note(*executor_.violation());
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const auto failing = failing_.find(plan.rows[i].request);
    if (failing == failing_.end() || is_refused[i] || failing->second-- > 0) continue;
    failing_.erase(failing);
    result.rows[i] = {TokenId{-1}, true};
    answers_.at(plan.rows[i].request).is_disturbed = true;
  }
  for (std::size_t i = 0; i < plan.rows.size(); ++i)
    answers_.at(plan.rows[i].request).branches[plan.rows[i].branch].next_logits +=
        static_cast<std::int32_t>(result.rows[i].more.size());
  for (const Event& event : core_->commit(result)) handle(event);
  check_waits();
  if (auto violation = core_->validate()) note(*violation);
  return plan;
}

/// Of each such request the last row, so that others of a gang are computed.
std::vector<bool> ShadowRun::refused_rows(const BatchPlan& plan) {
  std::vector<bool> is_refused(plan.rows.size(), false);
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const RequestId id = plan.rows[i].request;
    const bool is_last = std::none_of(plan.rows.begin() + static_cast<std::ptrdiff_t>(i) + 1, plan.rows.end(),
                                      [&](const PlanRow& row) { return row.request == id; });
    const auto refusing = refusing_.find(id);
    if (!is_last || refusing == refusing_.end()) continue;
    if (--refusing->second <= 0) refusing_.erase(refusing);
    is_refused[i] = true;
    Answer& answer = answers_.at(id);
    ++answer.num_refusals;
    // All is computed again, and others may wait for it.
    const std::uint64_t needed = steps_needed(answer.request);
    steps_left_ += needed;
    for (auto& [other, waiting] : answers_)
      if (waiting.start_due_at) *waiting.start_due_at += needed;
  }
  return is_refused;
}

void ShadowRun::check_plan(const BatchPlan& plan, const std::vector<bool>& is_refused) {
  if (auto violation = find_violation(plan, options_)) note(*violation);
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    Answer& answer = answers_.at(row.request);
    const std::int32_t prompt_tokens = prompt_size(answer.request);
    if (answer.num_preemptions == 0)
      answer.computed_tokens += std::min(row.end(), prompt_tokens) - std::min(row.begin, prompt_tokens);
    if (answer.finished) note(cat("request ", row.request, " has a row after its end"));
    if (!is_refused[i]) check_logits(answer, row);
  }
}

/// Logits of every position from logits_from on are delivered once to each branch, whatever the chunks and preemptions.
void ShadowRun::check_logits(Answer& answer, const PlanRow& row) {
  BranchAnswer& branch = answer.branches[row.branch];
  if (branch.finished && !answer.request.beams) note(cat("request ", row.request, " has a row of an ended branch"));
  if (row.num_logits() > 0) {
    if (row.first_logits() != branch.next_logits)
      note(cat("request ", row.request, " gets logits of ", row.first_logits(), ", due is ", branch.next_logits));
    branch.next_logits = row.end() - row.num_proposed;
  }
  if (row.samples && row.num_logits() == 0) note(cat("request ", row.request, " samples without logits"));
}

void ShadowRun::handle(const Event& event) {
  events_.push_back(event);
  std::visit(
      [this](const auto& e) {
        if (answers_.at(e.request).finished) note(cat("request ", e.request, " has an event after its end"));
        handle(e);
      },
      event);
}

void ShadowRun::handle(const TokenSampled& sampled) {
  Answer& answer = answers_.at(sampled.request);
  BranchAnswer& branch = answer.branches[sampled.branch];
  if (branch.finished) note(cat("request ", sampled.request, " gets a token after its branch's end"));
  if (sampled.index != static_cast<std::int32_t>(branch.tokens.size())) note("a token's index is out of order");
  if (answer.first_token_step == 0) answer.first_token_step = num_steps_;
  if (branch.tokens.empty()) branch.next_logits = prompt_size(answer.request);
  branch.tokens.push_back(sampled.token);
  if (sampled.branch == 0) answer.tokens = branch.tokens;
}

void ShadowRun::handle(const BeamsAdvanced& advanced) {
  Answer& answer = answers_.at(advanced.request);
  if (answer.beams.empty()) answer.beams.emplace_back();
  if (answer.first_token_step == 0) answer.first_token_step = num_steps_;
  std::vector<std::vector<TokenId>> beams;
  for (const BeamStep& step : advanced.steps) {
    beams.push_back(answer.beams.at(static_cast<std::size_t>(step.parent)));
    beams.back().push_back(step.token);
  }
  answer.beams = std::move(beams);
  note_beams_due(answer);
}

/// Logits of the beams' last tokens come next.
void ShadowRun::note_beams_due(Answer& answer) const {
  const auto length = static_cast<std::int32_t>(answer.beams.at(0).size());
  for (std::size_t i = 0; i < answer.beams.size(); ++i)
    answer.branches[static_cast<std::int32_t>(i)].next_logits = prompt_size(answer.request) + length - 1;
}

void ShadowRun::handle(const BeamReturned& returned) {
  Answer& answer = answers_.at(returned.request);
  BranchAnswer& branch = answer.branches[returned.branch];
  branch.tokens = returned.tokens;
  branch.score = returned.score;
  if (returned.branch == 0) answer.tokens = branch.tokens;
}

void ShadowRun::handle(const BranchFinished& finished) {
  BranchAnswer& branch = answers_.at(finished.request).branches[finished.branch];
  if (branch.finished) note(cat("request ", finished.request, ", branch ", finished.branch, " ends twice"));
  if (finished.num_tokens != static_cast<std::int32_t>(branch.tokens.size()))
    note("I9: a branch's num_tokens is wrong");
  branch.finished = finished;
}

void ShadowRun::handle(const RequestFinished& finished) {
  Answer& answer = answers_.at(finished.request);
  answer.finished = finished;
  check_answer(answer);
}

void ShadowRun::handle(const RequestStarted& started) {
  Answer& answer = answers_.at(started.request);
  if (answer.cached_tokens) note(cat("request ", started.request, " starts twice"));
  answer.cached_tokens = started.cached_tokens;
  answer.started_at_step = num_steps_;
  if (started.cached_tokens >= prompt_size(answer.request))
    note(cat("request ", started.request, " has nothing to compute"));
}

void ShadowRun::handle(const RequestPreempted& preempted) {
  Answer& answer = answers_.at(preempted.request);
  const bool is_refused = preempted.kind == PreemptionKind::recompute_refused;
  if (is_refused && answer.num_refusals == 0) note("a preemption by refusal without one");
  // A search computes again what its beams have offered.
  if (is_refused && !answer.beams.empty()) note_beams_due(answer);
  if (!is_refused) ++answer.num_preemptions;
  if (preempted.num_preemptions != answer.num_preemptions) note("a preemption is counted wrongly");
  if (answer.num_preemptions > kMaxPreemptions) note(cat("I10: request ", preempted.request, " preempted too often"));
}

void ShadowRun::check_answer(const Answer& answer) {
  const CoreRequest& request = answer.request;
  const std::int32_t expected = request.beams ? request.beams->num_returned : request.num_branches;
  std::int32_t num_tokens = 0;
  for (std::int32_t k = 0; k < expected; ++k) {
    const auto branch = answer.branches.find(k);
    if (branch == answer.branches.end() || !branch->second.finished)
      return note(cat("request ", request.id, " ended and its branch ", k, " did not"));
    num_tokens += branch->second.finished->num_tokens;
    if (!request.beams) check_branch(answer, k);
  }
  if (answer.finished->num_tokens != num_tokens) note("I9: num_tokens is wrong");
  if (request.beams) check_beams(answer);
  const FinishReason reason = answer.finished->reason;
  const bool by_itself = reason == FinishReason::length || reason == FinishReason::stop_token;
  // B30: however many branches, the prompt is computed once.
  if (reason == FinishReason::failed && !answer.is_disturbed && answer.num_refusals <= kMaxRefusals)
    note(cat("request ", request.id, " failed by itself"));
  if (by_itself && answer.num_preemptions == 0 && answer.num_refusals == 0 &&
      answer.cached_tokens.value_or(0) + answer.computed_tokens != prompt_size(request))
    note(cat("I9: request ", request.id, " computed ", answer.computed_tokens, " and found ",
             answer.cached_tokens.value_or(0), " tokens of its prompt"));
}

void ShadowRun::check_branch(const Answer& answer, std::int32_t index) {
  const CoreRequest& request = answer.request;
  const BranchAnswer& branch = answer.branches.at(index);
  const OracleAnswer expected = oracle_answer(request, options_, vocabulary_, index);
  const FinishReason reason = branch.finished->reason;
  const std::string name = cat("request ", request.id, ", branch ", index);
  if (branch.tokens.size() > expected.tokens.size() ||
      !std::equal(branch.tokens.begin(), branch.tokens.end(), expected.tokens.begin()))
    note(cat(name, " got other tokens than alone"));
  if (reason != FinishReason::length && reason != FinishReason::stop_token) return;
  if (branch.tokens.size() != expected.tokens.size() || reason != expected.reason ||
      branch.finished->stop_token != expected.stop_token)
    note(cat(name, " ended after ", branch.tokens.size(), " tokens with ", to_string(reason), ", alone after ",
             expected.tokens.size(), " with ", to_string(expected.reason)));
  // Without sampling all logits of the prompt were due; with it, those before the last token sampled from.
  const std::int32_t num_sampled =
      static_cast<std::int32_t>(branch.tokens.size()) + (reason == FinishReason::stop_token ? 1 : 0);
  if (num_sampled > 1 && branch.next_logits != prompt_size(request) + num_sampled - 1)
    note(cat(name, " got logits up to ", branch.next_logits));
  if (index == 0 && num_sampled < 2 && branch.next_logits != prompt_size(request))
    note(cat(name, " got logits up to ", branch.next_logits));
}

/// What its tokens are worth by the oracle's logprobs.
double ShadowRun::score_of(const CoreRequest& request, const OracleAnswer& beam) const {
  std::vector<TokenId> path = beam.tokens, all = request.prompt;
  if (beam.reason == FinishReason::stop_token) path.push_back(beam.stop_token);
  double sum = 0;
  for (TokenId token : path) {
    for (const Candidate& candidate :
         shadow_candidates(request.salt, all, vocabulary_, options_.layer_groups, vocabulary_))
      if (candidate.token == token) sum += double{candidate.logprob};
    all.push_back(token);
  }
  return sum / norm_of(static_cast<std::int64_t>(path.size()), *request.beams);
}

void ShadowRun::check_beams(const Answer& answer) {
  const CoreRequest& request = answer.request;
  const FinishReason reason = answer.finished->reason;
  if (reason == FinishReason::cancelled) return;
  if (reason == FinishReason::failed && answer.num_refusals > kMaxRefusals) return;
  std::vector<OracleAnswer> returned;
  for (const auto& [index, branch] : answer.branches)
    if (branch.finished && branch.finished->reason != FinishReason::failed)
      returned.push_back({branch.tokens, branch.finished->reason, branch.finished->stop_token, branch.score});
  for (const OracleAnswer& beam : returned)
    if (std::abs(beam.score - score_of(request, beam)) > 1e-9 * std::abs(beam.score))
      note(cat("request ", request.id, " returns a beam of score ", beam.score, "; its tokens are worth ",
               score_of(request, beam)));
  if (answer.is_disturbed) return;
  const std::vector<OracleAnswer> expected = oracle_beams(request, options_, vocabulary_);
  bool equal = returned.size() == expected.size();
  for (std::size_t i = 0; equal && i < returned.size(); ++i)
    equal = returned[i].tokens == expected[i].tokens && returned[i].reason == expected[i].reason &&
            returned[i].stop_token == expected[i].stop_token;
  if (!equal) note(cat("request ", request.id, " returns other beams than alone"));
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
    if (const auto* returned = std::get_if<BeamReturned>(&event)) num_tokens += returned->tokens.size();
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
