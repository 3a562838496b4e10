#include "quire/model/tiny_model.h"

#include <vector>

#include "quire/base/cat.h"
#include "quire/base/rng.h"
#include "quire/quant/dequantize.h"

namespace quire::model {
namespace {

constexpr float kMagnitude = 0.15f;

/// Where the f16 scale (and minimum) of a block stand, and values that make the weights about +-kMagnitude.
struct BlockScales {
  int scale_at;
  float scale;
  int minimum_at;  ///< -1: none
  float minimum;
};

BlockScales scales_of(DType dtype) {
  switch (dtype) {
    case DType::q4_0:
      return {0, kMagnitude / 8, -1, 0};
    case DType::q4_1:
      return {0, kMagnitude / 8, 2, -kMagnitude};
    case DType::q5_0:
      return {0, kMagnitude / 16, -1, 0};
    case DType::q5_1:
      return {0, kMagnitude / 16, 2, -kMagnitude};
    case DType::q8_0:
      return {0, kMagnitude / 128, -1, 0};
    case DType::q4_k:
      return {0, 2 * kMagnitude / (32 * 16), 2, kMagnitude / 32};
    case DType::q5_k:
      return {0, 2 * kMagnitude / (32 * 32), 2, kMagnitude / 32};
    case DType::q6_k:
      return {208, kMagnitude / (64 * 32), -1, 0};
    default:
      return {};
  }
}

void put_half(std::string& bytes, std::size_t at, std::uint16_t half) {
  bytes[at] = static_cast<char>(half & 0xFF);
  bytes[at + 1] = static_cast<char>(half >> 8);
}

std::string random_floats(DType dtype, std::int64_t elements, Rng& rng) {
  ByteWriter out;
  for (std::int64_t i = 0; i < elements; ++i) {
    auto value = static_cast<float>((2 * rng.uniform() - 1) * kMagnitude);
    if (dtype == DType::f32) {
      out.number(value);
    } else {
      out.number(dtype == DType::f16 ? quant::f32_to_f16(value) : quant::f32_to_bf16(value));
    }
  }
  return out.take();
}

class TinyModelBuilder {
 public:
  explicit TinyModelBuilder(const TinyModel& model) : model_(model) {}

  GgufBuilder build() {
    keys();
    matrix("token_embd.weight", model_.hidden, model_.vocab_size, model_.embedding);
    if (!model_.tied_output) matrix("output.weight", model_.hidden, model_.vocab_size, model_.embedding);
    norm("output_norm.weight", model_.hidden);
    for (std::int64_t i = 0; i < model_.num_layers; ++i) layer(cat("blk.", i, "."));
    return std::move(out_);
  }

 private:
  bool gemma() const { return model_.architecture == "gemma3"; }

  void keys() {
    const std::string prefix = model_.architecture + ".";
    auto key = [&](std::string_view name, std::int64_t value) {
      out_.key_u32(prefix + std::string(name), static_cast<std::uint32_t>(value));
    };
    out_.key_string("general.architecture", model_.architecture).key_string("general.name", "Tiny");
    key("block_count", model_.num_layers);
    key("context_length", model_.context);
    key("embedding_length", model_.hidden);
    key("feed_forward_length", model_.ffn);
    key("attention.head_count", model_.num_heads);
    key("attention.head_count_kv", model_.num_kv_heads);
    key("attention.key_length", model_.head_dim);
    key("attention.value_length", model_.head_dim);
    out_.key_f32(prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
    out_.key_f32(prefix + "rope.freq_base", gemma() ? 1e6f : 1e4f);
    if (gemma()) {
      key("attention.sliding_window", model_.window);
      key("attention.sliding_window_pattern", 2);
    }
  }

  void layer(const std::string& prefix) {
    const std::int64_t q_rows = model_.num_heads * model_.head_dim, kv_rows = model_.num_kv_heads * model_.head_dim;
    const DType values = model_.values.value_or(model_.matrices);
    norm(prefix + "attn_norm.weight", model_.hidden);
    matrix(prefix + "attn_q.weight", model_.hidden, q_rows, model_.matrices);
    matrix(prefix + "attn_k.weight", model_.hidden, kv_rows, model_.matrices);
    matrix(prefix + "attn_v.weight", model_.hidden, kv_rows, values);
    matrix(prefix + "attn_output.weight", q_rows, model_.hidden, model_.matrices);
    if (model_.architecture == "qwen2") {
      bias(prefix + "attn_q.bias", q_rows);
      bias(prefix + "attn_k.bias", kv_rows);
      bias(prefix + "attn_v.bias", kv_rows);
    }
    norm(prefix + "ffn_norm.weight", model_.hidden);
    matrix(prefix + "ffn_gate.weight", model_.hidden, model_.ffn, model_.matrices);
    matrix(prefix + "ffn_up.weight", model_.hidden, model_.ffn, model_.matrices);
    matrix(prefix + "ffn_down.weight", model_.ffn, model_.hidden, values);
    if (gemma()) {
      norm(prefix + "attn_q_norm.weight", model_.head_dim);
      norm(prefix + "attn_k_norm.weight", model_.head_dim);
      norm(prefix + "post_attention_norm.weight", model_.hidden);
      norm(prefix + "post_ffw_norm.weight", model_.hidden);
    }
  }

  std::uint64_t next_seed() { return random_at(model_.seed, count_++); }

  void matrix(const std::string& name, std::int64_t cols, std::int64_t rows, DType dtype) {
    out_.tensor(name, {static_cast<std::uint64_t>(cols), static_cast<std::uint64_t>(rows)}, dtype,
                random_tensor(dtype, cols * rows, next_seed()));
  }
  void bias(const std::string& name, std::int64_t length) { vector(name, length, 0); }
  void norm(const std::string& name, std::int64_t length) { vector(name, length, 1); }
  void vector(const std::string& name, std::int64_t length, float centre) {
    Rng rng(next_seed());
    std::vector<float> values(static_cast<std::size_t>(length));
    for (float& value : values) value = centre + static_cast<float>(rng.uniform() - 0.5);
    out_.tensor_f32(name, {static_cast<std::uint64_t>(length)}, values);
  }

  const TinyModel& model_;
  GgufBuilder out_;
  std::uint64_t count_ = 0;
};

}  // namespace

TinyModel TinyModel::wide(std::string architecture, DType matrices) {
  TinyModel model;
  model.architecture = std::move(architecture);
  model.matrices = matrices;
  model.hidden = model.ffn = 256;
  model.head_dim = 64;
  return model;
}

std::string random_tensor(DType dtype, std::int64_t elements, std::uint64_t seed) {
  Rng rng(seed);
  if (!is_quantized(dtype)) return random_floats(dtype, elements, rng);
  const DTypeInfo& format = info(dtype);
  const BlockScales scales = scales_of(dtype);
  std::string out;
  for (std::int64_t block = 0; block < elements / format.block_elements; ++block) {
    std::string bytes(format.block_bytes, '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng());
    auto vary = static_cast<float>(0.5 + rng.uniform());
    put_half(bytes, static_cast<std::size_t>(scales.scale_at), quant::f32_to_f16(scales.scale * vary));
    if (scales.minimum_at >= 0) {
      put_half(bytes, static_cast<std::size_t>(scales.minimum_at), quant::f32_to_f16(scales.minimum * vary));
    }
    out += bytes;
  }
  return out;
}

GgufBuilder build_tiny_model(const TinyModel& model) { return TinyModelBuilder(model).build(); }

}  // namespace quire::model
