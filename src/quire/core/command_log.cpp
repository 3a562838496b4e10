#include "quire/core/command_log.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "quire/core/command_log_records.h"
#include "quire/core/engine_core.h"

namespace quire {
namespace {

std::vector<TokenId> get_tokens(ByteReader& in) {
  std::vector<TokenId> tokens(in.get_count(4));
  for (TokenId& token : tokens) token.value = in.get<std::int32_t>();
  return tokens;
}

std::vector<BlockKey> get_keys(ByteReader& in) {
  std::vector<BlockKey> keys(in.get_count(sizeof(BlockKey)));
  for (BlockKey& key : keys)
    for (std::byte& byte : key.bytes) byte = static_cast<std::byte>(in.get<std::uint8_t>());
  return keys;
}

std::optional<std::int32_t> get_optional(ByteReader& in) {
  const bool has_value = in.get<std::uint8_t>() != 0;
  const auto value = in.get<std::int32_t>();
  return has_value ? std::optional(value) : std::nullopt;
}

std::optional<BeamParams> get_beams(ByteReader& in) {
  if (in.get<std::uint8_t>() == 0) return std::nullopt;
  BeamParams beams;
  beams.width = in.get<std::int32_t>();
  beams.num_returned = in.get<std::int32_t>();
  beams.length_penalty = std::bit_cast<double>(in.get<std::uint64_t>());
  beams.early_stopping = static_cast<EarlyStopping>(in.get<std::uint8_t>());
  return beams;
}

CoreRequest get_submit(ByteReader& in) {
  CoreRequest request;
  request.id = RequestId{in.get<std::uint64_t>()};
  request.prompt = get_tokens(in);
  request.max_tokens = get_optional(in);
  request.stop_tokens = get_tokens(in);
  request.min_tokens = in.get<std::int32_t>();
  request.logits_from = get_optional(in);
  request.priority = in.get<std::int32_t>();
  request.salt = in.get_text();
  request.num_branches = in.get<std::int32_t>();
  request.beams = get_beams(in);
  return request;
}

StepResult get_commit(ByteReader& in) {
  StepResult result;
  result.elapsed_ns = in.get<std::uint64_t>();
  result.rows.resize(in.get_count(13));
  for (RowResult& row : result.rows) {
    row.token.value = in.get<std::int32_t>();
    const auto outcome = in.get<std::uint8_t>();
    row.failed = outcome == 1;
    row.refused = outcome > 1;
    row.candidates.resize(in.get_count(8));
    for (Candidate& candidate : row.candidates) {
      candidate.token.value = in.get<std::int32_t>();
      candidate.logprob = std::bit_cast<float>(in.get<std::uint32_t>());
    }
    row.more = get_tokens(in);
  }
  return result;
}

Result<CoreOptions> get_header(ByteReader& in) {
  std::string magic(kLogMagic.size(), '\0');
  for (char& c : magic) c = static_cast<char>(in.get<std::uint8_t>());
  if (in.failed() || magic != kLogMagic) return fail("not a command log: it does not begin with ", kLogMagic);
  const auto version = in.get<std::uint32_t>();
  if (!in.failed() && version != kLogVersion)
    return fail("command log of version ", version, "; this program reads version ", kLogVersion);
  CoreOptions options;
  options.block_size = in.get<std::int32_t>();
  options.num_blocks = in.get<std::int32_t>();
  options.context_tokens = in.get<std::int32_t>();
  options.token_budget = in.get<std::int32_t>();
  options.max_rows = in.get<std::int32_t>();
  options.watermark_blocks = in.get<std::int32_t>();
  options.ageing_steps = in.get<std::int32_t>();
  options.queue_policy = in.get_text();
  options.victim_policy = in.get_text();
  options.step_composition = in.get_text();
  options.prefix_cache = in.get<std::uint8_t>() != 0;
  options.num_speculative_tokens = in.get<std::int32_t>();
  options.ngram.min_match = in.get<std::int32_t>();
  options.ngram.max_match = in.get<std::int32_t>();
  options.kv_manager = in.get_text();
  options.tile_bytes = in.get<std::int64_t>();
  options.page_group_bytes = in.get<std::int64_t>();
  options.num_kv_tensors = in.get<std::int32_t>();
  options.max_mappings = in.get<std::int32_t>();
  options.num_idle_places = in.get<std::int32_t>();
  options.kv_ram_frames = in.get<std::int32_t>();
  options.kv_files = in.get<std::uint8_t>() != 0;
  options.preemption = in.get_text();
  options.copy_block_ns = in.get<std::int64_t>();
  options.compute_token_ns = in.get<std::int64_t>();
  options.layer_groups.resize(in.get_count(4));
  for (LayerGroup& group : options.layer_groups) group.window = in.get<std::int32_t>();
  if (in.failed()) return fail("the command log ends within its header, at byte ", in.position());
  return options;
}

/// Proposals that came true are what was drawn before them.
bool agrees_with(std::span<const TokenId> proposed, const RowResult& result) {
  for (std::size_t i = 0; i < result.more.size(); ++i)
    if (proposed[i] != (i == 0 ? result.token : result.more[i - 1])) return false;
  return result.more.empty() || result.more.back().value >= 0;
}

bool is_result_of(const BatchPlan& plan, const PlanRow& row, const RowResult& result) {
  if (result.more.size() > static_cast<std::size_t>(result.failed || result.refused ? 0 : row.num_proposed))
    return false;
  if (result.failed || result.refused || !row.samples) return true;
  const auto proposed = std::span(plan.tokens)
                            .subspan(static_cast<std::size_t>(row.token_offset + row.num_tokens - row.num_proposed),
                                     static_cast<std::size_t>(row.num_proposed));
  if (row.num_outputs == 1 && !row.ranked) return result.token.value >= 0 && agrees_with(proposed, result);
  const auto num_outputs = static_cast<std::size_t>(row.num_outputs);
  const bool counts = row.ranked ? !result.candidates.empty() && result.candidates.size() <= num_outputs
                                 : result.candidates.size() == num_outputs;
  return counts && std::all_of(result.candidates.begin(), result.candidates.end(), [](const Candidate& candidate) {
           return candidate.token.value >= 0 && std::isfinite(candidate.logprob);
         });
}

class CoreTarget final : public ReplayTarget {
 public:
  explicit CoreTarget(EngineCore& core) : core_(core) {}
  /// A refusal then is a refusal now.
  void submit(CoreRequest request) override { static_cast<void>(core_.submit(std::move(request))); }
  void cancel(RequestId request) override { core_.cancel(request); }
  void finish_branch(RequestId request, std::int32_t branch, FinishReason reason) override {
    core_.finish_branch(request, branch, reason);
  }
  void note_files(const std::vector<BlockKey>& keys) override { core_.note_files(keys); }
  void end_transfer(const TransferEnd& end) override { core_.end_transfer(end); }
  const BatchPlan& plan_step() override { return core_.plan_step(); }
  std::vector<Event> commit(const StepResult& result) override { return core_.commit(result); }
  std::vector<Event> take_events() override { return core_.take_events(); }

 private:
  EngineCore& core_;
};

/// Runs the records of a log on a core. Every record is compared with what the core can accept before it is applied.
class Replayer {
 public:
  Replayer(ByteReader& in, ReplayTarget& core, Replay& replay) : in_(in), core_(core), replay_(replay) {}

  Result<void> run() {
    while (in_.bytes_left() > 0 && !replay_.first_difference) {
      record_at_ = in_.position();
      QUIRE_TRY_VOID(run_record(in_.get<std::uint8_t>()));
      for (Event& event : core_.take_events()) replay_.events.push_back(event);
    }
    return {};
  }

 private:
  Result<void> run_record(std::uint8_t tag) {
    switch (static_cast<LogTag>(tag)) {
      case LogTag::submit:
        return run_submit();
      case LogTag::cancel:
        return run_cancel();
      case LogTag::finish:
        return run_finish();
      case LogTag::plan:
        return run_plan();
      case LogTag::commit:
        return run_commit();
      case LogTag::files:
        return run_files();
      case LogTag::transfer:
        return run_transfer();
    }
    return error("its tag is ", static_cast<int>(tag), ", tags are 1 to 7");
  }

  Result<void> run_submit() {
    CoreRequest request = get_submit(in_);
    QUIRE_TRY_VOID(check_command());
    if (request.beams && request.beams->early_stopping > EarlyStopping::never)
      return error("its early stopping is ", static_cast<int>(request.beams->early_stopping));
    core_.submit(std::move(request));
    return {};
  }

  Result<void> run_cancel() {
    const RequestId request{in_.get<std::uint64_t>()};
    QUIRE_TRY_VOID(check_command());
    core_.cancel(request);
    return {};
  }

  Result<void> run_finish() {
    const RequestId request{in_.get<std::uint64_t>()};
    const auto branch = in_.get<std::int32_t>();
    const auto reason = in_.get<std::uint8_t>();
    QUIRE_TRY_VOID(check_command());
    if (reason > static_cast<std::uint8_t>(FinishReason::stopped_by_caller))
      return error("its finish reason is ", static_cast<int>(reason));
    core_.finish_branch(request, branch, static_cast<FinishReason>(reason));
    return {};
  }

  Result<void> run_files() {
    const std::vector<BlockKey> keys = get_keys(in_);
    QUIRE_TRY_VOID(check_command());
    core_.note_files(keys);
    return {};
  }

  Result<void> run_transfer() {
    TransferEnd end{TransferId{in_.get<std::uint64_t>()}, {}, {}};
    const auto outcome = in_.get<std::uint8_t>();
    end.removed = get_keys(in_);
    QUIRE_TRY_VOID(check_command());
    if (outcome >= kNumTransferOutcomes) return error("its transfer outcome is ", static_cast<int>(outcome));
    end.outcome = static_cast<TransferOutcome>(outcome);
    core_.end_transfer(end);
    return {};
  }

  Result<void> run_plan() {
    const auto step = in_.get<std::uint64_t>();
    const auto digest = in_.get<std::uint64_t>();
    if (in_.failed()) return cut();
    if (open_plan_) return error("a plan comes before the commit of the last one");
    open_plan_ = &core_.plan_step();
    if (open_plan_->step != step) return error("it plans step ", step, ", due is step ", open_plan_->step);
    replay_.plan_digests.push_back(open_plan_->digest());
    if (replay_.plan_digests.back() != digest) {
      replay_.first_difference = step;
      replay_.recorded_digest = digest;
    }
    return {};
  }

  Result<void> run_commit() {
    const StepResult result = get_commit(in_);
    if (in_.failed()) return cut();
    if (!open_plan_) return error("a commit comes without a plan");
    const std::vector<PlanRow>& rows = open_plan_->rows;
    if (result.rows.size() != rows.size())
      return error("it commits ", result.rows.size(), " rows, the plan has ", rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (!is_result_of(*open_plan_, rows[i], result.rows[i]))
        return error("row ", i, " has not the tokens that it was planned for");
    open_plan_ = nullptr;
    for (Event& event : core_.commit(result)) replay_.events.push_back(event);
    return {};
  }

  Result<void> check_command() {
    if (in_.failed()) return cut();
    if (open_plan_) return error("a command comes between a plan and its commit");
    ++replay_.num_commands;
    return {};
  }

  Error cut() const { return fail("command log: the record at byte ", record_at_, " is cut"); }

  template <class... Args>
  Error error(const Args&... args) const {
    return fail("command log: the record at byte ", record_at_, " is wrong: ", args...);
  }

  ByteReader& in_;
  ReplayTarget& core_;
  Replay& replay_;
  std::size_t record_at_ = 0;
  const BatchPlan* open_plan_ = nullptr;
};

}  // namespace

Result<CoreOptions> read_log_options(std::span<const std::byte> log) {
  ByteReader in(log);
  return get_header(in);
}

Result<Replay> replay_on(ReplayTarget& target, std::span<const std::byte> log) {
  ByteReader in(log);
  Replay replay;
  QUIRE_TRY(replay.options, get_header(in));
  QUIRE_TRY_VOID(Replayer(in, target, replay).run());
  return replay;
}

Result<Replay> replay(std::span<const std::byte> log, CommandSink* sink, const CacheIdentity& identity) {
  QUIRE_TRY(const CoreOptions options, read_log_options(log));
  QUIRE_TRY(const std::unique_ptr<EngineCore> core, EngineCore::create(options, sink, identity));
  CoreTarget target(*core);
  return replay_on(target, log);
}

}  // namespace quire
