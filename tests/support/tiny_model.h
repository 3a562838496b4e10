#pragma once
// TinyModelFile: a tiny random model in a temporary GGUF file, with a byte-level tokenizer and a ChatML template. Its
// answers are noise, but every part of the engine works on it, in milliseconds.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "quire/base/check.h"
#include "quire/model/tiny_model.h"
#include "quire/text/utf8.h"

namespace quire::test {

class TinyModelFile {
 public:
  explicit TinyModelFile(const std::string& architecture) {
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
  static std::string build(const std::string& architecture) {
    const Vocabulary vocabulary;
    model::TinyModel tiny;
    tiny.architecture = architecture;
    tiny.values = DType::q4_1;
    tiny.vocab_size = static_cast<std::int64_t>(vocabulary.tokens.size());
    model::GgufBuilder gguf = model::build_tiny_model(tiny);
    gguf.key_string("tokenizer.ggml.model", "gpt2");
    gguf.key_string("tokenizer.ggml.pre", "gpt-2");
    gguf.key_strings("tokenizer.ggml.tokens", vocabulary.tokens);
    gguf.key_strings("tokenizer.ggml.merges", {});
    gguf.key_i32s("tokenizer.ggml.token_type", vocabulary.types);
    gguf.key_u32("tokenizer.ggml.eos_token_id", 258);
    gguf.key_string("tokenizer.chat_template",
                    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
    return gguf.build();
  }

  /// The 256 bytes in the printable alphabet of byte-level BPE, then three control tokens.
  struct Vocabulary {
    std::vector<std::string> tokens;
    std::vector<std::int32_t> types;

    Vocabulary() {
      char32_t next = 256;
      for (char32_t byte = 0; byte < 256; ++byte) {
        const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        append_utf8(tokens.emplace_back(), printable ? byte : next++);
        types.push_back(1);
      }
      for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
        tokens.emplace_back(control);
        types.push_back(3);
      }
    }
  };

  std::string path_;
};

}  // namespace quire::test
