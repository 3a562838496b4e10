#include "quire/sim/static_batch_system.h"

#include <algorithm>

#include "quire/base/cat.h"

namespace quire {

bool StaticBatchSystem::submit(RequestId id, const RequestSpec& spec) {
  const std::int64_t needed = std::int64_t{spec.prompt_tokens} + spec.output_tokens;
  if (needed > options_.max_sequence) {
    refusal_ = cat("needs ", needed, " slots, but a sequence has at most ", options_.max_sequence);
    return false;
  }
  queue_.push_back({id, spec.prompt_tokens, spec.output_tokens});
  return true;
}

const StepShape& StaticBatchSystem::plan_step() {
  shape_ = {};
  if (batch_.empty()) {
    generated_ = longest_ = 0;
    while (!queue_.empty() && num_running() < options_.max_batch()) {
      batch_.push_back(queue_.front());
      queue_.pop_front();
      longest_ = std::max(longest_, batch_.back().output_tokens);
      shape_.add_prefill(0, batch_.back().prompt_tokens);
    }
  } else {
    // Those that have ended go on taking part until all have.
    for (const Request& request : batch_) shape_.add_decode(std::int64_t{request.prompt_tokens} + generated_);
  }
  for (const Request& request : batch_) digest_.add(request.id.value);
  return shape_;
}

MemoryUse StaticBatchSystem::memory() const {
  MemoryUse use;
  use.pool_slots = options_.pool_slots;
  for (const Request& request : batch_) {
    const std::int32_t written = std::min(generated_, request.output_tokens - 1);
    use.written_slots += std::int64_t{request.prompt_tokens} + written;
    use.reserved_slots += request.output_tokens - written;
    use.unused_slots += options_.max_sequence - request.prompt_tokens - request.output_tokens;
  }
  return use;
}

void StaticBatchSystem::commit(std::vector<RequestChange>& changes) {
  if (generated_++ == 0)
    for (const Request& request : batch_) changes.push_back({request.id, ChangeKind::started});
  for (const Request& request : batch_)
    if (generated_ <= request.output_tokens) changes.push_back({request.id, ChangeKind::token});
  if (generated_ < longest_) return;
  for (const Request& request : batch_) changes.push_back({request.id, ChangeKind::finished});
  batch_.clear();
}

}  // namespace quire
