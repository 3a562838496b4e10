// quire quantize: a model file in another weight format.

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "flags.h"
#include "quire/engine/memory.h"
#include "quire/json/json.h"
#include "quire/model/requantize.h"
#include "quire/text/utf8.h"
#include "table.h"
#include "terminal.h"

namespace quire::cli {
namespace {

struct QuantizeFlags {
  model::QuantizeOptions options;
  std::string to;
  std::vector<std::string> rules;  ///< PATTERN=FORMAT
  int threads = 0;
  bool force = false, json = false, tensors = false;
};

std::string format_names() {
  std::string names;
  for (DType dtype : kAllDTypes) names += cat(names.empty() ? "" : ", ", info(dtype).name);
  return names;
}

/// PATTERN=FORMAT
Result<model::TensorRule> parse_rule(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return fail("--tensor-type: found '", text, "', wanted PATTERN=FORMAT, such as 'token_embd.weight=Q8_0'");
  }
  const std::string format = text.substr(equals + 1);
  const auto dtype = find_dtype(format);
  if (!dtype) return fail("--tensor-type: found format '", format, "', wanted one of ", format_names());
  return model::TensorRule{text.substr(0, equals), *dtype};
}

std::string mib(double bytes) { return fixed(bytes / 0x1p20, 1) + " MiB"; }

/// Root mean squares go over many magnitudes.
std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

/// Error as a share of the values, both as root mean squares.
double relative_error(const model::QuantizedTensor& tensor) { return tensor.rms == 0 ? 0 : tensor.rmse / tensor.rms; }

std::string as_json(const QuantizeFlags& flags, const model::QuantizeReport& report) {
  json::Array tensors;
  for (const auto& tensor : report.tensors) {
    tensors.emplace_back(json::Object{{"name", replace_invalid_utf8(tensor.name)},
                                      {"from", info(tensor.from).name},
                                      {"to", info(tensor.to).name},
                                      {"shape", json::Array(tensor.shape.begin(), tensor.shape.end())},
                                      {"bytes_before", tensor.bytes_before},
                                      {"bytes_after", tensor.bytes_after},
                                      {"rms", tensor.rms},
                                      {"rmse", tensor.rmse},
                                      {"why", tensor.why.empty() ? json::Value() : json::Value(tensor.why)}});
  }
  return json::dump(json::Object{{"input", flags.options.input},
                                 {"output", flags.options.output},
                                 {"to", info(flags.options.to).name},
                                 {"bytes_before", report.bytes_before},
                                 {"bytes_after", report.bytes_after},
                                 {"tensors", std::move(tensors)}}) +
         "\n";
}

/// Tensors that went from one format to another.
struct Total {
  std::int64_t count = 0, bytes_before = 0, bytes_after = 0;
  double worst = 0;  ///< relative error
};

std::string totals_as_text(const model::QuantizeReport& report) {
  std::map<std::pair<DType, DType>, Total> totals;
  for (const auto& tensor : report.tensors) {
    Total& total = totals[{tensor.from, tensor.to}];
    ++total.count;
    total.bytes_before += tensor.bytes_before;
    total.bytes_after += tensor.bytes_after;
    total.worst = std::max(total.worst, relative_error(tensor));
  }
  Table table({"from -> to", "tensors", "before", "after", "worst rmse/rms"});
  for (const auto& [formats, total] : totals) {
    table.add({cat(info(formats.first).name, " -> ", info(formats.second).name), cat(total.count),
               mib(static_cast<double>(total.bytes_before)), mib(static_cast<double>(total.bytes_after)),
               percent(total.worst, 3)});
  }
  table.add({"file", cat(report.tensors.size()), mib(static_cast<double>(report.bytes_before)),
             mib(static_cast<double>(report.bytes_after))});
  return table.text();
}

/// A line for each reason, with the number of tensors it holds for.
std::string fallbacks_as_text(const model::QuantizeReport& report) {
  std::map<std::string, int> counts;
  for (const auto& tensor : report.tensors) {
    if (!tensor.why.empty()) ++counts[cat(tensor.why, ": ", info(tensor.to).name, " instead")];
  }
  std::string out;
  for (const auto& [why, count] : counts) out += cat(count, count == 1 ? " tensor: " : " tensors: ", why, "\n");
  return out;
}

std::string tensors_as_text(const model::QuantizeReport& report) {
  Table table({"tensor", "from", "to", "bytes", "rmse", "rmse/rms"});
  for (const auto& tensor : report.tensors) {
    std::string name;
    json::append_string(name, tensor.name);
    table.add({name, std::string(info(tensor.from).name), std::string(info(tensor.to).name),
               grouped(static_cast<std::uint64_t>(tensor.bytes_after)), short_number(tensor.rmse),
               percent(relative_error(tensor), 3)});
  }
  return table.text();
}

int quantize(QuantizeFlags flags) {
  flags.options.to = *find_dtype(flags.to);
  flags.options.existing = flags.force ? model::Existing::replace : model::Existing::refuse;
  for (const auto& text : flags.rules) {
    auto rule = parse_rule(text);
    if (!rule.ok()) return report(rule.error().message), kUsage;
    flags.options.rules.push_back(*std::move(rule));
  }
  Progress progress("quantizing");
  flags.options.progress = [&progress](double fraction) { progress.show(fraction); };
  ThreadPool pool(flags.threads == 0 ? engine::available_cores() : flags.threads);
  const auto done = model::quantize_file(flags.options, pool);
  progress.end();
  if (!done.ok()) return report(cat("quantize: ", done.error().message)), kFailed;
  if (flags.json) return write_output(as_json(flags, *done)), kDone;
  if (flags.tensors) write_output(tensors_as_text(*done) + "\n");
  write_output(totals_as_text(*done) + fallbacks_as_text(*done));
  return kDone;
}

}  // namespace

void add_quantize(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<QuantizeFlags>();
  auto* command = app.add_subcommand("quantize", "Write a model file in another weight format");
  command->add_option("input", flags->options.input, "A GGUF file")->required();
  command->add_option("output", flags->options.output, "The file to write")->required();
  std::vector<std::string> names;
  for (DType dtype : kAllDTypes) names.emplace_back(info(dtype).name);
  command->add_option("--to", flags->to, "The format of the weights")
      ->required()
      ->check(CLI::IsMember(names, CLI::ignore_case));
  command->add_option("--tensor-type", flags->rules,
                      "PATTERN=FORMAT, repeatable: another format for tensors whose name matches ('*': any text)");
  command->add_option("--threads", flags->threads, "0: all cores")->check(CLI::Range(0, 1024))->capture_default_str();
  command->add_flag("--force", flags->force, "Replace OUTPUT if it is there already");
  command->add_flag("--tensors", flags->tensors, "List every tensor");
  command->add_flag("--json", flags->json, "One JSON object: bytes and error of every tensor");
  command->callback([flags, &chosen] { chosen = [flags] { return quantize(*flags); }; });
}

}  // namespace quire::cli
