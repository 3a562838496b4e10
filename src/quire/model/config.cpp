#include "quire/model/config.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "quire/model/gguf_reader.h"

namespace quire::model {
namespace {

constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxWidth = 1 << 20;  ///< of hidden, ffn and all heads together
constexpr std::int64_t kMaxHeadDim = 512;
constexpr std::int64_t kMaxVocab = 1 << 24;
constexpr std::int64_t kMaxContext = 1 << 24;
constexpr std::string_view kFamilies[] = {"llama", "qwen2", "gemma3"};
constexpr double kGemmaLocalRopeBase = 10'000;  ///< the family's constant: older files do not hold it
constexpr std::int64_t kGemmaFullEvery = 6;     ///< every sixth layer sees the whole context
constexpr std::int64_t kGemma27bLayers = 62;    ///< the one size whose scale follows hidden / heads
constexpr double kDefaultRopeBase = 10'000;

/// Keys that change the arithmetic in ways no supported family has, each with the value that means "not in use".
struct ForeignKey {
  std::string_view suffix;
  double neutral;
};
constexpr ForeignKey kForeignKeys[] = {
    {"expert_count", 0},
    {"logit_scale", 1},
    {"residual_scale", 1},
    {"embedding_scale", 1},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.clamp_kqv", 0},
    {"attention.causal", 1},
    {"use_parallel_residual", 0},
};

struct IntRange {
  std::int64_t low, high;
};
struct FloatRange {
  double low, high;
};

/// Reads keys "ARCHITECTURE.suffix" and checks their ranges.
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(cat(architecture, ".")) {}

  std::string full(std::string_view suffix) const { return prefix_ + std::string(suffix); }
  bool has(std::string_view suffix) const { return file_.find_key(full(suffix)) != nullptr; }
  const GgufFile& file() const { return file_; }

  Result<std::int64_t> integer(std::string_view suffix, IntRange range) const {
    QUIRE_TRY(auto value, file_.get_int(full(suffix)));
    return in_range(suffix, value, range);
  }
  Result<std::int64_t> integer_or(std::string_view suffix, std::int64_t fallback, IntRange range) const {
    return has(suffix) ? integer(suffix, range) : Result<std::int64_t>(fallback);
  }
  Result<double> number(std::string_view suffix, FloatRange range) const {
    QUIRE_TRY(auto value, file_.get_float(full(suffix)));
    // Written as "accept if inside", so that NaN fails.
    if (value >= range.low && value <= range.high) return value;
    return fail("key '", full(suffix), "': found ", value, ", supported: ", range.low, " to ", range.high);
  }
  Result<double> number_or(std::string_view suffix, double fallback, FloatRange range) const {
    return has(suffix) ? number(suffix, range) : Result<double>(fallback);
  }

 private:
  Result<std::int64_t> in_range(std::string_view suffix, std::int64_t value, IntRange range) const {
    if (value >= range.low && value <= range.high) return value;
    return fail("key '", full(suffix), "': found ", value, ", supported: ", range.low, " to ", range.high);
  }

  const GgufFile& file_;
  std::string prefix_;
};

Result<std::string> read_architecture(const GgufFile& file) {
  QUIRE_TRY(auto name, file.get_string("general.architecture"));
  for (auto family : kFamilies) {
    if (name == family) return std::string(name);
  }
  return fail("key 'general.architecture': found ", gguf::quoted(name), ", supported: 'llama', 'qwen2', 'gemma3'");
}

Result<void> refuse_foreign_keys(const Keys& keys) {
  for (const auto& key : kForeignKeys) {
    const GgufValue* value = keys.file().find_key(keys.full(key.suffix));
    if (value == nullptr) continue;
    double found = std::numeric_limits<double>::quiet_NaN();
    if (auto* integer = std::get_if<std::int64_t>(value)) found = static_cast<double>(*integer);
    if (auto* number = std::get_if<double>(value)) found = *number;
    if (auto* boolean = std::get_if<bool>(value)) found = *boolean ? 1 : 0;
    if (found == key.neutral) continue;
    return fail("key '", keys.full(key.suffix), "': found a value other than ", key.neutral,
                ", which is not supported for this family");
  }
  return {};
}

Result<void> read_sizes(const Keys& keys, ModelConfig& config) {
  QUIRE_TRY(config.num_layers, keys.integer("block_count", {1, kMaxLayers}));
  QUIRE_TRY(config.hidden, keys.integer("embedding_length", {1, kMaxWidth}));
  QUIRE_TRY(config.ffn, keys.integer("feed_forward_length", {1, kMaxWidth}));
  QUIRE_TRY(config.context, keys.integer("context_length", {1, kMaxContext}));
  QUIRE_TRY(config.num_heads, keys.integer("attention.head_count", {1, kMaxWidth}));
  QUIRE_TRY(config.num_kv_heads, keys.integer_or("attention.head_count_kv", config.num_heads, {1, kMaxWidth}));
  if (config.num_heads % config.num_kv_heads != 0) {
    return fail("key '", keys.full("attention.head_count_kv"), "': found ", config.num_kv_heads,
                ", wanted a divisor of the number of heads, ", config.num_heads);
  }
  if (!keys.has("attention.key_length") && config.hidden % config.num_heads != 0) {
    return fail("key '", keys.full("attention.head_count"), "': found ", config.num_heads,
                ", wanted a divisor of the hidden size, ", config.hidden, " (or a key '",
                keys.full("attention.key_length"), "')");
  }
  QUIRE_TRY(config.head_dim,
            keys.integer_or("attention.key_length", config.hidden / config.num_heads, {1, kMaxHeadDim}));
  if (config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim || config.head_dim * config.num_heads > kMaxWidth) {
    return fail("head size ", config.head_dim, " of ", config.num_heads, " heads (keys '",
                keys.full("attention.key_length"), "', '", keys.full("attention.head_count"),
                "'): supported: even, up to ", kMaxHeadDim, ", all heads together up to ", kMaxWidth);
  }
  QUIRE_TRY(auto value_length, keys.integer_or("attention.value_length", config.head_dim, {1, kMaxWidth}));
  if (value_length != config.head_dim) {
    return fail("key '", keys.full("attention.value_length"), "': found ", value_length, ", wanted the key length, ",
                config.head_dim);
  }
  QUIRE_TRY(auto eps, keys.number("attention.layer_norm_rms_epsilon", {1e-12, 1e-1}));
  config.rms_eps = static_cast<float>(eps);
  return {};
}

Result<void> read_vocabulary(const Keys& keys, ModelConfig& config) {
  const GgufTensor* embedding = keys.file().find_tensor("token_embd.weight");
  if (embedding == nullptr) return fail("tensor 'token_embd.weight' is missing");
  config.vocab_size = embedding->rows();
  if (embedding->shape.size() != 2 || config.vocab_size > kMaxVocab) {
    return fail("tensor 'token_embd.weight': found ", embedding->shape.size(), " dimensions and ", config.vocab_size,
                " rows, wanted 2 dimensions and up to ", kMaxVocab, " rows");
  }
  QUIRE_TRY(auto declared, keys.integer_or("vocab_size", config.vocab_size, {1, kMaxVocab}));
  if (declared != config.vocab_size) {
    return fail("key '", keys.full("vocab_size"), "': found ", declared, ", but tensor 'token_embd.weight' has ",
                config.vocab_size, " rows");
  }
  if (const GgufValue* tokens = keys.file().find_key("tokenizer.ggml.tokens")) {
    const GgufArray* array = std::get_if<GgufArray>(tokens);
    if (array == nullptr || array->size() != static_cast<std::size_t>(config.vocab_size)) {
      return fail("key 'tokenizer.ggml.tokens': found ", array == nullptr ? 0 : array->size(),
                  " entries, but tensor 'token_embd.weight' has ", config.vocab_size, " rows");
    }
  }
  config.tied_output = keys.file().find_tensor("output.weight") == nullptr;
  return {};
}

Result<ops::RopeScaling> read_rope_scaling(const Keys& keys, std::int64_t context) {
  using Type = ops::RopeScaling::Type;
  ops::RopeScaling scaling;
  QUIRE_TRY(auto type, keys.file().get_optional_string(keys.full("rope.scaling.type")));
  constexpr FloatRange kFactor{1e-3, 1e6};
  QUIRE_TRY(auto legacy_factor, keys.number_or("rope.scale_linear", 1.0, kFactor));
  // Files without a type but with a factor mean linear scaling.
  std::string_view name = type.value_or("linear");
  if (name == "none") return scaling;
  if (name != "linear" && name != "yarn") {
    return fail("key '", keys.full("rope.scaling.type"), "': found ", gguf::quoted(name),
                ", supported: 'none', 'linear', 'yarn'");
  }
  QUIRE_TRY(scaling.factor, keys.number_or("rope.scaling.factor", legacy_factor, kFactor));
  if (name == "linear") {
    scaling.type = scaling.factor == 1.0 ? Type::none : Type::linear;
    return scaling;
  }
  scaling.type = Type::yarn;
  QUIRE_TRY(scaling.original_context,
            keys.integer_or("rope.scaling.original_context_length", context, {1, kMaxContext}));
  QUIRE_TRY(scaling.attn_factor, keys.number_or("rope.scaling.attn_factor", 1.0, kFactor));
  QUIRE_TRY(scaling.beta_fast, keys.number_or("rope.scaling.yarn_beta_fast", 32.0, {1e-3, 1e6}));
  QUIRE_TRY(scaling.beta_slow, keys.number_or("rope.scaling.yarn_beta_slow", 1.0, {1e-3, 1e6}));
  QUIRE_TRY(auto ext_factor, keys.number_or("rope.scaling.yarn_ext_factor", 1.0, {-1e6, 1e6}));
  if (ext_factor != 1.0 && ext_factor != -1.0) {  // -1: "unset"
    return fail("key '", keys.full("rope.scaling.yarn_ext_factor"), "': found ", ext_factor, ", supported: 1");
  }
  return scaling;
}

/// The factors of llama-3 scaling, a tensor in the file.
Result<std::vector<float>> read_frequency_factors(const Keys& keys, std::int64_t rotary_dim) {
  for (auto name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    if (keys.file().find_tensor(name) != nullptr) {
      return fail("tensor '", name,
                  "': scaling of the longrope kind is not supported; supported: linear, yarn, llama-3");
    }
  }
  const GgufTensor* tensor = keys.file().find_tensor("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>();
  if (tensor->dtype != DType::f32 || tensor->shape != std::vector<std::int64_t>{rotary_dim / 2}) {
    return fail("tensor 'rope_freqs.weight': found type ", info(tensor->dtype).name, " and ", tensor->cols(),
                " elements in a row, wanted F32 and ", rotary_dim / 2);
  }
  std::vector<float> factors(static_cast<std::size_t>(rotary_dim / 2));
  std::memcpy(factors.data(), tensor->data, factors.size() * sizeof(float));
  for (float factor : factors) {
    if (!(factor >= 1e-3f && factor <= 1e6f)) {
      return fail("tensor 'rope_freqs.weight': found a factor of ", factor, ", supported: 0.001 to 1000000");
    }
  }
  return factors;
}

Result<ops::RopeParams> read_rope(const Keys& keys, const ModelConfig& config) {
  ops::RopeParams rope;
  QUIRE_TRY(rope.rotary_dim, keys.integer_or("rope.dimension_count", config.head_dim, {2, config.head_dim}));
  if (rope.rotary_dim % 2 != 0) {
    return fail("key '", keys.full("rope.dimension_count"), "': found ", rope.rotary_dim, ", wanted an even number");
  }
  QUIRE_TRY(rope.base, keys.number_or("rope.freq_base", kDefaultRopeBase, {1.0, 1e12}));
  QUIRE_TRY(rope.scaling, read_rope_scaling(keys, config.context));
  QUIRE_TRY(rope.frequency_factors, read_frequency_factors(keys, rope.rotary_dim));
  return rope;
}

Result<void> refuse_window(const Keys& keys, std::int64_t context) {
  QUIRE_TRY(auto window, keys.integer_or("attention.sliding_window", 0, {0, kMaxContext}));
  if (window == 0 || window >= context) return {};
  return fail("key '", keys.full("attention.sliding_window"), "': found ", window,
              ", but sliding windows are supported for gemma3 only");
}

float inverse_sqrt(std::int64_t n) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(n))); }

/// Llama and Qwen2: full attention in every layer.
Result<void> read_plain_layers(const Keys& keys, ModelConfig& config) {
  QUIRE_TRY_VOID(refuse_window(keys, config.context));
  QUIRE_TRY(auto rope, read_rope(keys, config));
  config.rope.push_back(std::move(rope));
  config.layers.assign(static_cast<std::size_t>(config.num_layers), LayerConfig{});
  QUIRE_TRY(auto scale, keys.number_or("attention.scale", 0.0, {0.0, 1e3}));
  config.attention_scale = scale == 0.0 ? inverse_sqrt(config.head_dim) : static_cast<float>(scale);
  return {};
}

Result<void> read_llama(const Keys& keys, ModelConfig& config) {
  config.rope_style = RopeStyle::interleaved;
  config.activation = Activation::silu;
  config.has_qkv_bias = keys.file().find_tensor("blk.0.attn_q.bias") != nullptr;
  return read_plain_layers(keys, config);
}

Result<void> read_qwen2(const Keys& keys, ModelConfig& config) {
  config.rope_style = RopeStyle::neox;
  config.activation = Activation::silu;
  config.has_qkv_bias = true;
  return read_plain_layers(keys, config);
}

/// Which layers of Gemma slide: every sixth is full, unless the file gives a period or one flag a layer.
Result<std::vector<bool>> read_sliding_layers(const Keys& keys, std::int64_t num_layers) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  std::vector<bool> slides(static_cast<std::size_t>(num_layers));
  const GgufValue* value = keys.file().find_key(keys.full(kKey));
  if (value != nullptr && std::holds_alternative<GgufArray>(*value)) {
    const auto* flags = std::get_if<std::vector<bool>>(&std::get<GgufArray>(*value).values);
    if (flags == nullptr || flags->size() != slides.size()) {
      return fail("key '", keys.full(kKey), "': found an array of ", std::get<GgufArray>(*value).size(),
                  " elements, wanted a number or ", num_layers, " bools");
    }
    return *flags;
  }
  QUIRE_TRY(auto period, keys.integer_or(kKey, kGemmaFullEvery, {1, kMaxLayers}));
  for (std::int64_t i = 0; i < num_layers; ++i) slides[static_cast<std::size_t>(i)] = (i + 1) % period != 0;
  return slides;
}

Result<void> read_gemma3(const Keys& keys, ModelConfig& config) {
  config.rope_style = RopeStyle::neox;
  config.activation = Activation::gelu_tanh;
  config.has_qk_norm = config.has_post_norms = true;
  config.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden)));
  std::int64_t scale_from = config.num_layers == kGemma27bLayers ? config.hidden / config.num_heads : config.head_dim;
  config.attention_scale = inverse_sqrt(scale_from);
  QUIRE_TRY(auto window, keys.integer("attention.sliding_window", {1, kMaxContext}));
  QUIRE_TRY(auto full, read_rope(keys, config));
  ops::RopeParams local;
  local.rotary_dim = full.rotary_dim;
  QUIRE_TRY(local.base, keys.number_or("rope.freq_base_swa", kGemmaLocalRopeBase, {1.0, 1e12}));
  config.rope = {std::move(full), std::move(local)};
  QUIRE_TRY(auto slides, read_sliding_layers(keys, config.num_layers));
  for (bool sliding : slides) config.layers.push_back(sliding ? LayerConfig{window, 1} : LayerConfig{0, 0});
  return {};
}

}  // namespace

Result<ModelConfig> read_config(const GgufFile& file) {
  ModelConfig config;
  QUIRE_TRY(config.architecture, read_architecture(file));
  QUIRE_TRY(auto name, file.get_optional_string("general.name"));
  config.name = std::string(name.value_or(""));
  Keys keys(file, config.architecture);
  QUIRE_TRY_VOID(refuse_foreign_keys(keys));
  QUIRE_TRY_VOID(read_sizes(keys, config));
  QUIRE_TRY_VOID(read_vocabulary(keys, config));
  if (config.architecture == "llama") {
    QUIRE_TRY_VOID(read_llama(keys, config));
  } else if (config.architecture == "qwen2") {
    QUIRE_TRY_VOID(read_qwen2(keys, config));
  } else {
    QUIRE_TRY_VOID(read_gemma3(keys, config));
  }
  return config;
}

}  // namespace quire::model
