#pragma once
// Weights: a model's tensors, packed for the kernels. Internal to the model module. Immutable after loading.

#include <cstdint>
#include <functional>
#include <vector>

#include "quire/base/result.h"
#include "quire/base/thread_pool.h"
#include "quire/model/config.h"
#include "quire/model/gguf.h"
#include "quire/model/repack_cache.h"
#include "quire/quant/packed_matrix.h"

namespace quire::model {

struct LayerWeights {
  std::vector<float> attn_norm;               ///< [hidden]
  quant::PackedMatrix q, k, v;                ///< [heads * head_dim, hidden], K and V [kv_heads * head_dim, hidden]
  std::vector<float> q_bias, k_bias, v_bias;  ///< as the rows of q, k, v; empty without bias
  std::vector<float> q_norm, k_norm;          ///< [head_dim]; empty without q/k norm
  quant::PackedMatrix attn_out;               ///< [hidden, heads * head_dim]
  std::vector<float> post_attn_norm;          ///< [hidden]; empty without post norms
  std::vector<float> ffn_norm;                ///< [hidden]
  quant::PackedMatrix gate, up;               ///< [ffn, hidden]
  quant::PackedMatrix down;                   ///< [hidden, ffn]
  std::vector<float> post_ffn_norm;           ///< [hidden]; empty without post norms
};

struct Weights {
  quant::PackedMatrix embedding;   ///< [vocab, hidden]
  quant::PackedMatrix output;      ///< [vocab, hidden]; empty if tied to the embedding
  std::vector<float> output_norm;  ///< [hidden]
  std::vector<LayerWeights> layers;
  RepackReport repack;

  const quant::PackedMatrix& output_head() const { return output.rows() > 0 ? output : embedding; }
  std::size_t bytes() const;
};

enum class WeightFormat { as_in_file, f32 };

struct WeightsOptions {
  WeightFormat format = WeightFormat::as_in_file;
  RepackCache repack_cache;              ///< of as_in_file
  std::function<void(double)> progress;  ///< may be empty; called on the calling thread
};

/// The weights without their values: types, shapes and sizes as load_weights gives them, with its errors. Reads no
/// tensor.
Result<Weights> outline_weights(const GgufFile& file, const ModelConfig& config, WeightFormat format);

/// Packs all tensors of the file, in parallel, or maps them as an earlier start packed them. A tensor that is missing,
/// of another shape than the configuration says, or not part of the family is an error that names it: nothing in a file
/// is left out silently.
Result<Weights> load_weights(const GgufFile& file, const ModelConfig& config, ThreadPool& pool,
                             const WeightsOptions& options);

}  // namespace quire::model
