#pragma once
// TinyModelFile: a random model of two (gemma3: seven) layers in a temporary GGUF file, with a byte-level tokenizer and
// a ChatML template. Its answers are noise, but every part of the engine works on it, in milliseconds.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "quire/base/check.h"
#include "quire/base/rng.h"
#include "quire/model/gguf_builder.h"
#include "quire/quant/dequantize.h"
#include "quire/text/utf8.h"

namespace quire::test {

class TinyModelFile {
 public:
  explicit TinyModelFile(const std::string& architecture, std::uint64_t seed = 1) : rng_(seed) {
    char path[] = "/tmp/quire-tiny-XXXXXX";
    const int file = mkstemp(path);
    QUIRE_CHECK(file >= 0, "no temporary file");
    path_ = path;
    const std::string image = build(architecture);
    std::FILE* out = fdopen(file, "wb");
    QUIRE_CHECK(std::fwrite(image.data(), 1, image.size(), out) == image.size());
    std::fclose(out);
  }
  ~TinyModelFile() { std::remove(path_.c_str()); }
  TinyModelFile(const TinyModelFile&) = delete;
  TinyModelFile& operator=(const TinyModelFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  static constexpr std::uint64_t kHidden = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kFfn = 96;

  std::string build(const std::string& architecture) {
    const bool gemma = architecture == "gemma3";
    const std::uint32_t layers = gemma ? 7 : 2;
    key("general.architecture", architecture);
    key("general.name", "tiny " + architecture);
    const auto number = [&](const char* suffix, std::uint32_t value) { gguf_.key_u32(architecture + suffix, value); };
    number(".block_count", layers);
    number(".embedding_length", kHidden);
    number(".feed_forward_length", kFfn);
    number(".context_length", 512);
    number(".attention.head_count", kHeads);
    number(".attention.head_count_kv", kKvHeads);
    number(".attention.key_length", kHeadDim);
    number(".attention.value_length", kHeadDim);
    if (gemma) number(".attention.sliding_window", 24);
    gguf_.key_f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_.key_f32(architecture + ".rope.freq_base", 10000);
    vocabulary();

    matrix("token_embd.weight", kHidden, tokens_.size(), DType::q8_0);
    norm("output_norm.weight", kHidden);
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      const std::string name = cat("blk.", layer, '.');
      norm(name + "attn_norm.weight", kHidden);
      matrix(name + "attn_q.weight", kHidden, kHeads * kHeadDim, DType::q8_0);
      matrix(name + "attn_k.weight", kHidden, kKvHeads * kHeadDim, DType::q8_0);
      matrix(name + "attn_v.weight", kHidden, kKvHeads * kHeadDim, DType::q4_1);
      matrix(name + "attn_output.weight", kHeads * kHeadDim, kHidden, DType::q4_1);
      if (architecture == "qwen2") {
        norm(name + "attn_q.bias", kHeads * kHeadDim);
        norm(name + "attn_k.bias", kKvHeads * kHeadDim);
        norm(name + "attn_v.bias", kKvHeads * kHeadDim);
      }
      if (gemma) {
        norm(name + "attn_q_norm.weight", kHeadDim);
        norm(name + "attn_k_norm.weight", kHeadDim);
        norm(name + "post_attention_norm.weight", kHidden);
        norm(name + "post_ffw_norm.weight", kHidden);
      }
      norm(name + "ffn_norm.weight", kHidden);
      matrix(name + "ffn_gate.weight", kHidden, kFfn, DType::q4_1);
      matrix(name + "ffn_up.weight", kHidden, kFfn, DType::q4_1);
      matrix(name + "ffn_down.weight", kFfn, kHidden, DType::q4_1);
    }
    return gguf_.build();
  }

  void key(const char* name, const std::string& value) { gguf_.key_string(name, value); }

  /// The 256 bytes in the printable alphabet of byte-level BPE, then control tokens; no merges.
  void vocabulary() {
    std::vector<std::int32_t> types;
    char32_t next = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      append_utf8(tokens_.emplace_back(), printable ? byte : next++);
      types.push_back(1);
    }
    for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
      tokens_.emplace_back(control);
      types.push_back(3);
    }
    key("tokenizer.ggml.model", "gpt2");
    key("tokenizer.ggml.pre", "gpt-2");
    gguf_.key_strings("tokenizer.ggml.tokens", tokens_);
    gguf_.key_strings("tokenizer.ggml.merges", {});
    gguf_.key_i32s("tokenizer.ggml.token_type", types);
    gguf_.key_u32("tokenizer.ggml.eos_token_id", 258);
    key("tokenizer.chat_template",
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  }

  void norm(const std::string& name, std::uint64_t n) {
    std::vector<float> values(n);
    for (float& value : values) value = static_cast<float>(0.5 + rng_.uniform());
    gguf_.tensor_f32(name, {n}, values);
  }

  void matrix(const std::string& name, std::uint64_t cols, std::uint64_t rows, DType dtype) {
    std::string bytes;
    for (std::uint64_t block = 0; block < cols * rows / 32; ++block) {
      half(bytes, dtype == DType::q8_0 ? 0.003f : 0.05f);
      if (dtype == DType::q4_1) half(bytes, -0.375f);
      for (int i = 0; i < (dtype == DType::q8_0 ? 32 : 16); ++i) bytes += static_cast<char>(rng_());
    }
    gguf_.tensor(name, {cols, rows}, dtype, bytes);
  }

  static void half(std::string& out, float value) {
    const std::uint16_t bits = quant::f32_to_f16(value);
    out += static_cast<char>(bits & 0xFF);
    out += static_cast<char>(bits >> 8);
  }

  Rng rng_;
  model::GgufBuilder gguf_;
  std::vector<std::string> tokens_;
  std::string path_;
};

}  // namespace quire::test
