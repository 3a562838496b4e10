#include "quire/core/engine_core.h"

#include "quire/base/check.h"
#include "quire/core/command_log.h"
#include "quire/core/command_log_records.h"
#include "quire/kv/paged_kv_manager.h"
#include "quire/kv/vattention_kv_manager.h"
#include "quire/sched/scheduler.h"

namespace quire {
namespace {

/// Hands the bytes of one record to the sink, if there is one.
template <class Put, class... Args>
void record(CommandSink* sink, Put put, const Args&... args) {
  if (!sink) return;
  ByteWriter out;
  put(out, args...);
  sink->append(out.bytes());
}

std::unique_ptr<KvManager> make_kv_manager(const CoreOptions& options, const CacheIdentity& identity) {
  const auto cache = options.prefix_cache ? std::optional(identity) : std::nullopt;
  if (options.is_vattention()) return std::make_unique<VAttentionKvManager>(options.vattention(), cache);
  return std::make_unique<PagedKvManager>(options.num_blocks, options.geometry(), cache,
                                          TierOptions{options.kv_ram_frames, options.kv_files});
}

}  // namespace

Result<std::unique_ptr<EngineCore>> EngineCore::create(const CoreOptions& options, CommandSink* sink,
                                                       const CacheIdentity& identity) {
  QUIRE_TRY_VOID(check_options(options));
  return std::unique_ptr<EngineCore>(new EngineCore(options, sink, identity));
}

EngineCore::EngineCore(const CoreOptions& options, CommandSink* sink, const CacheIdentity& identity)
    : sink_(sink), kv_(make_kv_manager(options, identity)), scheduler_(std::make_unique<Scheduler>(options, *kv_)) {
  record(sink_, put_header, options);
}

EngineCore::~EngineCore() = default;

// -- commands --

std::optional<Refusal> EngineCore::submit(CoreRequest request) {
  QUIRE_CHECK(!plan_is_open_, "submit between plan_step and commit");
  record(sink_, put_submit, request);
  return scheduler_->submit(std::move(request));
}

bool EngineCore::end(RequestId request, FinishReason reason) {
  QUIRE_CHECK(!plan_is_open_, "a command between plan_step and commit");
  const std::optional<std::int32_t> num_generated = scheduler_->end(request, reason);
  if (num_generated) events_.push_back(RequestFinished{request, reason, TokenId{-1}, *num_generated});
  return num_generated.has_value();
}

bool EngineCore::cancel(RequestId request) {
  record(sink_, put_cancel, request);
  return end(request, FinishReason::cancelled);
}

bool EngineCore::finish(RequestId request, FinishReason reason) {
  record(sink_, put_finish, request, reason);
  return end(request, reason);
}

void EngineCore::note_files(const std::vector<BlockKey>& keys) {
  QUIRE_CHECK(!plan_is_open_, "a command between plan_step and commit");
  record(sink_, put_files, keys);
  kv_->note_files(keys);
}

void EngineCore::end_transfer(const TransferEnd& end) {
  QUIRE_CHECK(!plan_is_open_, "a command between plan_step and commit");
  record(sink_, put_transfer, end);
  kv_->end_transfer(end);
}

// -- steps --

const BatchPlan& EngineCore::plan_step() {
  QUIRE_CHECK(!plan_is_open_, "plan_step before the last plan was committed");
  scheduler_->plan_step(plan_);
  plan_is_open_ = true;
  for (const Preemption& preemption : scheduler_->preempted())
    events_.push_back(RequestPreempted{preemption.request, preemption.num_preemptions, preemption.kind});
  for (const Start& start : scheduler_->started())
    events_.push_back(RequestStarted{start.request, start.cached_tokens});
  if (sink_) record(sink_, put_plan, plan_.step, plan_.digest());
  return plan_;
}

std::vector<Event> EngineCore::commit(const StepResult& result) {
  QUIRE_CHECK(plan_is_open_, "commit without a plan");
  QUIRE_CHECK(result.rows.size() == plan_.rows.size(), result.rows.size(), " results for ", plan_.rows.size(), " rows");
  record(sink_, put_commit, result);
  plan_is_open_ = false;
  for (std::size_t i = 0; i < plan_.rows.size(); ++i) commit_row(plan_.rows[i], result.rows[i]);
  return take_events();
}

void EngineCore::commit_row(const PlanRow& row, const RowResult& result) {
  if (result.failed) {
    end(row.request, FinishReason::failed);
    return;
  }
  const RowOutcome outcome = scheduler_->commit_row(row, result.token);
  if (outcome.emitted) events_.push_back(TokenSampled{row.request, *outcome.emitted, outcome.num_generated - 1});
  if (outcome.finished)
    events_.push_back(RequestFinished{row.request, *outcome.finished, outcome.stop_token, outcome.num_generated});
}

std::vector<Event> EngineCore::take_events() { return std::exchange(events_, {}); }

// -- state --

bool EngineCore::has_work() const { return num_waiting() + num_running() > 0; }
std::int32_t EngineCore::num_waiting() const { return scheduler_->num_waiting(); }
std::int32_t EngineCore::num_running() const { return scheduler_->num_running(); }
std::int32_t EngineCore::num_preempted() const { return scheduler_->num_preempted(); }
KvCapacity EngineCore::kv_capacity() const { return kv_->capacity(); }
const CoreOptions& EngineCore::options() const { return scheduler_->options(); }
const CoreCounters& EngineCore::counters() const { return scheduler_->counters(); }
const KvManager& EngineCore::kv() const { return *kv_; }
bool EngineCore::has_transfers_to_start() const { return kv_->has_transfers_to_start(); }
std::int32_t EngineCore::num_reads_in_flight() const { return kv_->num_reads_in_flight(); }

std::optional<std::int32_t> EngineCore::num_generated(RequestId request) const {
  return scheduler_->num_generated(request);
}

std::optional<std::string> EngineCore::validate() const {
  if (plan_is_open_) return kv_->validate();
  return scheduler_->validate();
}

}  // namespace quire
