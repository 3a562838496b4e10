#pragma once
// Tiny random models as GGUF images, for tests: every family and every dtype, a few hundred kilobytes, the same bytes
// for the same description on every machine.

#include <cstdint>
#include <optional>
#include <string>

#include "quire/model/gguf_builder.h"
#include "quire/tensor/dtype.h"

namespace quire::model {

struct TinyModel {
  std::string architecture = "llama";  ///< "llama", "qwen2" or "gemma3"
  DType matrices = DType::q8_0;        ///< of all matrices in the layers
  std::optional<DType> values;         ///< of attn_v and ffn_down, if others
  DType embedding = DType::q8_0;
  bool tied_output = true;
  std::int64_t num_layers = 2, hidden = 64, ffn = 96, vocab_size = 100;
  std::int64_t num_heads = 4, num_kv_heads = 2, head_dim = 16;
  std::int64_t context = 512;
  std::int64_t window = 8;  ///< of gemma3, whose second layer is full here
  std::uint64_t seed = 1;

  /// Sizes that K-quants can store: rows of 256 elements.
  static TinyModel wide(std::string architecture, DType matrices);
};

/// The keys and tensors of the model; the caller may change them before build(). No tokenizer keys.
GgufBuilder build_tiny_model(const TinyModel& model);

/// `elements` random values of about +-0.15 in the dtype's storage; every block is valid.
std::string random_tensor(DType dtype, std::int64_t elements, std::uint64_t seed);

}  // namespace quire::model
