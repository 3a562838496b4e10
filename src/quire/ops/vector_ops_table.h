#pragma once
// The table of row operations and its instances, one a kernel family. Free of standard headers with inline code, so
// that files compiled for one instruction set may include it.

#include <cstdint>

namespace quire::ops {

struct VectorOps {
  /// out[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) * weight[i]; out may be x. n is any positive number.
  void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t n, float* out);
  /// x[i] += y[i]
  void (*add)(float* x, const float* y, std::int64_t n);
  /// x[i] *= factor
  void (*scale)(float* x, float factor, std::int64_t n);
  /// out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + e^-x). Here and below out may be gate.
  void (*silu_mul)(const float* gate, const float* up, std::int64_t n, float* out);
  /// out[i] = gelu_tanh(gate[i]) * up[i], gelu_tanh(x) = x/2 (1 + tanh(u)) = x / (1 + e^-2u) with
  /// u = sqrt(2 / pi) (x + 0.044715 x^3)
  void (*gelu_tanh_mul)(const float* gate, const float* up, std::int64_t n, float* out);
  /// Rotates pairs of one head x [head_dim] by the angles whose cosine and sine are given [rotary_dim / 2].
  /// Interleaved: pairs (2i, 2i + 1). Neox: pairs (i, i + rotary_dim / 2). Elements past rotary_dim stay.
  void (*rope_interleaved)(float* x, const float* cosine, const float* sine, std::int64_t rotary_dim);
  void (*rope_neox)(float* x, const float* cosine, const float* sine, std::int64_t rotary_dim);
  /// log of the sum of e^x[i] over n values, as max + log(sum of e^(x - max)); the sum in f64 over sixteen virtual
  /// lanes. The value itself where the maximum is infinite.
  double (*log_sum_exp)(const float* x, std::int64_t n);
  /// True if all n values are finite.
  bool (*all_finite)(const float* x, std::int64_t n);
  /// Index of the largest value; the lowest index among equals. NaN is never the largest; 0 if all are NaN.
  std::int64_t (*argmax)(const float* x, std::int64_t n);
};

extern const VectorOps kVectorOpsScalar;
extern const VectorOps kVectorOpsAvx2;
extern const VectorOps kVectorOpsAvx512;

}  // namespace quire::ops
