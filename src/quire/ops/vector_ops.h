#pragma once
// The row operations between the matrix products. Each works on one row, is called by one thread, and gives the same
// bits on every tier (float kernels are written once on a 16-lane type). Sums follow rule 8 of the arithmetic: sixteen
// virtual lanes, folded 8, 4, 2, 1.

#include <cstdint>

#include "quire/base/cpu.h"

namespace quire::ops {

struct VectorOps {
  /// out[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) * weight[i]; out may be x. n is any positive number.
  void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t n, float* out);
  /// x[i] += y[i]
  void (*add)(float* x, const float* y, std::int64_t n);
  /// x[i] *= factor
  void (*scale)(float* x, float factor, std::int64_t n);
  /// out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + e^-x)
  void (*silu_mul)(const float* gate, const float* up, std::int64_t n, float* out);
  /// out[i] = gelu_tanh(gate[i]) * up[i]
  void (*gelu_tanh_mul)(const float* gate, const float* up, std::int64_t n, float* out);
  /// Rotates pairs of one head x [head_dim] by the angles whose cosine and sine are given [rotary_dim / 2].
  /// Interleaved: pairs (2i, 2i + 1). Neox: pairs (i, i + rotary_dim / 2). Elements past rotary_dim stay.
  void (*rope_interleaved)(float* x, const float* cosine, const float* sine, std::int64_t rotary_dim);
  void (*rope_neox)(float* x, const float* cosine, const float* sine, std::int64_t rotary_dim);
  /// log of the sum of e^x[i] over n values, as max + log(sum of e^(x - max)); the sum in f64 over sixteen virtual
  /// lanes.
  double (*log_sum_exp)(const float* x, std::int64_t n);
  /// True if all n values are finite.
  bool (*all_finite)(const float* x, std::int64_t n);
  /// Index of the largest value; the lowest index among equals.
  std::int64_t (*argmax)(const float* x, std::int64_t n);
};

const VectorOps& vector_ops(CpuTier tier);

}  // namespace quire::ops
