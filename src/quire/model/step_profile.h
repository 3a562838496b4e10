#pragma once
// StepProfile: where the time of forward passes goes, phase by phase, as worker 0 sees it: what it waits for the others
// belongs to the phase that ends with that barrier. For benchmarks; a pass without one reads no clock.

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>

namespace quire::model {

/// In the order of a layer.
enum class Phase {
  embed,      ///< embedding and the first norm
  qkv,        ///< q, k, v, and v's remainder
  write_kv,   ///< RoPE, head norms, K and V written
  attend,     ///<
  attended,   ///< attention's results to int8
  attn_out,   ///<
  attn_norm,  ///< sum with the residual stream, norm, int8
  gate_up,    ///<
  activate,   ///< activation, int8
  down,       ///<
  ffn_norm,   ///< as attn_norm
  head,       ///< the output head, its norm included
  logits,     ///< check of the logits, and what the caller does with them
};
inline constexpr std::size_t kNumPhases = 13;
inline constexpr std::array<std::string_view, kNumPhases> kPhaseNames = {
    "embedding", "q, k, v",  "rope, K, V written", "attention", "attention to int8", "attention output",
    "norm",      "gate, up", "activation",         "down",      "norm after down",   "output head",
    "logits"};

class StepProfile {
 public:
  /// A pass begins.
  void start() {
    ++num_passes_;
    last_ = Clock::now();
  }
  /// The time since the last call belongs to `phase`.
  void mark(Phase phase) {
    const Clock::time_point now = Clock::now();
    seconds_[static_cast<std::size_t>(phase)] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  int num_passes() const { return num_passes_; }
  double seconds(Phase phase) const { return seconds_[static_cast<std::size_t>(phase)]; }

 private:
  using Clock = std::chrono::steady_clock;
  int num_passes_ = 0;
  Clock::time_point last_;
  std::array<double, kNumPhases> seconds_{};
};

}  // namespace quire::model
