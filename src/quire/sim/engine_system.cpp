#include "quire/sim/engine_system.h"

#include <algorithm>
#include <utility>

#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/base/hash.h"
#include "quire/kv/paged_kv_manager.h"

namespace quire {
namespace {

constexpr std::int32_t kEnded = -1;

TokenId token_of(std::uint64_t name, std::uint64_t position) {
  return TokenId{static_cast<std::int32_t>(mix64(name * 0x9E3779B97F4A7C15ull + position) >> 33)};
}

/// What decides the tokens of a request beyond named blocks: of a session the position alone, else the request too.
std::uint64_t content_of(RequestId id, const RequestSpec& spec) {
  return spec.session != 0 && spec.prefix_blocks.empty() ? mix64(spec.session) : ~id.value;
}

std::vector<TokenId> make_tokens(std::uint64_t content, const RequestSpec& spec) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(spec.prompt_tokens));
  const auto size = static_cast<std::size_t>(spec.prefix_block_tokens);
  const std::size_t num_named = std::min(tokens.size(), size * spec.prefix_blocks.size());
  const std::uint64_t session = spec.session == 0 ? 0 : mix64(spec.session);
  for (std::size_t i = 0; i < num_named; ++i) tokens[i] = token_of(session ^ spec.prefix_blocks[i / size], i);
  for (std::size_t i = num_named; i < tokens.size(); ++i) tokens[i] = token_of(content, i);
  return tokens;
}

/// In the first group, whose layers see all positions.
std::span<const BlockId> table_of(const PagedKvManager& kv, SequenceId sequence) {
  const BlockTable* table = kv.find_table(sequence);
  return table == nullptr ? std::span<const BlockId>{} : std::span<const BlockId>(table->blocks);
}

}  // namespace

Result<std::unique_ptr<EngineSystem>> EngineSystem::create(const CoreOptions& options, CommandSink* sink) {
  QUIRE_TRY(auto core, EngineCore::create(options, sink));
  return std::unique_ptr<EngineSystem>(new EngineSystem(std::move(core)));
}

bool EngineSystem::submit(RequestId id, const RequestSpec& spec) {
  CoreRequest request;
  request.id = id;
  // Without a cache nobody looks at the ids.
  const std::uint64_t content = content_of(id, spec);
  if (core_->options().prefix_cache) {
    request.prompt = make_tokens(content, spec);
  } else {
    request.prompt.resize(static_cast<std::size_t>(spec.prompt_tokens));
  }
  request.max_tokens = spec.output_tokens;
  return submit(std::move(request), content);
}

bool EngineSystem::submit_recorded(CoreRequest request) { return submit(std::move(request), 0); }

bool EngineSystem::submit(CoreRequest request, std::uint64_t content) {
  QUIRE_CHECK(request.id.value == first_id_ + live_.size(), "ids rise by one");
  const bool accepted = !core_->submit(std::move(request)).has_value();
  live_.push_back({content, accepted ? 0 : kEnded});
  forget_front();
  return accepted;
}

const StepShape& EngineSystem::plan_step() {
  plan_ = &core_->plan_step();
  note(core_->take_events(), planned_);
  owners_.note(*plan_);
  const auto* paged = core_->options().prefix_cache ? dynamic_cast<const PagedKvManager*>(&core_->kv()) : nullptr;
  shape_ = paged == nullptr
               ? shape_of(*plan_)
               : shape_of(
                     *plan_, [paged](SequenceId id) { return table_of(*paged, id); }, core_->options().block_size);
  for (const PlanRow& row : plan_->rows) note_row(row);
  return shape_;
}

void EngineSystem::note_row(const PlanRow& row) {
  Live& live = live_of(row.request);
  if (row.is_prefill)
    planned_.push_back({row.request, live.lost > 0 ? ChangeKind::restored : ChangeKind::chunk, row.num_tokens});
  if (row.end() >= live.lost) live.lost = 0;
  total_written_ += row.end() - live.written;
  live.written = row.end();
}

MemoryUse EngineSystem::memory() const {
  const KvCapacity capacity = core_->kv_capacity();
  MemoryUse use;
  use.pool_slots = core_->options().pool_tokens();
  const std::int64_t held = std::int64_t{capacity.used_blocks()} * use.pool_slots / capacity.num_blocks;
  use.written_slots = std::min(total_written_, held);  // less than the sum where blocks are shared
  use.rounding_slots = held - use.written_slots;
  use.cached_slots = std::int64_t{capacity.cached_blocks} * use.pool_slots / capacity.num_blocks;
  return use;
}

void EngineSystem::commit(std::vector<RequestChange>& changes) {
  result_.rows.assign(plan_->rows.size(), RowResult{TokenId{0}});
  if (core_->options().prefix_cache)
    for (std::size_t i = 0; i < plan_->rows.size(); ++i) {
      const PlanRow& row = plan_->rows[i];
      result_.rows[i].token = token_of(live_of(row.request).content, static_cast<std::uint64_t>(row.end()));
    }
  commit_recorded(result_, changes);
}

void EngineSystem::commit_recorded(const StepResult& result, std::vector<RequestChange>& changes) {
  changes.insert(changes.end(), planned_.begin(), planned_.end());
  planned_.clear();
  note(core_->commit(result), changes);
  forget_front();
}

void EngineSystem::note(const std::vector<Event>& events, std::vector<RequestChange>& changes) {
  for (const Event& event : events) {
    if (const auto* preempted = std::get_if<RequestPreempted>(&event)) {
      Live& live = live_of(preempted->request);
      live.lost = std::max(live.lost, live.written);
      total_written_ -= std::exchange(live.written, 0);
      changes.push_back({preempted->request, ChangeKind::preempted});
    } else if (const auto* started = std::get_if<RequestStarted>(&event)) {
      changes.push_back({started->request, ChangeKind::started, started->cached_tokens});
    } else if (const auto* sampled = std::get_if<TokenSampled>(&event)) {
      changes.push_back({sampled->request, ChangeKind::token});
    } else if (const auto* finished = std::get_if<RequestFinished>(&event)) {
      total_written_ -= std::exchange(live_of(finished->request).written, kEnded);
      changes.push_back({finished->request, ChangeKind::finished});
    }
  }
}

void EngineSystem::forget_front() {
  for (; !live_.empty() && live_.front().written == kEnded; ++first_id_) live_.pop_front();
}

std::string EngineSystem::description() const {
  const CoreOptions& options = core_->options();
  return cat(options.is_vattention() ? "vAttention: " : "Quire: ", options.pool_text(), ", budget ",
             options.token_budget, ", rows ", options.max_rows, ", queue ", options.queue_policy, ", victim ",
             options.victim_policy, ", steps ", options.step_composition, options.prefix_cache ? ", prefix cache" : "");
}

}  // namespace quire
