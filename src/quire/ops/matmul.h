#pragma once
// matmul: out[t, r] = sum over k of w[r, k] * x[t, k] (+ bias[r]), for t in [0, num_tokens), r in [0, w.rows()).
// Lanes are output rows and K is one chain per output (rules 4 to 7 of the arithmetic), so a token's result does not
// depend on the other tokens, the number of threads or the tier.

#include <cstdint>
#include <span>

#include "quire/base/cpu.h"
#include "quire/base/thread_pool.h"
#include "quire/ops/weights_ahead.h"
#include "quire/quant/activations.h"
#include "quire/quant/packed_matrix.h"

namespace quire::ops {

/// The right-hand side. `f32` is read by float weights, `quantized` by quantised ones; either may be null if no matrix
/// of the call needs it.
struct MatmulInput {
  const float* f32 = nullptr;  ///< [num_tokens, cols], rows f32_stride floats apart
  std::int64_t f32_stride = 0;
  const quant::QuantizedRows* quantized = nullptr;  ///< [num_tokens, cols]
  std::int64_t num_tokens = 0;
};

/// One product of a call; products that need not wait for each other (q, k, v; gate, up) go into one call and one
/// dispatch.
struct MatmulOutput {
  const quant::PackedMatrix* weights = nullptr;
  const float* bias = nullptr;  ///< [rows] or null
  float* out = nullptr;         ///< [num_tokens, rows], rows out_stride floats apart
  std::int64_t out_stride = 0;
  const MatmulInput* input = nullptr;  ///< instead of the call's, with as many tokens
};

/// Called by every worker of a step with the same arguments; returns when all of it is done (ends with a barrier).
/// `ahead` is this worker's and says where its reading goes on.
void matmul(Worker& worker, CpuTier tier, const MatmulInput& input, std::span<const MatmulOutput> outputs,
            WeightsAhead& ahead);

/// The same, if what follows is not known.
void matmul(Worker& worker, CpuTier tier, const MatmulInput& input, std::span<const MatmulOutput> outputs);

/// Where this worker's share of a call with these matrices begins.
WeightsAhead share_of(const Worker& worker, std::span<const quant::PackedMatrix* const> matrices,
                      std::int64_t num_tokens);

}  // namespace quire::ops
