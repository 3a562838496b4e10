#pragma once
// ModelConfig: one description for all supported families of decoder-only transformers (llama, qwen2, gemma3), read
// from GGUF metadata. A family is data here, not code: the forward pass follows these fields.
// Limits: up to 1,024 layers, widths up to 2^20, head sizes even and up to 512 with keys as long as values, the same
// number of heads in every layer, context up to 2^24. Refused by name: experts, logit and residual scales,
// soft-capping, ALiBi, longrope, sliding windows outside gemma3.

#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/result.h"
#include "quire/model/gguf.h"
#include "quire/ops/rope.h"

namespace quire::model {

enum class RopeStyle { interleaved, neox };
enum class Activation { silu, gelu_tanh };

struct LayerConfig {
  std::int64_t window = 0;  ///< sliding window in tokens; 0: full attention
  int rope = 0;             ///< index into ModelConfig::rope
};

struct ModelConfig {
  std::string architecture;  ///< general.architecture
  std::string name;          ///< general.name, may be empty
  std::int64_t num_layers = 0, hidden = 0, ffn = 0, vocab_size = 0;
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::int64_t context = 0;  ///< the longest context the model was made for
  float rms_eps = 0;
  float attention_scale = 0;
  float embedding_scale = 1;
  RopeStyle rope_style = RopeStyle::neox;
  std::vector<ops::RopeParams> rope;  ///< one for each kind of layer
  Activation activation = Activation::silu;
  bool has_qkv_bias = false, has_qk_norm = false, has_post_norms = false;
  bool tied_output = false;
  std::vector<LayerConfig> layers;  ///< [num_layers]
};

/// Checks every number against its range and the vocabulary against the embedding. The shapes of the other tensors are
/// checked by Model::load.
Result<ModelConfig> read_config(const GgufFile& file);

}  // namespace quire::model
