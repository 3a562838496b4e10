#include "quire/sim/exercise.h"

#include <algorithm>
#include <memory>

#include "quire/base/checked.h"
#include "quire/base/hash.h"
#include "quire/base/rng.h"
#include "quire/core/engine_core.h"
#include "quire/kv/paged_kv_manager.h"
#include "quire/kv/reserved_kv_manager.h"
#include "quire/sim/cost_model.h"
#include "quire/sim/exercise_blocks.h"
#include "quire/sim/manager_allocator.h"
#include "quire/sim/reserving_system.h"

namespace quire {
namespace {

/// Of all requests at their maximum length: what a step may compute.
constexpr std::int64_t kMostTokensAStep = 1 << 30;

/// One side's sums over steps.
class Tally {
 public:
  Tally(std::int64_t pool_slots, std::int32_t block_size) : pool_(pool_slots), block_size_(block_size) {}

  struct Step {
    std::int32_t num_running = 0, num_waiting = 0;
    std::int64_t filled = 0, held = 0;  ///< slots
  };
  void add(const Step& step) {
    ++side_.num_steps;
    held_ += step.held;
    unfilled_ += step.held - step.filled;
    side_.blocks_occupied_max = std::max(side_.blocks_occupied_max, ceil_div(step.held, block_size_));
    side_.requests_at_once_max = std::max(side_.requests_at_once_max, step.num_running);
    const double utilisation = static_cast<double>(step.filled) / static_cast<double>(pool_);
    side_.utilisation_by_step.push_back(static_cast<float>(utilisation));
    const auto bucket = static_cast<std::size_t>(step.filled * std::int64_t{kUtilisationBuckets} / pool_);
    ++side_.utilisation_histogram[std::min(bucket, kUtilisationBuckets - 1)];
    all_.add(step);
    if (step.num_waiting == 0) return;
    ++side_.num_waiting_steps;
    waiting_.add(step);
  }

  ExerciseSide& side() { return side_; }

  ExerciseSide result() {
    const bool anybody_waits = side_.num_waiting_steps > 0;
    const Sums& sums = anybody_waits ? waiting_ : all_;
    const double steps =
        static_cast<double>(std::max<std::uint64_t>(1, anybody_waits ? side_.num_waiting_steps : side_.num_steps));
    const double slots = steps * static_cast<double>(pool_);
    side_.blocks_occupied = static_cast<double>(sums.held) / steps / block_size_;
    side_.utilisation = static_cast<double>(sums.filled) / slots;
    side_.external_fragmentation = anybody_waits ? 1.0 - static_cast<double>(sums.held) / slots : 0;
    side_.internal_fragmentation = held_ == 0 ? 0 : static_cast<double>(unfilled_) / static_cast<double>(held_);
    side_.requests_at_once_mean = static_cast<double>(sums.running) / steps;
    return std::move(side_);
  }

 private:
  struct Sums {
    std::int64_t filled = 0, held = 0, running = 0;
    void add(const Step& step) {
      filled += step.filled;
      held += step.held;
      running += step.num_running;
    }
  };
  const std::int64_t pool_;
  const std::int32_t block_size_;
  ExerciseSide side_;
  std::int64_t held_ = 0, unfilled_ = 0;
  Sums all_, waiting_;  ///< over all steps, and over those in which requests wait
};

/// What all sides of the exercise have in common.
struct World {
  const ExerciseOptions& options;
  const std::vector<std::int32_t>& lengths;
  const CostModel& cost;
  BlockFile& file;
};

/// A request that holds `length` slots at its end and runs for `length` steps: a prompt of one token, and an answer
/// whose last token is never written.
RequestSpec spec_of(std::int32_t length) {
  RequestSpec spec;
  spec.prompt_tokens = 1;
  spec.output_tokens = length;
  return spec;
}

ExerciseSide run_reserving(const World& world, ReservingSystem& system, LengthMode mode) {
  for (std::size_t i = 0; i < world.lengths.size(); ++i)
    QUIRE_CHECK(system.submit(RequestId{i + 1}, spec_of(world.lengths[i])), "checked before");
  std::int64_t pool_slots = std::int64_t{world.options.num_blocks} * world.options.block_size;
  Tally tally(pool_slots, world.options.block_size);
  std::vector<RequestChange> changes;
  while (system.has_work()) {
    tally.side().virtual_ns += world.cost.step_ns(system.plan_step());
    const MemoryUse use = system.memory();
    const std::int64_t filled = use.written_slots + (mode == LengthMode::static_length ? use.reserved_slots : 0);
    tally.add({system.num_running(), system.num_waiting(), filled, use.pool_slots - use.free_slots()});
    system.commit(changes);
  }
  tally.side().allocation_failures = system.num_failures();
  tally.side().digest = system.plan_digest();
  return tally.result();
}

/// The engine's own core, whose preempted requests go to the file.
class GrowingRun {
 public:
  GrowingRun(const World& world, std::int32_t max_len)
      : world_(world),
        max_len_(max_len),
        blocks_(world.options.num_blocks, world.options.block_size, world.file),
        tally_(std::int64_t{world.options.num_blocks} * world.options.block_size, world.options.block_size),
        recorder_(world.options.num_blocks, world.options.block_size) {}

  Result<ExerciseSide> run() {
    QUIRE_TRY(core_, EngineCore::create(core_options()));
    QUIRE_TRY_VOID(submit_all());
    while (core_->has_work()) QUIRE_TRY_VOID(step());
    record_.end_ns = tally_.side().virtual_ns;
    record_.film = recorder_.take(record_.end_ns);
    ExerciseSide& side = tally_.side();
    side.preemptions = core_->counters().preemptions;
    side.allocation_failures += side.preemptions;
    side.bytes_written = blocks_.bytes_written();
    side.bytes_read = blocks_.bytes_read();
    side.digest = digest_.value();
    return tally_.result();
  }
  std::uint64_t blocks_restored() const { return blocks_.blocks_restored(); }
  SimulationResult take_record() { return std::move(record_); }

 private:
  struct Live {
    SequenceId sequence;
    std::int32_t computed = 0;
  };
  RequestRecord& record_of(RequestId request) { return record_.records[request.value - 1]; }

  CoreOptions core_options() const {
    const ExerciseOptions& options = world_.options;
    CoreOptions core;
    core.block_size = options.block_size;
    core.num_blocks = options.num_blocks;
    core.context_tokens = max_len_ + 1;  // the last token counts, though nothing of it is held
    core.token_budget = options.num_requests * max_len_;
    core.max_rows = options.num_requests;
    core.watermark_blocks = 0;
    core.victim_policy = "oldest";
    return core;
  }

  Result<void> submit_all() {
    for (std::size_t i = 0; i < world_.lengths.size(); ++i) {
      const RequestSpec spec = spec_of(world_.lengths[i]);
      CoreRequest request;
      request.id = RequestId{i + 1};
      request.prompt.resize(static_cast<std::size_t>(spec.prompt_tokens));
      request.max_tokens = spec.output_tokens;
      RequestRecord& record = record_.records.emplace_back();
      record.id = request.id;
      record.prompt_tokens = spec.prompt_tokens;
      record.output_tokens = spec.output_tokens;
      record.restores_by_reading = true;
      if (const auto refusal = core_->submit(std::move(request))) return fail(refusal->message);
    }
    return {};
  }

  Result<void> step() {
    const BatchPlan& plan = core_->plan_step();
    const std::uint64_t begin_ns = tally_.side().virtual_ns;
    for (const Event& event : core_->take_events()) {
      if (const auto* preempted = std::get_if<RequestPreempted>(&event)) {
        Live& live = live_[preempted->request];
        QUIRE_TRY_VOID(blocks_.spill(preempted->request, live.sequence, live.computed));
        written_ -= live.computed;
        live.computed = 0;
        record_of(preempted->request).preempted_ns.push_back(begin_ns);
      }
    }
    QUIRE_TRY_VOID(blocks_.apply(plan));
    note(plan);
    record(plan, begin_ns);
    StepResult result;
    result.rows.assign(plan.rows.size(), RowResult{TokenId{0}});
    for (const Event& event : core_->commit(result)) {
      if (const auto* finished = std::get_if<RequestFinished>(&event)) {
        const Live& live = live_[finished->request];
        record_of(finished->request).finish_ns = tally_.side().virtual_ns;
        QUIRE_TRY_VOID(blocks_.check(finished->request, live.sequence, live.computed));
        written_ -= live.computed;
        live_.erase(finished->request);
      }
    }
    return {};
  }

  void note(const BatchPlan& plan) {
    // Every row computes one token: what a resumed request had before comes from the file.
    StepShape shape;
    for (const PlanRow& row : plan.rows) {
      shape.add_decode(row.end());
      digest_.add(row.request.value << 32 | static_cast<std::uint32_t>(row.end()));
      Live& live = live_[row.request];
      written_ += row.end() - live.computed;
      live = {row.sequence, row.end()};
    }
    for (BlockId block : plan.new_blocks) digest_.add(block.value);
    const std::uint64_t file_bytes = blocks_.bytes_written() + blocks_.bytes_read();
    tally_.side().virtual_ns += world_.cost.step_ns(shape);
    tally_.side().virtual_ns += (file_bytes - file_bytes_) * (1'000'000'000 / kExerciseFileBytesPerSecond);
    file_bytes_ = file_bytes;
    const KvCapacity capacity = core_->kv_capacity();
    tally_.add({core_->num_running(), core_->num_waiting(), written_,
                std::int64_t{capacity.used_blocks()} * capacity.block_size});
    if (core_->num_waiting() > 0) ++tally_.side().allocation_failures;
  }

  /// For pictures: the step, its requests, and whose the blocks are.
  void record(const BatchPlan& plan, std::uint64_t begin_ns) {
    StepSample step{begin_ns, tally_.side().virtual_ns, core_->num_running(), core_->num_waiting()};
    for (const PlanRow& row : plan.rows) {
      RequestRecord& request = record_of(row.request);
      if (row.end() == 1) {
        request.start_ns = begin_ns;
        request.first_token_ns = step.end_ns;
        request.chunks.push_back({begin_ns, step.end_ns, 1});
        ++step.prefill_tokens;
      } else {
        ++step.decode_tokens;
      }
      if (request.restored.size() < request.preempted_ns.size())
        request.add_restored({begin_ns, step.end_ns, row.begin});
    }
    const KvCapacity capacity = core_->kv_capacity();
    step.memory.pool_slots = capacity.num_tokens();
    step.memory.written_slots = written_;
    step.memory.unused_slots = std::int64_t{capacity.used_blocks()} * capacity.block_size - written_;
    record_.samples.push_back(step);
    owners_.note(plan);
    owners_.look(core_->kv(), cells_);
    recorder_.look(begin_ns, cells_);
  }

  const World& world_;
  const std::int32_t max_len_;
  std::unique_ptr<EngineCore> core_;
  ExerciseBlocks blocks_;
  Tally tally_;
  std::map<RequestId, Live> live_;
  std::int64_t written_ = 0;      ///< slots
  std::uint64_t file_bytes_ = 0;  ///< whose time has passed
  Digest digest_;
  SimulationResult record_;
  BlockOwners owners_;
  BlockFilmRecorder recorder_;
  std::vector<BlockCell> cells_;
};

/// The means that bound how many more requests paging serves at once; see ExerciseSetting.
void set_bounds(const std::vector<std::int32_t>& lengths, std::int64_t pool_slots, ExerciseSetting& setting) {
  double sum_held = 0, sum_length = 0, sum_by_step = 0;
  for (std::int32_t length : lengths) {
    const auto whole = static_cast<double>(round_up(length, setting.block_size));
    double held_steps = 0;
    for (std::int32_t t = 1; t <= length; ++t)
      held_steps += setting.mode == LengthMode::growing ? static_cast<double>(round_up(t, setting.block_size)) : whole;
    sum_held += whole;
    sum_length += length;
    sum_by_step += held_steps;
  }
  // An array of whole blocks: as many as the pool has room for, whose rest is of no use to them.
  const std::int64_t num_arrays = pool_slots / round_up(setting.max_len, setting.block_size);
  const double slots_an_array = static_cast<double>(pool_slots) / static_cast<double>(num_arrays);
  setting.concurrency_bound_by_step = slots_an_array * sum_length / sum_by_step;
  setting.concurrency_bound = setting.mode == LengthMode::growing
                                  ? setting.concurrency_bound_by_step
                                  : slots_an_array * static_cast<double>(lengths.size()) / sum_held;
}

/// `growing`: takes the record of the paged side, if it is not null and the mode is growing.
Result<ExerciseSetting> run_setting(const World& world, std::int32_t max_len, LengthMode mode,
                                    std::uint64_t& blocks_restored, SimulationResult* growing = nullptr) {
  const ExerciseOptions& options = world.options;
  ExerciseSetting setting;
  setting.max_len = max_len;
  setting.mode = mode;
  setting.block_size = options.block_size;
  const auto reserving = [&](std::string name, std::unique_ptr<KvManager> memory) {
    ReservingSystem system({std::move(name), ReservationRule::written, max_len, options.num_requests},
                           std::make_unique<ManagerAllocator>(std::move(memory)));
    return run_reserving(world, system, mode);
  };
  if (mode == LengthMode::static_length) {
    setting.paged = reserving("paged", std::make_unique<PagedKvManager>(options.num_blocks, options.block_size));
  } else {
    GrowingRun run(world, max_len);
    QUIRE_TRY(setting.paged, run.run());
    blocks_restored += run.blocks_restored();
    if (growing) *growing = run.take_record();
  }
  setting.contiguous =
      reserving("contiguous", std::make_unique<ReservedKvManager>(options.num_blocks, options.block_size, max_len));
  setting.concurrency_ratio = setting.paged.requests_at_once_mean / setting.contiguous.requests_at_once_mean;
  set_bounds(world.lengths, std::int64_t{options.num_blocks} * options.block_size, setting);
  return setting;
}

}  // namespace

std::string_view to_string(LengthMode mode) { return mode == LengthMode::growing ? "growing" : "static"; }

Result<void> check_options(const ExerciseOptions& options) {
  if (options.num_requests < 1 || options.num_requests > 1'000'000)
    return fail("found ", options.num_requests, " requests, wanted 1 to 1000000");
  if (options.shortest < 1 || options.longest < options.shortest || options.longest > 1'000'000)
    return fail("found lengths of ", options.shortest, " to ", options.longest, ", wanted a range within 1 to 1000000");
  if (!is_block_size(options.block_size))
    return fail("found a block size of ", options.block_size, ", wanted 8, 16, 32, 64 or 128");
  if (options.num_blocks < 1 || options.num_blocks > 1 << 20)
    return fail("found ", options.num_blocks, " blocks, wanted 1 to ", 1 << 20);
  const std::int64_t slots = std::int64_t{options.num_blocks} * options.block_size;
  for (std::int32_t max_len : options.max_lens)
    if (max_len < options.longest || max_len >= slots)
      return fail("found a maximum length of ", max_len, ", wanted at least the longest request, ", options.longest,
                  ", and less than the pool, ", slots, " slots");
  for (std::int32_t max_len : options.max_lens)
    if (std::int64_t{max_len} * options.num_requests > kMostTokensAStep)
      return fail("found ", options.num_requests, " requests of a maximum length of ", max_len, ", wanted at most ",
                  kMostTokensAStep, " tokens in all");
  return {};
}

Result<ExerciseReport> run_exercise(const ExerciseOptions& options, BlockFile& file) {
  QUIRE_TRY_VOID(check_options(options));
  ExerciseReport report;
  report.options = options;
  Rng rng(options.seed);
  for (std::int32_t i = 0; i < options.num_requests; ++i) {
    report.lengths.push_back(static_cast<std::int32_t>(rng.between(options.shortest, options.longest)));
    report.unlimited_blocks += ceil_div(report.lengths.back(), options.block_size);
  }
  report.unlimited_arrays = options.num_requests * ceil_div(options.max_lens.front(), options.block_size);
  QUIRE_TRY(const auto cost, make_cost_model("opt-13b"));
  report.cost = cost->description();
  const World world{options, report.lengths, *cost, file};
  for (std::int32_t max_len : options.max_lens)
    for (LengthMode mode : {LengthMode::static_length, LengthMode::growing}) {
      SimulationResult* const growing = max_len == options.max_lens.front() ? &report.growing : nullptr;
      QUIRE_TRY(auto setting, run_setting(world, max_len, mode, report.blocks_restored, growing));
      report.settings.push_back(std::move(setting));
    }
  const std::int64_t slots = std::int64_t{options.num_blocks} * options.block_size;
  for (std::int32_t block_size : {8, 16, 32, 64, 128}) {
    if (slots % block_size != 0) continue;
    ExerciseOptions other = options;
    other.block_size = block_size;
    other.num_blocks = static_cast<std::int32_t>(slots / block_size);
    const World swept{other, report.lengths, *cost, file};
    for (LengthMode mode : {LengthMode::static_length, LengthMode::growing}) {
      QUIRE_TRY(auto setting, run_setting(swept, options.max_lens.front(), mode, report.blocks_restored));
      report.sweep.push_back(std::move(setting));
    }
  }
  return report;
}

}  // namespace quire
