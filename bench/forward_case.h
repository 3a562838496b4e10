#pragma once
// What forward benchmarks run: a model with sequences of its own, and what one step has to do at least.

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/measure.h"
#include "quire/model/model.h"
#include "quire/model/sequence_runner.h"

namespace quire::bench {

inline constexpr std::int64_t kContext = 512, kMaxSteps = 128;

/// What a step has to do at least, for models whose output head is the embedding or has its size.
struct Work {
  std::int64_t layer_weights = 0, head_weights = 0;                            ///< elements
  std::int64_t weight_bytes = 0;                                               ///< read once a step
  std::array<std::int64_t, model::kNumPhases> phase_weights{}, phase_bytes{};  ///< of the matrices of a phase

  Work(const model::GgufFile& file, std::int64_t bytes_of_weights);

  double operations(std::int64_t tokens, std::int64_t logit_rows) const {
    return 2.0 * static_cast<double>(layer_weights * tokens + head_weights * logit_rows);
  }
};

/// Tokens a second, and those at the limit, which is the later of the last byte and the last operation. figures: DRAM
/// read, int8 peak, seconds.
report::Row share_of_limit(std::string metric, std::int64_t tokens, double bytes, double operations,
                           const std::vector<std::vector<double>>& figures);

/// A model with room for `batch` sequences of the context and some steps.
class Forward {
 public:
  static Result<std::unique_ptr<Forward>> open(const Options& options, ThreadPool& pool, std::int64_t batch);

  const Work& work() const { return work_; }
  std::int64_t kv_bytes() { return batch_ * kContext / 16 * runner_.store().layout().block_bytes(); }

  /// All sequences get their context.
  void prefill();
  /// One token each; computes the context anew when it has grown too long. Seconds a step.
  double decode_seconds(const Options& options);
  /// Steps that decode are profiled from now on; null: no more.
  void set_profile(model::StepProfile* profile) { profile_ = profile; }

 private:
  Forward(std::unique_ptr<model::Model> model, const Work& work, ThreadPool& pool, std::int64_t batch);

  std::unique_ptr<model::Model> model_;
  Work work_;
  std::int64_t batch_;
  model::SequenceRunner runner_;
  std::vector<TokenId> prompt_;
  model::StepProfile* profile_ = nullptr;
};

}  // namespace quire::bench
