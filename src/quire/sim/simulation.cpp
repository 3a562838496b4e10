#include "quire/sim/simulation.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "quire/base/hash.h"

namespace quire {
namespace {

/// A request that has not ended.
struct Live {
  RequestRecord record;
  std::uint64_t last_token_ns = 0;
  bool ended = false;
};

class Run {
 public:
  Run(System& system, const CostModel& cost, RequestSource& source, const SimulationOptions& options)
      : system_(system), cost_(cost), source_(source), options_(options) {
    result_.system = system.description();
    result_.cost = cost.description();
    result_.max_step_tokens = system.max_step_tokens();
  }

  SimulationResult run() {
    upcoming_ = source_.next();
    while (upcoming_ || system_.has_work()) {
      submit_arrived();
      if (now_ns_ >= options_.stop_ns) break;
      if (!system_.has_work()) {
        if (!upcoming_) break;
        if (upcoming_->arrival_ns > kMaxVirtualNs) {
          run_out_of_time();
          break;
        }
        now_ns_ = std::max(now_ns_, upcoming_->arrival_ns + cost_.wake_ns());
        continue;
      }
      if (!step()) break;
      if (result_.num_steps >= options_.max_steps || is_hopeless()) break;
    }
    result_.end_ns = now_ns_;
    if (film_) result_.film = film_->take(now_ns_);
    digest_.add(now_ns_);
    result_.digest = digest_.value();
    return std::move(result_);
  }

 private:
  void submit_arrived() {
    while (upcoming_ && upcoming_->arrival_ns <= now_ns_) {
      const RequestId id{++result_.num_requests};
      Live live;
      live.record.id = id;
      live.record.prompt_tokens = upcoming_->prompt_tokens;
      live.record.output_tokens = upcoming_->output_tokens;
      live.record.arrival_ns = upcoming_->arrival_ns;
      live.ended = !system_.submit(id, *upcoming_);
      if (live.ended && result_.num_refused++ == 0)
        result_.first_refusal = cat("request ", id.value, ": ", system_.refusal());
      live_.push_back(std::move(live));
      upcoming_ = source_.next();
    }
    forget_front();
  }

  bool run_out_of_time() {
    result_.ran_out_of_time = result_.was_hopeless = true;
    return false;
  }

  /// False if it would end behind kMaxVirtualNs.
  bool step() {
    const StepShape& shape = system_.plan_step();
    StepSample sample;
    sample.begin_ns = now_ns_;
    const std::uint64_t left_ns = now_ns_ > kMaxVirtualNs ? 0 : kMaxVirtualNs - now_ns_;
    const std::uint64_t took_ns = std::max<std::uint64_t>(1, cost_.step_ns(shape));
    if (took_ns > left_ns) return run_out_of_time();
    const std::uint64_t interruption_ns = cost_.interruption_ns(result_.num_steps, took_ns);
    if (interruption_ns > left_ns - took_ns) return run_out_of_time();
    now_ns_ += took_ns + interruption_ns;
    sample.end_ns = now_ns_;
    sample.num_running = system_.num_running();
    sample.num_waiting = system_.num_waiting();
    sample.prefill_tokens = shape.num_prefill_tokens;
    sample.decode_tokens = shape.num_decode_tokens;
    sample.memory = system_.memory();
    if (options_.records_blocks) film_step(sample.begin_ns);
    note_step(sample);
    changes_.clear();
    system_.commit(changes_);
    for (const RequestChange& change : changes_) apply(change, sample);
    if (options_.observe) options_.observe(sample, changes_);
    forget_front();
    if (options_.progress && result_.num_steps % 1024 == 0) options_.progress(result_.num_finished, now_ns_);
    return true;
  }

  void film_step(std::uint64_t begin_ns) {
    if (film_ && !film_->wants_look()) return film_->pass();
    system_.look_at_blocks(cells_);
    if (cells_.empty()) return;
    if (!film_) film_.emplace(static_cast<std::int32_t>(cells_.size()), system_.block_size());
    film_->look(begin_ns, cells_);
  }

  void note_step(const StepSample& sample) {
    const std::uint64_t number = result_.num_steps++;
    result_.busy_ns += sample.end_ns - sample.begin_ns;
    result_.step_ns.add(sample.end_ns - sample.begin_ns);
    result_.scheduled_tokens += static_cast<std::uint64_t>(sample.prefill_tokens + sample.decode_tokens);
    result_.max_running = std::max(result_.max_running, sample.num_running);
    result_.max_waiting = std::max(result_.max_waiting, sample.num_waiting);
    result_.utilisation_per_mille.add(static_cast<std::uint64_t>(sample.memory.written_slots * 1000 /
                                                                 std::max<std::int64_t>(1, sample.memory.pool_slots)));
    if (sample.begin_ns >= options_.begin_ns && sample.begin_ns < options_.end_ns) result_.memory.add(sample);
    digest_.add(sample.end_ns);
    if (options_.digests_plans) digest_.add(system_.plan_digest());
    if (options_.max_samples == 0 || number % sample_stride_ != 0) return;
    result_.samples.push_back(sample);
    if (result_.samples.size() <= options_.max_samples) return;
    for (std::size_t i = 0; 2 * i < result_.samples.size(); ++i) result_.samples[i] = result_.samples[2 * i];
    result_.samples.resize((result_.samples.size() + 1) / 2);
    sample_stride_ *= 2;
  }

  void apply(const RequestChange& change, const StepSample& step) {
    Live& live = live_[static_cast<std::size_t>(change.request.value - first_id_)];
    RequestRecord& record = live.record;
    switch (change.kind) {
      case ChangeKind::started:
        record.start_ns = step.begin_ns;
        record.cached_tokens = change.tokens;
        result_.queue_ns.add(step.begin_ns - record.arrival_ns);
        return;
      case ChangeKind::preempted:
        ++record.num_preemptions;
        ++result_.num_preemptions;
        if (options_.max_records > 0) record.preempted_ns.push_back(step.begin_ns);
        return;
      case ChangeKind::chunk:
        if (options_.max_records > 0) record.chunks.push_back({step.begin_ns, step.end_ns, change.tokens});
        return;
      case ChangeKind::restored:
        if (options_.max_records > 0) record.add_restored({step.begin_ns, step.end_ns, change.tokens});
        return;
      case ChangeKind::token:
        if (live.last_token_ns == 0) {
          record.first_token_ns = now_ns_;
          result_.ttft_ns.add(now_ns_ - record.arrival_ns);
        } else {
          result_.inter_token_ns.add(now_ns_ - live.last_token_ns);
        }
        live.last_token_ns = now_ns_;
        return;
      case ChangeKind::finished:
        finish(live);
        return;
    }
  }

  void finish(Live& live) {
    RequestRecord& record = live.record;
    record.finish_ns = now_ns_;
    live.ended = true;
    ++result_.num_finished;
    result_.prompt_tokens += static_cast<std::uint64_t>(record.prompt_tokens);
    result_.output_tokens += static_cast<std::uint64_t>(record.output_tokens);
    const std::uint64_t took_ns = now_ns_ - record.arrival_ns;
    result_.end_to_end_ns.add(took_ns);
    const std::uint64_t normalized = took_ns / static_cast<std::uint64_t>(record.output_tokens);
    result_.normalized_ns.add(normalized);
    sum_normalized_s_ += static_cast<double>(normalized) * 1e-9;
    if (result_.records.size() < options_.max_records) result_.records.push_back(std::move(record));
  }

  bool is_hopeless() {
    if (options_.gives_up && result_.num_steps % 64 == 0 && options_.gives_up(result_))
      return result_.was_hopeless = true;
    if (options_.hopeless_latency <= 0) return false;
    return result_.was_hopeless =
               sum_normalized_s_ > options_.hopeless_latency * static_cast<double>(options_.expected_requests);
  }

  void forget_front() {
    for (; !live_.empty() && live_.front().ended; ++first_id_) live_.pop_front();
  }

  System& system_;
  const CostModel& cost_;
  RequestSource& source_;
  const SimulationOptions& options_;
  SimulationResult result_;
  std::optional<RequestSpec> upcoming_;
  std::uint64_t now_ns_ = 0;
  std::deque<Live> live_;  ///< by id from first_id_
  std::uint64_t first_id_ = 1;
  std::uint64_t sample_stride_ = 1;
  double sum_normalized_s_ = 0;
  std::vector<RequestChange> changes_;
  std::optional<BlockFilmRecorder> film_;
  std::vector<BlockCell> cells_;  ///< kept for its memory
  Digest digest_;
};

}  // namespace

void RequestRecord::add_restored(const WorkSpan& step) {
  if (restored.size() < preempted_ns.size()) {
    restored.push_back(step);
  } else if (!restored.empty()) {
    restored.back().end_ns = step.end_ns;
    restored.back().tokens += step.tokens;
  }
}

void WeightedMemory::add(const StepSample& step) {
  const auto ns = static_cast<unsigned __int128>(step.end_ns - step.begin_ns);
  const auto slots = [ns](std::int64_t count) { return ns * static_cast<std::uint64_t>(count); };
  duration_ns += step.end_ns - step.begin_ns;
  pool += slots(step.memory.pool_slots);
  written += slots(step.memory.written_slots);
  reserved += slots(step.memory.reserved_slots);
  unused += slots(step.memory.unused_slots);
  rounding += slots(step.memory.rounding_slots);
  running += slots(step.num_running);
  waiting += slots(step.num_waiting);
}

SimulationResult simulate(System& system, const CostModel& cost, RequestSource& source,
                          const SimulationOptions& options) {
  return Run(system, cost, source, options).run();
}

}  // namespace quire
