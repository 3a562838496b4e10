#include "quire/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>

#include "quire/base/check.h"
#include "quire/base/hash.h"
#include "quire/core/command_log.h"
#include "quire/core/engine_core.h"
#include "quire/engine/flight.h"
#include "quire/engine/loading.h"
#include "quire/engine/model_executor.h"
#include "quire/engine/preemption_text.h"
#include "quire/engine/request_check.h"
#include "quire/kv/vattention_kv_manager.h"
#include "quire/sched/plan_check.h"

namespace quire::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReadPatience{10};
constexpr std::chrono::seconds kFlushPatience{60};

std::uint64_t elapsed_ns(Clock::time_point from, Clock::time_point to) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count());
}

/// Writes the core's command log to a file.
class FileLog final : public CommandSink {
 public:
  static Result<std::unique_ptr<FileLog>> open(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) return fail("command log '", path, "' cannot be written");
    return std::unique_ptr<FileLog>(new FileLog(file));
  }
  ~FileLog() override { std::fclose(file_); }
  void append(std::span<const std::byte> bytes) override {
    // A full disk makes the log short, which replay accepts; serving goes on.
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) std::clearerr(file_);
  }

 private:
  explicit FileLog(std::FILE* file) : file_(file) {}
  std::FILE* file_;
};

struct SubmitCommand {
  RequestId id;
  GenerateRequest request;
  Engine::Callback callback;
  Clock::time_point submitted;
};
struct CancelCommand {
  RequestId id;
};
using Command = std::variant<SubmitCommand, CancelCommand>;

/// Finds what a step's rows drew, by request and branch.
class SampledRows {
 public:
  explicit SampledRows(std::span<const PlanRow> rows) {
    for (std::size_t r = 0; r < rows.size(); ++r)
      if (rows[r].samples)
        for (std::int32_t k = 0; k < rows[r].num_outputs; ++k)
          places_.push_back({rows[r].request, rows[r].branch + k, r, static_cast<std::size_t>(k)});
    std::sort(places_.begin(), places_.end(), is_before);
  }

  /// Of one branch in order: behind proposals a row has drawn several.
  OutputToken& take(const TokenSampled& event, std::span<RowOutput> outputs) {
    const auto place = std::lower_bound(places_.begin(), places_.end(), Place{event.request, event.branch}, is_before);
    QUIRE_CHECK(place != places_.end() && place->request == event.request && place->branch == event.branch,
                "no row sampled a token of request ", event.request, ", branch ", event.branch);
    return outputs[place->row].tokens[place->output++];
  }

 private:
  struct Place {
    RequestId request;
    std::int32_t branch;
    std::size_t row = 0, output = 0;
  };
  static bool is_before(const Place& a, const Place& b) {
    return a.request != b.request ? a.request < b.request : a.branch < b.branch;
  }
  std::vector<Place> places_;
};

}  // namespace

struct Engine::State {
  explicit State(Loaded parts) : loaded(std::move(parts)) {}

  // Set up by open(), then constant.
  Loaded loaded;
  std::unique_ptr<FileLog> log;
  std::int64_t max_waiting = 0;
  std::int64_t max_queue_ms = 0;
  std::function<void(const std::string&)> log_line;  ///< may be empty

  // The engine's thread only.
  std::unique_ptr<EngineCore> core;
  std::unique_ptr<ModelExecutor> executor;
  std::unordered_map<RequestId, Flight> flights;
  struct QueueDeadline {
    Clock::time_point at;
    RequestId request;
  };
  std::deque<QueueDeadline> queue_deadlines;  ///< by time; requests among them may have started or ended
  bool stands_still = false;  ///< the last plan had no row though there is work: it waits for a read from a file
  Digest plan_digest;
  std::int64_t handled_submits = 0;  ///< since the last publish()
  std::uint64_t step_ns = 0;         ///< likewise
  std::vector<std::pair<Engine::Callback, Delta>> outgoing;

  // Shared, under `mutex`.
  mutable std::mutex mutex;
  std::condition_variable wake;  ///< commands, or time to stop
  std::condition_variable idle;  ///< nothing in flight
  std::deque<Command> inbox;
  std::uint64_t next_id = 1;
  std::int64_t in_flight = 0;
  std::int64_t unseen_submits = 0;  ///< accepted, not yet counted in stats.waiting
  bool accepting = true, stopping = false;
  bool has_ended_transfers = false;
  EngineStats stats;

  std::unique_ptr<TierStore> tiers;  ///< null: none. Its thread uses what is above, and goes before it
  std::thread thread;

  void run();
  std::optional<Refusal> find_reason_to_refuse(std::int64_t count) const;
  void wait_for_something();
  bool may_step() const;
  void end_transfers();
  void end_overdue();
  void flush_files();
  void handle(SubmitCommand command);
  void handle(const CancelCommand& command) { core->cancel(command.id); }
  void step();
  void deliver(const std::vector<Event>& events, std::span<const PlanRow> rows);
  void on_token(const TokenSampled& event, OutputToken& output);
  void on_beams(const BeamsAdvanced& event);
  void end_branch(const BranchFinished& finished, std::string message);
  void end_all(RequestId id, const std::string& message);
  void publish();
  void publish_page_groups();
  void send();
  std::vector<TokenId> end_tokens(const GenerateRequest& request) const;
};

std::vector<TokenId> Engine::State::end_tokens(const GenerateRequest& request) const {
  std::vector<TokenId> tokens = request.stop_tokens;
  if (!request.ignore_eos) {
    const auto own = loaded.tokenizer->end_tokens();
    tokens.insert(tokens.end(), own.begin(), own.end());
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

/// So many more requests, all of them sound. Under `mutex`.
std::optional<Refusal> Engine::State::find_reason_to_refuse(std::int64_t count) const {
  if (!accepting) return Refusal{Refusal::Kind::stopping, "the engine is shutting down", ""};
  if (count > max_waiting) {
    return Refusal{Refusal::Kind::invalid,
                   cat("found ", count, " prompts at once, wanted at most ", max_waiting, " (--max-waiting)"), ""};
  }
  const std::int64_t num_waiting = stats.waiting + unseen_submits;
  if (num_waiting + count <= max_waiting) return std::nullopt;
  return Refusal{Refusal::Kind::overloaded,
                 cat("the queue is full: ", num_waiting, " requests are waiting, it holds ", max_waiting), ""};
}

void Engine::State::run() {
  while (true) {
    std::deque<Command> commands;
    bool is_last_round = false;  ///< what is left is cancelled
    wait_for_something();
    end_transfers();
    {
      std::unique_lock lock(mutex);
      if (stopping && inbox.empty() && flights.empty()) break;
      commands.swap(inbox);
      is_last_round = stopping;
    }
    if (!commands.empty()) stands_still = false;
    for (Command& command : commands) {
      std::visit([this](auto&& c) { handle(std::move(c)); }, std::move(command));
    }
    if (is_last_round) {
      std::vector<RequestId> left;
      for (const auto& [id, flight] : flights) left.push_back(id);
      std::sort(left.begin(), left.end());
      for (RequestId id : left) core->cancel(id);
    }
    end_overdue();
    deliver(core->take_events(), {});
    send();
    if (may_step()) step();
  }
  flush_files();
}

/// Those that have waited for their first step longer than they may.
void Engine::State::end_overdue() {
  const auto now = Clock::now();
  for (; !queue_deadlines.empty() && queue_deadlines.front().at <= now; queue_deadlines.pop_front()) {
    const auto found = flights.find(queue_deadlines.front().request);
    if (found == flights.end() || found->second.has_started()) continue;
    found->second.note_timed_out();
    core->cancel(found->first);
  }
}

bool Engine::State::may_step() const { return (core->has_work() && !stands_still) || core->has_transfers_to_start(); }

/// Until there is something to do. Where all waits for a disk that does not answer, its reads are given up.
void Engine::State::wait_for_something() {
  std::unique_lock lock(mutex);
  const auto is_due = [&] { return !inbox.empty() || stopping || has_ended_transfers || may_step(); };
  if (!stands_still) return wake.wait(lock, is_due);
  if (wake.wait_for(lock, kReadPatience, is_due)) return;
  lock.unlock();
  for (const TransferEnd& end : tiers->give_up_reads()) core->end_transfer(end);
  stands_still = false;
}

void Engine::State::end_transfers() {
  if (!tiers) return;
  {
    std::lock_guard lock(mutex);
    has_ended_transfers = false;
  }
  for (const TransferEnd& end : tiers->take_ended()) {
    core->end_transfer(end);
    stands_still = false;
  }
}

/// When all requests have ended: what was published and is not yet in a file.
void Engine::State::flush_files() {
  const auto deadline = Clock::now() + kFlushPatience;
  while (tiers && core->kv().tier_counters().writes_waiting > 0 && Clock::now() < deadline) {
    if (core->has_transfers_to_start()) {
      step();
    } else {
      std::unique_lock lock(mutex);
      wake.wait_until(lock, deadline, [&] { return has_ended_transfers; });
    }
    end_transfers();
  }
  publish();
}

void Engine::State::handle(SubmitCommand command) {
  ++handled_submits;
  if (max_queue_ms > 0)
    queue_deadlines.push_back({command.submitted + std::chrono::milliseconds(max_queue_ms), command.id});
  CoreRequest request{
      .id = command.id,
      .prompt = command.request.prompt,
      .max_tokens = command.request.max_tokens,
      .stop_tokens = end_tokens(command.request),
      .min_tokens = command.request.min_tokens,
      .priority = command.request.priority,
      .salt = command.request.cache_salt,
      .num_branches = command.request.num_branches,
      .beams = command.request.beams,
  };
  if (command.request.scoring) request.logits_from = command.request.scoring->from;
  executor->add(command.id, command.request, request.stop_tokens);
  flights.try_emplace(command.id, command.id, command.request, *loaded.tokenizer, std::move(command.callback),
                      command.submitted);
  if (auto refusal = core->submit(std::move(request))) end_all(command.id, refusal->message);
}

void Engine::State::step() {
  const auto start = Clock::now();
  const BatchPlan& plan = core->plan_step();
  if (const auto violation = find_violation(plan, core->options())) QUIRE_CHECK(false, *violation);
  plan_digest.add(plan.digest());
  for (const PlanRow& row : plan.rows) {
    flights.at(row.request).note_started(start);
    flights.at(row.request).set_memory_refused(false);
  }
  stands_still = plan.rows.empty() && core->has_work();
  const StepResult result = executor->execute(plan);
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    if (result.rows[r].refused) flights.at(plan.rows[r].request).set_memory_refused(true);
    std::vector<ScoreRow>& scores = executor->outputs()[r].scores;
    if (scores.empty()) continue;
    Flight& flight = flights.at(plan.rows[r].request);
    flight.add_scores(std::move(scores));
    flight.take_deltas(outgoing);  // before any branch's tokens
  }
  deliver(core->commit(result), plan.rows);
  deliver(core->take_events(), {});  // of branches that a stop string ended
  for (const PlanRow& row : plan.rows) {
    auto flight = flights.find(row.request);
    if (flight != flights.end()) flight->second.take_deltas(outgoing);
  }
  step_ns += elapsed_ns(start, Clock::now());
  send();
}

void Engine::State::deliver(const std::vector<Event>& events, std::span<const PlanRow> rows) {
  SampledRows sampled(rows);
  for (const Event& event : events) {
    if (const auto* token = std::get_if<TokenSampled>(&event)) {
      on_token(*token, sampled.take(*token, executor->outputs()));
    } else if (const auto* beams = std::get_if<BeamsAdvanced>(&event)) {
      on_beams(*beams);
    } else if (const auto* returned = std::get_if<BeamReturned>(&event)) {
      flights.at(returned->request).add_returned(*returned);
    } else if (const auto* started = std::get_if<RequestStarted>(&event)) {
      flights.at(started->request).set_cached_tokens(started->cached_tokens);
    } else if (const auto* finished = std::get_if<BranchFinished>(&event)) {
      end_branch(*finished, finished->reason == quire::FinishReason::cancelled
                                ? "cancelled"
                                : flights.at(finished->request).failure());
    } else if (const auto* preempted = std::get_if<RequestPreempted>(&event); preempted && log_line) {
      log_line(preemption_text(*preempted, core->options(), stats.kv.block_bytes));
    }
  }
}

void Engine::State::on_token(const TokenSampled& event, OutputToken& output) {
  if (flights.at(event.request).add_token(event.branch, std::move(output)))
    core->finish_branch(event.request, event.branch);
}

void Engine::State::on_beams(const BeamsAdvanced& event) {
  for (std::int32_t beam : flights.at(event.request).advance_beams(event.steps))
    core->finish_branch(event.request, beam);
}

/// Makes the branch's last delta, and forgets the request after its last branch.
void Engine::State::end_branch(const BranchFinished& finished, std::string message) {
  const auto found = flights.find(finished.request);
  Flight& flight = found->second;
  outgoing.emplace_back(flight.callback(), flight.end_branch(finished, std::move(message)));
  if (!flight.has_ended()) return;
  executor->remove(finished.request);
  flights.erase(found);
}

/// All branches of a request that the core does not know.
void Engine::State::end_all(RequestId id, const std::string& message) {
  for (std::int32_t branch = 0, count = flights.at(id).num_branches(); branch < count; ++branch)
    end_branch({id, branch, quire::FinishReason::failed, TokenId{-1}, 0}, message);
}

void Engine::State::publish() {
  const CoreCounters& counters = core->counters();
  const KvCapacity capacity = core->kv_capacity();
  const KvUsage usage = core->kv().usage();
  std::lock_guard lock(mutex);
  unseen_submits -= std::exchange(handled_submits, 0);
  stats.running = core->num_running();
  stats.waiting = core->num_waiting();
  stats.blocks_used = capacity.used_blocks();
  stats.blocks_total = capacity.num_blocks;
  stats.blocks_cached = capacity.cached_blocks;
  stats.computed_tokens = counters.computed_tokens;
  stats.proposed_tokens = counters.proposed_tokens;
  stats.accepted_tokens = counters.accepted_tokens;
  stats.prefix_queries = counters.prefix_queries;
  stats.prefix_hits = counters.prefix_hits;
  stats.prefix_evictions = core->kv().cache_counters().evicted_blocks;
  stats.steps = counters.steps;
  stats.prompt_tokens = counters.prompt_tokens;
  stats.generated_tokens = counters.generated_tokens;
  stats.preemptions = counters.preemptions;
  stats.step_ns += std::exchange(step_ns, 0);
  stats.shared_positions = executor->cascade().shared;
  stats.unshared_positions = executor->cascade().unshared;
  stats.kv.manager = loaded.info.kv_manager;
  stats.kv.prefix_cache = loaded.info.prefix_cache;
  stats.kv.block_size = loaded.info.block_size;
  stats.kv.block_bytes = static_cast<std::int64_t>(loaded.info.kv_bytes) / loaded.info.num_blocks;
  publish_page_groups();
  stats.kv.table_entries = usage.table_entries;
  stats.kv.unfilled_slots = usage.unfilled_slots;
  stats.kv.preempted = core->num_preempted();
  stats.kv.copied_blocks = counters.copied_blocks;
  stats.kv.recomputed_tokens = counters.recomputed_tokens;
  stats.kv.preemptions_by = counters.preemptions_by;
  stats.kv.tiers = core->kv().tier_counters();
  stats.kv.ram_bytes = loaded.info.kv_ram_bytes;
  stats.kv.file_bytes = tiers ? tiers->file_bytes() : 0;
  stats.plan_digest = plan_digest.value();
  for (const auto& [callback, delta] : outgoing) {
    if (!delta.finish) continue;
    switch (delta.finish->reason) {
      case FinishReason::stop:
        ++stats.finished_stop;
        break;
      case FinishReason::length:
        ++stats.finished_length;
        break;
      case FinishReason::cancelled:
        ++stats.finished_cancelled;
        break;
      case FinishReason::timed_out:
        ++stats.finished_timed_out;
        break;
      case FinishReason::failed:
        ++stats.finished_failed;
        break;
    }
  }
}

void Engine::State::publish_page_groups() {
  const auto* manager = dynamic_cast<const VAttentionKvManager*>(&core->kv());
  if (!manager) return;
  const VAttentionKvManager::GroupUsage usage = manager->group_usage();
  const attention::VirtualKvStore::Counters& counters = loaded.virtual_store->counters();
  stats.kv.block_size = manager->geometry().tokens_per_group();
  stats.kv.spare_blocks = usage.spare;
  stats.kv.unmapped_blocks = usage.unmapped;
  stats.kv.mappings = usage.mappings;
  stats.kv.maps = counters.maps;
  stats.kv.unmaps = counters.unmaps;
  stats.kv.ahead_maps = counters.ahead_maps;
  stats.kv.refused_maps = counters.refused;
}

/// Delivers what the step made. The statistics come first: whoever has seen a request's end finds it counted.
void Engine::State::send() {
  publish();
  std::int64_t ended = 0;
  for (auto& [callback, delta] : outgoing) {
    ended += delta.ends_request;
    callback(std::move(delta));
  }
  outgoing.clear();
  if (ended == 0) return;
  std::lock_guard lock(mutex);
  in_flight -= ended;
  if (in_flight == 0) idle.notify_all();
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() {
  {
    std::lock_guard lock(state_->mutex);
    state_->accepting = false;
    state_->stopping = true;
  }
  state_->wake.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

Result<void> Engine::open_tiers(const EngineOptions& options, State& state) {
  EngineInfo& info = state.loaded.info;
  if (info.kv_ram_blocks == 0) return {};
  QUIRE_TRY(state.tiers, TierStore::open({.num_frames = info.kv_ram_blocks,
                                          .directory = info.kv_swap_dir,
                                          .file_bytes = info.kv_swap_bytes,
                                          .compress = options.kv_swap_compression,
                                          .domain = state.loaded.cache_domain},
                                         *state.loaded.store, [&state] {
                                           std::lock_guard lock(state.mutex);
                                           state.has_ended_transfers = true;
                                           state.wake.notify_one();
                                         }));
  info.kv_swap_files_found = static_cast<std::int64_t>(state.tiers->found().size());
  return {};
}

Result<std::unique_ptr<Engine>> Engine::open(EngineOptions options) {
  QUIRE_TRY(Loaded loaded, load(options));
  auto state = std::make_unique<State>(std::move(loaded));
  state->max_waiting = options.max_waiting;
  state->max_queue_ms = options.max_queue_ms;
  state->log_line = std::move(options.log_line);
  if (!options.command_log.empty()) {
    QUIRE_TRY(state->log, FileLog::open(options.command_log));
  }
  EngineInfo& info = state->loaded.info;
  QUIRE_TRY_VOID(open_tiers(options, *state));
  CoreOptions core_options = engine::core_options(options, state->loaded.reserved, info);
  Loaded& parts = state->loaded;
  state->executor = std::make_unique<ModelExecutor>(ExecutorParts{*parts.model, parts.memory(), *parts.pool,
                                                                  info.cpu_tier, parts.reserved.grouping,
                                                                  core_options.geometry(), state->tiers.get()});
  if (state->tiers && options.preemption == "auto") {
    core_options.copy_block_ns = state->tiers->measure_copy_ns();
    core_options.compute_token_ns = state->executor->measure_token_ns(core_options.token_budget);
  }
  QUIRE_TRY(state->core, EngineCore::create(core_options, state->log.get(),
                                            {state->loaded.hasher.get(), state->loaded.cache_domain}));
  if (state->tiers && !state->tiers->found().empty()) state->core->note_files(state->tiers->found());
  state->publish();
  State* raw = state.get();
  std::unique_ptr<Engine> engine(new Engine(std::move(state)));
  raw->thread = std::thread([raw] { raw->run(); });
  return engine;
}

const EngineInfo& Engine::info() const { return state_->loaded.info; }
const Tokenizer& Engine::tokenizer() const { return *state_->loaded.tokenizer; }
const ChatTemplate* Engine::chat_template() const {
  return state_->loaded.chat_template ? &*state_->loaded.chat_template : nullptr;
}

Submitted Engine::submit(GenerateRequest request, Callback callback) {
  std::vector<Submission> one;
  one.push_back({std::move(request), std::move(callback)});
  SubmittedAll submitted = submit_all(std::move(one));
  if (submitted.ids.empty()) return {std::nullopt, std::move(submitted.refusal)};
  return {submitted.ids.front(), {}};
}

SubmittedAll Engine::submit_all(std::vector<Submission> submissions) {
  QUIRE_CHECK(!submissions.empty(), "nothing was submitted");
  State& state = *state_;
  std::optional<Refusal> refusal;
  for (std::size_t i = 0; i < submissions.size() && !refusal; ++i)
    refusal = find_fault(submissions[i].request, state.loaded.info, state.core->kv());
  std::lock_guard lock(state.mutex);
  if (!refusal) refusal = state.find_reason_to_refuse(static_cast<std::int64_t>(submissions.size()));
  if (refusal) {
    state.stats.refused += submissions.size();
    return {{}, std::move(*refusal)};
  }
  SubmittedAll submitted;
  const auto now = Clock::now();
  for (Submission& submission : submissions) {
    submitted.ids.push_back(RequestId{state.next_id++});
    state.inbox.push_back(
        SubmitCommand{submitted.ids.back(), std::move(submission.request), std::move(submission.callback), now});
  }
  state.in_flight += static_cast<std::int64_t>(submissions.size());
  state.unseen_submits += static_cast<std::int64_t>(submissions.size());
  state.wake.notify_one();
  return submitted;
}

void Engine::cancel(RequestId id) {
  std::lock_guard lock(state_->mutex);
  state_->inbox.push_back(CancelCommand{id});
  state_->wake.notify_one();
}

void Engine::stop_accepting() {
  std::lock_guard lock(state_->mutex);
  state_->accepting = false;
}

bool Engine::wait_idle(std::uint64_t timeout_ms) {
  std::unique_lock lock(state_->mutex);
  return state_->idle.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return state_->in_flight == 0; });
}

EngineStats Engine::stats() const {
  std::lock_guard lock(state_->mutex);
  return state_->stats;
}

}  // namespace quire::engine
