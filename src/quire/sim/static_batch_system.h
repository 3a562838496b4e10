#pragma once
// StaticBatchSystem: request-level batching as in the PagedAttention paper's FasterTransformer baseline. When idle it
// takes up to max_batch of the earliest arrivals, computes all their prompts in one step, then a token of each in every
// step until the longest has ended; only then are the answers returned, and only then is the next batch taken. Each
// member holds the model's longest sequence.

#include <deque>

#include "quire/base/hash.h"
#include "quire/sim/system.h"

namespace quire {

class StaticBatchSystem final : public System {
 public:
  struct Options {
    std::string name = "FasterTransformer";
    std::int64_t pool_slots = 0;
    std::int64_t max_sequence = 2048;
    std::int32_t max_batch() const { return static_cast<std::int32_t>(pool_slots / max_sequence); }
  };
  /// max_batch() >= 1.
  explicit StaticBatchSystem(Options options) : options_(std::move(options)) {}

  bool submit(RequestId id, const RequestSpec& spec) override;
  const std::string& refusal() const override { return refusal_; }
  bool has_work() const override { return !queue_.empty() || !batch_.empty(); }
  const StepShape& plan_step() override;
  MemoryUse memory() const override;
  void commit(std::vector<RequestChange>& changes) override;
  std::int32_t num_running() const override { return static_cast<std::int32_t>(batch_.size()); }
  std::int32_t num_waiting() const override { return static_cast<std::int32_t>(queue_.size()); }
  std::uint64_t plan_digest() const override { return digest_.value(); }
  std::optional<std::string> validate() const override { return std::nullopt; }
  std::string description() const override { return options_.name; }

 private:
  struct Request {
    RequestId id;
    std::int32_t prompt_tokens, output_tokens;
  };
  Options options_;
  std::deque<Request> queue_;
  std::vector<Request> batch_;
  std::int32_t generated_ = 0;  ///< steps of this batch so far
  std::int32_t longest_ = 0;
  StepShape shape_;
  Digest digest_;
  std::string refusal_;
};

}  // namespace quire
