#pragma once
// RopeTable: cosines and sines of rotary position embeddings for every position, computed at load with our own
// functions (rule 3 of the arithmetic), so that they are the same on every machine. Angles are computed in f64 and the
// values rounded to f32. Immutable, so safe to read from many threads.
//
// frequency(i) = base^(-2i / rotary_dim) / frequency_factors[i], then
//   linear  divided by the factor
//   yarn    f / factor * ramp(i) + f * (1 - ramp(i)), ramp rising from 0 to 1 between the pairs whose wavelengths fit
//           beta_fast and beta_slow times into original_context (Peng et al., "YaRN", 2023); cosine and sine are
//           multiplied by attn_factor * (0.1 ln(factor) + 1).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace quire::ops {

/// How frequencies are changed for contexts longer than the model was trained on. Names as in GGUF `rope.scaling.type`.
struct RopeScaling {
  enum class Type { none, linear, yarn } type = Type::none;
  double factor = 1.0;
  std::int64_t original_context = 0;  ///< yarn
  double attn_factor = 1.0;           ///< yarn: multiplies cosine and sine, beside 0.1 ln(factor) + 1
  double beta_fast = 32.0, beta_slow = 1.0;
};

struct RopeParams {
  std::int64_t rotary_dim = 0;  ///< even
  double base = 10000.0;
  RopeScaling scaling;
  std::vector<float>
      frequency_factors;  ///< [rotary_dim / 2] or empty: the `rope_freqs` tensor (llama-3), divides frequencies
};

class RopeTable {
 public:
  RopeTable(const RopeParams& params, std::int64_t num_positions);
  /// Bytes of the table of so many positions.
  static std::size_t bytes_for(const RopeParams& params, std::int64_t num_positions) {
    return static_cast<std::size_t>(num_positions * params.rotary_dim) * sizeof(float);
  }
  std::size_t bytes() const { return values_.size() * sizeof(float); }
  const float* cosine(std::int64_t position) const {
    return values_.data() + position * 2 * half_;
  }  ///< [rotary_dim / 2]
  const float* sine(std::int64_t position) const { return cosine(position) + half_; }
  std::int64_t rotary_dim() const { return 2 * half_; }
  std::int64_t num_positions() const { return static_cast<std::int64_t>(values_.size()) / (2 * half_); }

 private:
  std::int64_t half_;
  std::vector<float> values_;  ///< [num_positions, 2, rotary_dim / 2]
};

}  // namespace quire::ops
