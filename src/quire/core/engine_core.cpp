#include "quire/core/engine_core.h"

#include "quire/base/check.h"
#include "quire/core/command_log.h"
#include "quire/core/command_log_records.h"
#include "quire/kv/paged_kv_manager.h"
#include "quire/kv/reserved_kv_manager.h"
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
  if (options.is_reserved())
    return std::make_unique<ReservedKvManager>(options.num_blocks, options.block_size, options.context_tokens);
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

bool EngineCore::cancel(RequestId request) {
  QUIRE_CHECK(!plan_is_open_, "cancel between plan_step and commit");
  record(sink_, put_cancel, request);
  return scheduler_->end(request, FinishReason::cancelled);
}

bool EngineCore::finish_branch(RequestId request, std::int32_t branch, FinishReason reason) {
  QUIRE_CHECK(!plan_is_open_, "finish_branch between plan_step and commit");
  record(sink_, put_finish, request, branch, reason);
  return scheduler_->end_branch(request, branch, reason);
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
  if (sink_) record(sink_, put_plan, plan_.step, plan_.digest());
  return plan_;
}

std::vector<Event> EngineCore::commit(const StepResult& result) {
  QUIRE_CHECK(plan_is_open_, "commit without a plan");
  QUIRE_CHECK(result.rows.size() == plan_.rows.size(), result.rows.size(), " results for ", plan_.rows.size(), " rows");
  record(sink_, put_commit, result);
  plan_is_open_ = false;
  scheduler_->commit(plan_, result.rows);
  return take_events();
}

std::vector<Event> EngineCore::take_events() { return scheduler_->take_events(); }

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
