#pragma once
// The forward pass of one step. Internal to the model module. One pass serves all families: what differs between them
// is said by ModelConfig. Every worker of the pool runs the same sequence of phases; a phase is spread over rows,
// strips of matrices or tiles of attention, and ends with a barrier. A row's values never depend on other rows.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quire/attention/attention_plan.h"
#include "quire/attention/kv_memory.h"
#include "quire/model/config.h"
#include "quire/model/model.h"
#include "quire/model/weights.h"
#include "quire/ops/matmul.h"
#include "quire/ops/rope.h"
#include "quire/ops/vector_ops.h"
#include "quire/quant/activations.h"
#include "quire/tensor/aligned_buffer.h"

namespace quire::model {

/// Rows of activations that matrix products read: as floats, and quantised if one of the matrices wants that.
class ProductInput {
 public:
  enum class Quantized { no, yes };
  ProductInput(std::int64_t max_rows, std::int64_t cols, Quantized quantized);

  std::int64_t cols() const { return cols_; }
  float* row(std::int64_t index) { return values_.as<float>() + index * cols_; }  ///< [cols]
  /// To be called once the floats of a row are written. False if the row cannot be quantised.
  bool finish_row(CpuTier tier, std::int64_t index);
  /// The first num_rows rows.
  ops::MatmulInput view(std::int64_t num_rows) const;
  const quant::QuantizedRows* quantized() const { return quantized_ ? &*quantized_ : nullptr; }
  std::size_t bytes() const;

 private:
  std::int64_t cols_;
  AlignedBuffer values_;  ///< [max_rows, cols]
  std::optional<quant::QuantizedRows> quantized_;
};

/// What int8 rows leave out of their floats, as int8 again: both together hold the floats to about 15 bits. The values
/// (v) of attention are computed from both, at a few percent of a layer's work: their error is the largest part of all
/// that int8 activations cause (SmolLM2: the mean KL from the f32 reference falls from 0.0029 to 0.0018).
class Remainder {
 public:
  Remainder(std::int64_t max_rows, std::int64_t cols);

  /// Computes the remainder of row `index`, whose floats are x [cols]; `spare` [cols] is overwritten. False if it
  /// cannot be quantised.
  bool finish_row(CpuTier tier, const float* x, const quant::QuantizedRows& rows, std::int64_t index, float* spare);
  ops::MatmulInput view(std::int64_t num_rows) const;
  std::size_t bytes() const;

 private:
  quant::QuantizedRows quantized_;
};

/// Working memory of a step, made once for the largest step.
struct Scratch {
  Scratch(const ModelConfig& config, const Weights& weights, const LoadOptions& options);
  std::size_t bytes() const;

  std::int64_t logit_slice;  ///< rows of logits computed at a time

  AlignedBuffer residual;                ///< [max_rows, hidden]
  AlignedBuffer q, k, v;                 ///< [max_rows, heads or kv_heads, head_dim]
  AlignedBuffer up;                      ///< [max_rows, ffn]
  AlignedBuffer product;                 ///< [max_rows, hidden]
  ProductInput normed;                   ///< [max_rows, hidden]: input of q, k, v and of gate, up
  std::optional<Remainder> remainder;    ///< of normed, for v; none if v is no quantised matrix
  AlignedBuffer v_remainder;             ///< as v
  ProductInput attended;                 ///< [max_rows, heads * head_dim]: input of attn_out
  ProductInput activated;                ///< [max_rows, ffn]: gate, then the input of down
  ProductInput final;                    ///< [logit_slice, hidden]: input of the output head
  AlignedBuffer logits;                  ///< [logit_slice, vocab]
  std::vector<std::uint8_t> row_failed;  ///< [max_rows]
  attention::AttentionScratch attention;
  attention::AttentionPlans plans;                           ///< of the step
  std::vector<const attention::AttentionPlan*> layer_plans;  ///< by layer
};

/// The constant part of a step.
struct ForwardPass {
  const ModelConfig& config;
  const Weights& weights;
  std::span<const ops::RopeTable> rope;  ///< as config.rope
  CpuTier tier;
};

/// Cuts the step's attention into items of work: scratch.plans and layer_plans. Called by one thread before
/// run_forward.
void plan_attention(const ForwardPass& pass, Scratch& scratch, attention::KvMemory memory, const ForwardInput& input,
                    int num_workers);

/// Runs the step on the calling worker; every worker of the pool calls it with the same arguments. Before, row_failed
/// of the step's rows is 0 and plan_attention() was called.
void run_forward(Worker& worker, const ForwardPass& pass, Scratch& scratch, attention::KvMemory memory,
                 const ForwardInput& input);

}  // namespace quire::model
