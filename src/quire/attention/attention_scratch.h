#pragma once
// The memory behind AttentionScratch. Internal to the attention module.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

#include "quire/attention/attention_call.h"
#include "quire/attention/attention_plan.h"
#include "quire/tensor/aligned_buffer.h"

namespace quire::attention {

struct AttentionScratch::State {
  // One area a worker, and partial results and counters for all. Grown by worker 0 alone, between barriers.
  std::int64_t workers = 0, worker_bytes = 0, partial_floats = 0, counters = 0;
  AlignedBuffer worker_area, partials;
  std::unique_ptr<std::atomic<std::int32_t>[]> finished;  ///< spans done of a (chunk, KV head); zero between calls
  AttentionPlan plan;                                     ///< of a call that came without one

  void grow(std::int64_t num_workers, const ScratchNeed& need) {
    auto larger = [](std::int64_t have, std::int64_t wanted) {
      return wanted <= have ? have : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(wanted)));
    };
    if (num_workers > workers || need.worker_bytes > worker_bytes) {
      workers = std::max(workers, num_workers);
      worker_bytes = larger(worker_bytes, need.worker_bytes);
      worker_area = AlignedBuffer(static_cast<std::size_t>(workers * worker_bytes));
    }
    if (need.partial_floats > partial_floats) {
      partial_floats = larger(partial_floats, need.partial_floats);
      partials = AlignedBuffer(static_cast<std::size_t>(partial_floats) * sizeof(float));
    }
    if (need.counters > counters) {
      counters = larger(counters, need.counters);
      finished = std::make_unique<std::atomic<std::int32_t>[]>(static_cast<std::size_t>(counters));
    }
  }
  bool suffices(std::int64_t num_workers, const ScratchNeed& need) const {
    return num_workers <= workers && need.worker_bytes <= worker_bytes && need.partial_floats <= partial_floats &&
           need.counters <= counters;
  }
};

}  // namespace quire::attention
