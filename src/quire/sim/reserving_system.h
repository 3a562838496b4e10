#pragma once
// ReservingSystem: iteration-level scheduling over memory that is given out once a request (Orca, Yu et al., OSDI 2022,
// as the PagedAttention paper defines its baselines). First come, first served: while the head of the queue gets
// memory it starts; otherwise everything behind it waits. A started request computes its whole prompt in its first step
// and a token in each one after it, and keeps its memory until it ends. Nobody is preempted.
//
// How many slots a request asks for (p prompt, o its true answer):
//     maximum        the model's longest sequence, always                           Orca (Max), the naive way
//     power_of_two   p + the next power of two >= o, at most the longest sequence   Orca (Pow2)
//     exact          p + o                                                          Orca (Oracle)
//     written        p + o - 1: the last token's K and V are never written
//
// How its memory is counted (memory()), which is how the paper's figure 2 has to be read:
//     written   K and V that exist
//     reserved  will be written: p + o less those
//     unused    asked for, never written
//     rounding  added by the allocator; the paper counts it with free memory, as external fragmentation

#include <deque>
#include <memory>

#include "quire/base/hash.h"
#include "quire/sim/slot_allocator.h"
#include "quire/sim/system.h"

namespace quire {

enum class ReservationRule { maximum, power_of_two, exact, written };
std::string_view to_string(ReservationRule rule);

/// Slots that a request asks for.
std::int64_t reserved_slots(ReservationRule rule, const RequestSpec& spec, std::int64_t max_sequence);

class ReservingSystem final : public System {
 public:
  struct Options {
    std::string name;
    ReservationRule rule = ReservationRule::exact;
    std::int64_t max_sequence = 2048;
    std::int32_t max_rows = 256;  ///< running at a time
    std::int64_t pool_slots = 0;  ///< of the memory; what the allocator makes no use of is free in it, too
  };
  ReservingSystem(Options options, std::unique_ptr<SlotAllocator> memory);

  bool submit(RequestId id, const RequestSpec& spec) override;
  const std::string& refusal() const override { return refusal_; }
  bool has_work() const override { return !queue_.empty() || !running_.empty(); }
  const StepShape& plan_step() override;
  MemoryUse memory() const override;
  void commit(std::vector<RequestChange>& changes) override;
  std::int32_t num_running() const override { return static_cast<std::int32_t>(running_.size()); }
  std::int32_t num_waiting() const override { return static_cast<std::int32_t>(queue_.size()); }
  std::uint64_t plan_digest() const override { return digest_.value(); }
  std::optional<std::string> validate() const override { return memory_->validate(); }
  std::string description() const override { return options_.name; }

  /// Steps so far in which the head of the queue found no memory.
  std::uint64_t num_failures() const { return num_failures_; }

 private:
  struct Request {
    RequestId id;
    std::int32_t prompt_tokens, output_tokens;
    std::int64_t asked_slots;
    SlotGrant grant;
    std::int32_t generated = 0;
    bool started = false;
  };
  void admit();

  Options options_;
  std::unique_ptr<SlotAllocator> memory_;
  std::deque<Request> queue_;
  std::vector<Request> running_;  ///< in the order of arrival
  StepShape shape_;
  MemoryUse use_;  ///< totals over running_
  std::uint64_t num_failures_ = 0;
  Digest digest_;
  std::string refusal_;
};

}  // namespace quire
