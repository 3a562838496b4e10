// quire inspect: what a model file holds, read without loading it.

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "commands.h"
#include "flags.h"
#include "quire/engine/tokenizer_data.h"
#include "quire/json/json.h"
#include "quire/model/config.h"
#include "quire/model/gguf.h"
#include "quire/model/layer_grouping.h"
#include "quire/tensor/dtype.h"
#include "quire/text/tokenizer.h"
#include "quire/text/utf8.h"
#include "terminal.h"

namespace quire::cli {
namespace {

constexpr std::size_t kShownItems = 3;   ///< of an array
constexpr std::size_t kShownBytes = 72;  ///< of a string

struct InspectFlags {
  std::string path;
  bool json = false, tensors = false;
};

/// Tensors of one storage format together.
struct TypeTotal {
  DType dtype = DType::f32;
  std::int64_t count = 0, elements = 0, bytes = 0;
};

struct TokenizerSummary {
  std::string model, pre;
  std::int32_t vocab_size = 0;
  std::optional<TokenId> bos, eos;
  bool add_bos = false;
  std::vector<TokenId> end_tokens;
};

/// All that is printed, in both forms.
struct Report {
  std::vector<TypeTotal> totals;
  std::int64_t parameters = 0;
  Result<model::ModelConfig> config = fail("not read");
  Result<TokenizerSummary> tokenizer = fail("not read");
  std::optional<std::string> chat_template;
};

std::vector<TypeTotal> totals_by_type(const model::GgufFile& file) {
  std::vector<TypeTotal> totals;
  for (DType dtype : kAllDTypes) {
    TypeTotal total{.dtype = dtype};
    for (const auto& tensor : file.tensors()) {
      if (tensor.dtype != dtype) continue;
      ++total.count;
      total.elements += tensor.cols() * tensor.rows();
      total.bytes += tensor.bytes;
    }
    if (total.count != 0) totals.push_back(total);
  }
  std::stable_sort(totals.begin(), totals.end(),
                   [](const TypeTotal& a, const TypeTotal& b) { return a.bytes > b.bytes; });
  return totals;
}

Result<TokenizerSummary> summarise_tokenizer(const model::GgufFile& file) {
  QUIRE_TRY(TokenizerData data, engine::tokenizer_data(file));
  TokenizerSummary summary{.model = data.model, .pre = data.pre};
  QUIRE_TRY(auto tokenizer, Tokenizer::create(std::move(data)));
  summary.vocab_size = tokenizer->vocab_size();
  summary.bos = tokenizer->bos();
  summary.eos = tokenizer->eos();
  summary.add_bos = tokenizer->add_bos();
  summary.end_tokens.assign(tokenizer->end_tokens().begin(), tokenizer->end_tokens().end());
  return summary;
}

Report examine(const model::GgufFile& file) {
  Report found{.totals = totals_by_type(file)};
  for (const auto& total : found.totals) found.parameters += total.elements;
  found.config = model::read_config(file);
  found.tokenizer = summarise_tokenizer(file);
  if (auto source = engine::chat_template_source(file); source.ok()) found.chat_template = *source;
  return found;
}

json::Value item_as_json(const model::GgufArray& array, std::size_t index) {
  return std::visit(
      [index](const auto& values) -> json::Value {
        using Item = typename std::decay_t<decltype(values)>::value_type;
        if constexpr (std::is_same_v<Item, std::string_view>)
          return replace_invalid_utf8(values[index]);
        else
          return static_cast<Item>(values[index]);
      },
      array.values);
}

json::Value array_as_json(const model::GgufArray& array, std::size_t max_items) {
  json::Array items;
  for (std::size_t i = 0; i < std::min(array.size(), max_items); ++i) items.emplace_back(item_as_json(array, i));
  return items;
}

/// Arrays as their size and first items: a vocabulary is no use here.
json::Value key_as_json(const model::GgufValue& value) {
  if (const auto* array = std::get_if<model::GgufArray>(&value)) {
    return json::Object{{"size", array->size()}, {"first", array_as_json(*array, kShownItems)}};
  }
  if (const auto* text = std::get_if<std::string_view>(&value)) return replace_invalid_utf8(*text);
  return std::visit(
      [](const auto& plain) -> json::Value {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(plain)>>)
          return plain;
        else
          return nullptr;
      },
      value);
}

/// One line, control characters escaped.
std::string key_as_text(const model::GgufValue& value) {
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    std::string shown;
    json::append_string(shown, text->substr(0, kShownBytes));
    if (text->size() > kShownBytes) shown += cat(" ... (", text->size(), " bytes)");
    return shown;
  }
  if (const auto* array = std::get_if<model::GgufArray>(&value)) {
    std::string shown = json::dump(array_as_json(*array, kShownItems), {.item_separator = ", "});
    if (array->size() > kShownItems) shown.insert(shown.size() - 1, cat(", ... (", array->size(), ")"));
    return shown;
  }
  return json::dump(key_as_json(value));
}

json::Value shape_as_json(const model::GgufTensor& tensor) {
  return json::Array(tensor.shape.begin(), tensor.shape.end());
}

json::Value config_as_json(const model::ModelConfig& config) {
  return json::Object{{"architecture", config.architecture},
                      {"layers", config.num_layers},
                      {"hidden", config.hidden},
                      {"ffn", config.ffn},
                      {"heads", config.num_heads},
                      {"kv_heads", config.num_kv_heads},
                      {"head_dim", config.head_dim},
                      {"vocab_size", config.vocab_size},
                      {"context", config.context},
                      {"tied_output", config.tied_output}};
}

json::Value id_or_null(std::optional<TokenId> id) { return id ? json::Value(id->value) : json::Value(); }

json::Value tokenizer_as_json(const TokenizerSummary& tokenizer) {
  json::Array ends;
  for (TokenId id : tokenizer.end_tokens) ends.emplace_back(id.value);
  return json::Object{{"model", tokenizer.model},           {"pre", tokenizer.pre},
                      {"vocab_size", tokenizer.vocab_size}, {"bos", id_or_null(tokenizer.bos)},
                      {"eos", id_or_null(tokenizer.eos)},   {"add_bos", tokenizer.add_bos},
                      {"end_tokens", std::move(ends)}};
}

/// The value, or {"error": why}.
template <class T, class ToJson>
json::Value or_error(const Result<T>& result, ToJson to_json) {
  if (!result.ok()) return json::Object{{"error", result.error().message}};
  return to_json(*result);
}

std::string as_json(const InspectFlags& flags, const model::GgufFile& file, const Report& found) {
  json::Object keys, types;
  for (const auto& key : file.keys()) keys.append(replace_invalid_utf8(key.name), key_as_json(key.value));
  for (const auto& total : found.totals) {
    types.append(std::string(info(total.dtype).name),
                 json::Object{{"tensors", total.count}, {"elements", total.elements}, {"bytes", total.bytes}});
  }
  json::Object out{{"file", flags.path},
                   {"version", file.version()},
                   {"bytes", file.file_bytes()},
                   {"parameters", found.parameters},
                   {"config", or_error(found.config, config_as_json)},
                   {"tokenizer", or_error(found.tokenizer, tokenizer_as_json)},
                   {"chat_template", found.chat_template ? json::Value(*found.chat_template) : json::Value()},
                   {"tensor_types", std::move(types)},
                   {"keys", std::move(keys)}};
  if (flags.tensors) {
    json::Array tensors;
    for (const auto& tensor : file.tensors()) {
      tensors.emplace_back(json::Object{{"name", replace_invalid_utf8(tensor.name)},
                                        {"type", info(tensor.dtype).name},
                                        {"shape", shape_as_json(tensor)},
                                        {"bytes", tensor.bytes}});
    }
    out.append("tensors", std::move(tensors));
  }
  return json::dump(out) + "\n";
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string right(std::string text, std::size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

std::string mib(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / 0x1p20);
  return text;
}

std::string id_and_text(const std::vector<TokenId>& ids) {
  std::string text;
  for (TokenId id : ids) text += cat(text.empty() ? "" : ", ", id);
  return text.empty() ? "none" : text;
}

/// How the layers are cut into groups where some have a window, and what is left of a token behind it.
std::string windows_text(const model::ModelConfig& config) {
  const model::LayerGrouping grouping = model::group_layers(config, model::KvArrangement::grouped);
  if (grouping.num_groups() == 1) return "";
  const auto full = std::ranges::count(grouping.windows, 0);
  const std::int64_t bytes = grouping.layers_per_group * config.num_kv_heads * config.head_dim * 4;
  return cat(", ", full * bytes, " behind the window of ", grouping.windows.back(), ": ", grouping.num_groups(),
             " groups of ", grouping.layers_per_group, " layers, ", full, " full");
}

std::string summary_as_text(const InspectFlags& flags, const model::GgufFile& file, const Report& found) {
  std::string out = cat("file        ", flags.path, ": GGUF version ", file.version(), ", ", file.file_bytes(),
                        " bytes, ", file.tensors().size(), " tensors, ", found.parameters, " parameters\n");
  if (found.config.ok()) {
    const auto& c = *found.config;
    out += cat("model       ", c.architecture, ": ", c.num_layers, " layers, hidden ", c.hidden, ", ffn ", c.ffn, ", ",
               c.num_heads, " heads on ", c.num_kv_heads, " KV heads of ", c.head_dim, ", context ", c.context,
               c.tied_output ? ", tied output" : "", "\n");
    out += cat("kv          ", c.num_layers * c.num_kv_heads * c.head_dim * 4, " bytes a token in f16", windows_text(c),
               "\n");
  } else {
    out += cat("model       cannot be run: ", found.config.error().message, "\n");
  }
  if (found.tokenizer.ok()) {
    const auto& t = *found.tokenizer;
    out += cat("tokenizer   ", t.model, t.pre.empty() ? "" : " / ", t.pre, ": ", t.vocab_size, " tokens, BOS ",
               t.bos ? cat(*t.bos) : "none", t.add_bos ? " (added)" : " (not added)", ", end tokens ",
               id_and_text(t.end_tokens), "\n");
  } else {
    out += cat("tokenizer   cannot be used: ", found.tokenizer.error().message, "\n");
  }
  return out + cat("template    ", found.chat_template ? cat(found.chat_template->size(), " bytes") : "none", "\n");
}

std::string as_text(const InspectFlags& flags, const model::GgufFile& file, const Report& found) {
  std::string out = summary_as_text(flags, file, found) + "\ntensors\n";
  for (const auto& total : found.totals) {
    out += cat("  ", padded(std::string(info(total.dtype).name), 6), right(cat(total.count), 6),
               right(cat(total.elements), 14), " elements", right(mib(total.bytes), 13), "\n");
  }
  if (flags.tensors) {
    for (const auto& tensor : file.tensors()) {
      std::string name;
      json::append_string(name, tensor.name);
      out += cat("  ", padded(name, 34), padded(std::string(info(tensor.dtype).name), 6),
                 padded(json::dump(shape_as_json(tensor), {.item_separator = ", "}), 18), right(mib(tensor.bytes), 12),
                 "\n");
    }
  }
  out += "\nkeys\n";
  for (const auto& key : file.keys()) {
    std::string name;
    json::append_string(name, key.name);
    out += cat("  ", padded(name.substr(1, name.size() - 2), 42), " ", key_as_text(key.value), "\n");
  }
  return out;
}

int inspect(const InspectFlags& flags) {
  auto file = model::GgufFile::open(flags.path);
  if (!file.ok()) return report(file.error().message), kFailed;
  Report found = examine(*file);
  write_output(flags.json ? as_json(flags, *file, found) : as_text(flags, *file, found));
  return kDone;
}

}  // namespace

void add_inspect(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<InspectFlags>();
  auto* command = app.add_subcommand("inspect", "What a model file holds: configuration, tokenizer, tensors, keys");
  add_model(*command, flags->path);
  command->add_flag("--tensors", flags->tensors, "List every tensor");
  command->add_flag("--json", flags->json, "One JSON object");
  command->callback([flags, &chosen] { chosen = [flags] { return inspect(*flags); }; });
}

}  // namespace quire::cli
