#include "quire/sim/reserving_system.h"

#include <algorithm>
#include <bit>

#include "quire/base/cat.h"

namespace quire {

std::string_view to_string(ReservationRule rule) {
  switch (rule) {
    case ReservationRule::maximum:
      return "maximum";
    case ReservationRule::power_of_two:
      return "power-of-two";
    case ReservationRule::exact:
      return "exact";
    case ReservationRule::written:
      return "written";
  }
  return "unknown";
}

std::int64_t reserved_slots(ReservationRule rule, const RequestSpec& spec, std::int64_t max_sequence) {
  const std::int64_t exact = std::int64_t{spec.prompt_tokens} + spec.output_tokens;
  switch (rule) {
    case ReservationRule::maximum:
      return max_sequence;
    case ReservationRule::power_of_two:
      return std::min<std::int64_t>(
          max_sequence, spec.prompt_tokens +
                            static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(spec.output_tokens))));
    case ReservationRule::exact:
      return exact;
    case ReservationRule::written:
      return exact - 1;
  }
  return exact;
}

ReservingSystem::ReservingSystem(Options options, std::unique_ptr<SlotAllocator> memory)
    : options_(std::move(options)), memory_(std::move(memory)) {}

bool ReservingSystem::submit(RequestId id, const RequestSpec& spec) {
  const std::int64_t needed = reserved_slots(ReservationRule::written, spec, options_.max_sequence);
  const std::int64_t asked = reserved_slots(options_.rule, spec, options_.max_sequence);
  if (needed > options_.max_sequence || !memory_->could_ever_fit(std::max(asked, needed))) {
    refusal_ = cat("needs ", needed, " slots and is given ", std::max(asked, needed), ", but a sequence has at most ",
                   options_.max_sequence, " and the pool ", memory_->num_slots());
    return false;
  }
  queue_.push_back({id, spec.prompt_tokens, spec.output_tokens, std::max(asked, needed), {}});
  return true;
}

void ReservingSystem::admit() {
  while (!queue_.empty() && num_running() < options_.max_rows) {
    Request request = queue_.front();
    const auto grant = memory_->try_allocate(request.asked_slots);
    if (!grant) {
      ++num_failures_;
      return;
    }
    queue_.pop_front();
    request.grant = *grant;
    const std::int64_t needed = std::int64_t{request.prompt_tokens} + request.output_tokens -
                                (options_.rule == ReservationRule::written ? 1 : 0);
    use_.reserved_slots += std::min(needed, request.asked_slots);
    use_.unused_slots += request.asked_slots - std::min(needed, request.asked_slots);
    use_.rounding_slots += grant->num_slots - request.asked_slots;
    running_.push_back(request);
  }
}

const StepShape& ReservingSystem::plan_step() {
  admit();
  shape_ = {};
  for (const Request& request : running_) {
    const std::int64_t written =
        request.started ? std::int64_t{request.prompt_tokens} + request.generated : request.prompt_tokens;
    if (request.started) {
      shape_.add_decode(written);
    } else {
      shape_.add_prefill(0, written);
    }
    const std::int64_t new_slots = request.started ? 1 : request.prompt_tokens;
    use_.written_slots += new_slots;
    use_.reserved_slots -= new_slots;
    digest_.add(request.id.value);
    digest_.add(static_cast<std::uint64_t>(written));
  }
  return shape_;
}

MemoryUse ReservingSystem::memory() const {
  MemoryUse use = use_;
  use.pool_slots = std::max(options_.pool_slots, memory_->num_slots());
  return use;
}

void ReservingSystem::commit(std::vector<RequestChange>& changes) {
  std::size_t kept = 0;
  for (Request& request : running_) {
    if (!request.started) changes.push_back({request.id, ChangeKind::started});
    request.started = true;
    ++request.generated;
    changes.push_back({request.id, ChangeKind::token});
    if (request.generated < request.output_tokens) {
      if (&running_[kept] != &request) running_[kept] = request;
      ++kept;
      continue;
    }
    changes.push_back({request.id, ChangeKind::finished});
    memory_->release(request.grant);
    const std::int64_t written = std::int64_t{request.prompt_tokens} + request.output_tokens - 1;
    const std::int64_t left = options_.rule == ReservationRule::written || request.asked_slots == written ? 0 : 1;
    use_.written_slots -= written;
    use_.reserved_slots -= left;  // the last token's, which is never written
    use_.unused_slots -= request.asked_slots - written - left;
    use_.rounding_slots -= request.grant.num_slots - request.asked_slots;
  }
  running_.resize(kept);
}

}  // namespace quire
