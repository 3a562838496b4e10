#include "flags.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>

#include "quire/sched/ngram_proposer.h"
#include "quire/sched/policy.h"
#include "terminal.h"

namespace quire::cli {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::uint64_t kMaxSeed = INT64_MAX;  ///< as in the HTTP API

constexpr Unit kUnits[] = {{"", 1},       {"B", 1},        {"K", 0x1p10},   {"M", 0x1p20},   {"G", 0x1p30},
                           {"T", 0x1p40}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
                           {"kB", 1e3},   {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};

/// The number that all of the text is; from_chars knows neither prefixes nor spaces.
template <class T>
std::optional<T> number_of(std::string_view text) {
  T number{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

class ByteCount : public CLI::Validator {
 public:
  explicit ByteCount(std::uint64_t min = 0) : Validator("SIZE") {
    func_ = [min](std::string& text) {
      auto bytes = parse_bytes(text);
      if (!bytes.ok()) return bytes.error().message;
      if (*bytes < min) return cat("found ", *bytes, ", wanted a size of at least ", min);
      text = cat(*bytes);
      return std::string();
    };
  }
};

/// A finite number in [min, max]; CLI::Range would let NaN pass.
class Number : public CLI::Validator {
 public:
  Number(double min, double max, const std::string& wanted) : Validator("NUMBER") {
    func_ = [min, max, wanted](std::string& text) {
      const auto number = number_of<double>(text);
      if (number && *number >= min && *number <= max) return std::string();
      return cat("found ", text, ", wanted ", wanted);
    };
  }
};

template <class T>
std::string refuse_outside(std::string_view text, T least, T most, std::string_view kind) {
  const auto number = number_of<T>(text);
  if (number && *number >= least && *number <= most) return {};
  return cat("found '", text, "', wanted ", kind, " from ", least, " to ", most);
}

/// CLI11 would take 010 as octal.
bool has_leading_zero(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return text.size() > 1 && text.front() == '0';
}

/// What is wrong with the value of a flag of CLI11's type INT, UINT or FLOAT; empty: nothing.
std::string number_fault(std::string_view type, const std::string& text) {
  std::string_view wanted;
  if (type.starts_with("UINT")) {
    if (!number_of<std::uint64_t>(text) || has_leading_zero(text)) wanted = "a whole number of 0 or more";
  } else if (type.starts_with("INT")) {
    if (!number_of<std::int64_t>(text) || has_leading_zero(text)) wanted = "a whole number";
  } else if (const auto number = number_of<double>(text); !number || !std::isfinite(*number)) {
    wanted = "a number that is finite";
  }
  return wanted.empty() ? std::string() : cat("found '", text, "', wanted ", wanted);
}

CLI::IsMember one_of(std::span<const std::string_view> names) {
  return CLI::IsMember(std::vector<std::string>(names.begin(), names.end()));
}

}  // namespace

void check_numbers(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands({})) check_numbers(*command);
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (!type.starts_with("INT") && !type.starts_with("UINT") && !type.starts_with("FLOAT")) continue;
    option->check(CLI::Validator([type](std::string& text) { return number_fault(type, text); }, ""));
  }
}

CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) { return text.empty() ? std::string("found an empty word") : std::string(); }, "");
}

Result<std::vector<std::int32_t>> parse_ids(const std::string& flag, const std::vector<std::string>& words) {
  std::vector<std::int32_t> ids;
  for (const std::string& word : words) {
    for (std::size_t begin = 0; begin <= word.size();) {
      const std::size_t end = std::min(word.find(',', begin), word.size());
      const std::string item = CLI::detail::trim_copy(word.substr(begin, end - begin));
      const auto id = number_of<std::int32_t>(item);
      if (!id) return fail(flag, ": found '", item, "', wanted token ids such as 1,2,3");
      ids.push_back(*id);
      begin = end + 1;
    }
  }
  return ids;
}

void add_seed(CLI::App& command, std::optional<std::uint64_t>& seed, const std::string& help) {
  command.add_option("--seed", seed, help)->check(whole_number(0, kMaxSeed));
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  double number = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& known : kUnits) {
    if (error != std::errc() || unit != known.name) continue;
    double bytes = number * known.bytes;
    if (!(bytes >= 0 && bytes < 0x1p63)) break;
    return static_cast<std::uint64_t>(bytes);
  }
  return fail("found '", text, "', wanted a size such as 512MiB or 2GiB");
}

void add_bytes(CLI::App& command, const std::string& name, std::uint64_t& bytes, const std::string& help,
               const std::string& shown) {
  command
      .add_option_function<std::string>(
          name,
          [name, &bytes](const std::string& text) {
            const auto parsed = parse_bytes(text);
            if (!parsed.ok()) throw CLI::ValidationError(name, parsed.error().message);
            bytes = *parsed;
          },
          help)
      ->default_str(shown);
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return {[=](std::string& text) { return refuse_outside(text, least, most, "a whole number"); }, ""};
}

CLI::Validator number_within(double least, double most) {
  return {[=](std::string& text) { return refuse_outside(text, least, most, "a number"); },
          cat("FLOAT in [", least, " - ", most, "]")};
}

std::string shell_quoted(const std::string& word) {
  if (!word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=@%+") ==
          std::string::npos) {
    return word;
  }
  std::string out = "'";
  for (const char c : word) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

Result<void> read_environment(engine::EngineOptions& options) {
  if (const char* tier = std::getenv("QUIRE_CPU")) options.cpu_tier = tier;
  if (const char* text = std::getenv("QUIRE_TEST_F32")) {
    std::string_view value = text;
    if (value != "" && value != "0" && value != "1") return fail("QUIRE_TEST_F32: found '", value, "', wanted 0 or 1");
    options.reference_arithmetic = value == "1";
  }
  return {};
}

void add_model(CLI::App& command, std::string& path) {
  command.add_option("MODEL", path, "A model file in GGUF format")->required();
}

void add_engine_flags(CLI::App& command, engine::EngineOptions& options) {
  const auto positive = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40);
  command.add_option("--threads", options.threads, "Threads that compute (default: all cores this process may use)")
      ->check(CLI::Range(1, 1024));
  command.add_option("--ctx", options.context, "Tokens a request may have at most (default: the model's own)")
      ->check(positive);
  command
      .add_option("--kv-memory", options.kv_memory_bytes,
                  "Memory for the KV cache, as in 2GiB (default: a share of what is free)")
      ->transform(ByteCount(1));
  command.add_option("--kv-type", options.kv_type, "Format of the KV cache: f16, bf16, int8 or f32")
      ->check(CLI::IsMember({"f16", "bf16", "int8", "f32"}))
      ->capture_default_str();
  command.add_option("--block-size", options.block_size, "Tokens in a KV block: 8, 16, 32, 64 or 128")
      ->check(CLI::IsMember({8, 16, 32, 64, 128}))
      ->capture_default_str();
  command
      .add_option("--kv-layout", options.kv_layout,
                  "grouped: give KV memory back behind sliding windows; uniform: keep it (default: grouped; "
                  "with another KV manager than paged uniform)")
      ->check(CLI::IsMember({"grouped", "uniform"}));
  command
      .add_option("--kv-manager", options.kv_manager,
                  "How KV memory is managed: paged, vattention (contiguous, mapped on demand) or, for comparison, "
                  "reserved (the whole --ctx for every request, nothing shared)")
      ->check(CLI::IsMember({"paged", "vattention", "reserved"}))
      ->capture_default_str();
  command
      .add_option_function<std::uint64_t>(
          "--kv-page-group",
          [&options](std::uint64_t bytes) { options.kv_page_group = static_cast<std::int64_t>(bytes); },
          "With vattention, memory mapped at a time: a power of two from 64KiB to 2MiB")
      ->transform(ByteCount())
      ->default_str("256KiB");
  command.add_option("--kv-max-mappings", options.kv_max_mappings, "With vattention, mappings of the process at most")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--queue-policy", options.queue_policy, "Which requests are served first")
      ->check(one_of(queue_policy_names()))
      ->capture_default_str();
  command
      .add_option("--victim-policy", options.victim_policy, "Which request gives up its KV memory when that runs out")
      ->check(one_of(victim_policy_names()))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--prefix-cache", [&options](const std::string& value) { options.prefix_cache = value == "on"; },
          "Share prompt prefixes that were computed before: on or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->default_str("on");
  command
      .add_option(
          "--kv-ram-bytes", options.kv_ram_bytes,
          "Memory for KV blocks that the KV cache has no room for, kept as they are, as in 2GiB (default: none)")
      ->transform(ByteCount());
  command
      .add_option("--kv-swap-dir", options.kv_swap_dir,
                  "Directory for KV blocks in files: the prefix cache survives a restart; needs --kv-ram-bytes")
      ->check(not_empty());
  command.add_option("--kv-swap-bytes", options.kv_swap_bytes, "Size of all KV block files at most (default: 4GiB)")
      ->transform(ByteCount())
      ->needs("--kv-swap-dir");
  command.add_flag("--kv-swap-compression", options.kv_swap_compression, "Write KV block files compressed (zstd)");
  command.add_option("--preemption", options.preemption, "What becomes of the KV of a request that has to yield")
      ->check(CLI::IsMember({"auto", "swap", "recompute"}))
      ->capture_default_str();
  command.add_option("--max-batch-tokens", options.max_batch_tokens, "Tokens computed in one step at most")
      ->check(CLI::Range(std::int64_t{1}, engine::kMaxBatch))
      ->capture_default_str();
  command.add_option("--max-batch-rows", options.max_batch_rows, "Answers and beams that are computed at once at most")
      ->check(CLI::Range(std::int64_t{1}, engine::kMaxBatch))
      ->capture_default_str();
  command
      .add_option(
          "--speculative-tokens", options.num_speculative_tokens,
          "Speculative decoding: tokens that are guessed from the text so far and verified in one step, at most "
          "so many for an answer; 0: off")
      ->check(CLI::Range(0, kMaxSpeculativeTokens))
      ->capture_default_str();
  command
      .add_option("--ngram-min", options.ngram.min_match,
                  "With speculative tokens: guess what followed the last so many tokens, at least, before")
      ->check(CLI::Range(1, kMaxNgram))
      ->capture_default_str();
  command.add_option("--ngram-max", options.ngram.max_match, "Likewise at most; the longest match wins")
      ->check(CLI::Range(1, kMaxNgram))
      ->capture_default_str();
  command.add_option("--max-waiting", options.max_waiting, "Requests in the queue at most; one more is refused")
      ->check(CLI::Range(std::int64_t{1}, engine::kMaxWaiting))
      ->capture_default_str();
  command
      .add_option_function<double>(
          "--max-queue-seconds",
          [&options](double seconds) { options.max_queue_ms = static_cast<std::int64_t>(seconds * 1000); },
          "A request may wait for its first step at most so long, else it ends with 503 (default: any time)")
      ->check(number_within(0.001, 1e6));
  command
      .add_option("--repack-cache", options.repack_cache_dir,
                  "Keep packed weights in this directory, so that the next start is faster")
      ->check(not_empty());
  command.add_option("--command-log", options.command_log, "Record the scheduler's commands in this file, for replay")
      ->check(not_empty());
}

std::string engine_flags_text(const engine::EngineOptions& options) {
  const engine::EngineOptions usual;
  std::string text;
  const auto flag = [&text](std::string_view name, const auto& value, const auto& default_value) {
    if (value != default_value) text += cat(" ", name, " ", shell_quoted(cat(value)));
  };
  const auto size = [&text](std::string_view name, std::uint64_t value, std::uint64_t default_value) {
    constexpr std::uint64_t kMiB = 1 << 20;
    if (value == default_value) return;
    text += value % kMiB == 0 ? cat(" ", name, " ", value / kMiB, "MiB") : cat(" ", name, " ", value);
  };
  flag("--threads", options.threads, usual.threads);
  flag("--ctx", options.context, usual.context);
  size("--kv-memory", options.kv_memory_bytes, usual.kv_memory_bytes);
  flag("--kv-type", options.kv_type, usual.kv_type);
  flag("--block-size", options.block_size, usual.block_size);
  flag("--kv-layout", options.kv_layout, usual.kv_layout);
  flag("--kv-manager", options.kv_manager, usual.kv_manager);
  size("--kv-page-group", static_cast<std::uint64_t>(options.kv_page_group),
       static_cast<std::uint64_t>(usual.kv_page_group));
  flag("--kv-max-mappings", options.kv_max_mappings, usual.kv_max_mappings);
  flag("--queue-policy", options.queue_policy, usual.queue_policy);
  flag("--victim-policy", options.victim_policy, usual.victim_policy);
  if (!options.prefix_cache) text += " --prefix-cache off";
  flag("--speculative-tokens", options.num_speculative_tokens, usual.num_speculative_tokens);
  flag("--ngram-min", options.ngram.min_match, usual.ngram.min_match);
  flag("--ngram-max", options.ngram.max_match, usual.ngram.max_match);
  size("--kv-ram-bytes", options.kv_ram_bytes, usual.kv_ram_bytes);
  flag("--kv-swap-dir", options.kv_swap_dir, usual.kv_swap_dir);
  size("--kv-swap-bytes", options.kv_swap_bytes, usual.kv_swap_bytes);
  if (options.kv_swap_compression) text += " --kv-swap-compression";
  flag("--preemption", options.preemption, usual.preemption);
  flag("--max-batch-tokens", options.max_batch_tokens, usual.max_batch_tokens);
  flag("--max-batch-rows", options.max_batch_rows, usual.max_batch_rows);
  flag("--max-waiting", options.max_waiting, usual.max_waiting);
  if (options.max_queue_ms != usual.max_queue_ms)
    text += cat(" --max-queue-seconds ", static_cast<double>(options.max_queue_ms) / 1000);
  flag("--repack-cache", options.repack_cache_dir, usual.repack_cache_dir);
  flag("--command-log", options.command_log, usual.command_log);
  return text;
}

void add_sampling_flags(CLI::App& command, sampling::SamplingParams& params) {
  constexpr double kMost = 1e30, kLeast = 1e-30;
  const Number finite(-kMost, kMost, "a finite number");
  command.add_option("--temperature", params.temperature, "0: always the most likely token")
      ->check(Number(0, kMost, "a number of 0 or more"))
      ->capture_default_str();
  command.add_option("--top-k", params.top_k, "Sample from the k most likely tokens; 0: from all")
      ->check(CLI::Range(0, INT32_MAX))
      ->capture_default_str();
  command.add_option("--top-p", params.top_p, "Sample from the likeliest tokens that together reach this probability")
      ->check(Number(kLeast, 1, "a number above 0, up to 1"))
      ->capture_default_str();
  command.add_option("--min-p", params.min_p, "Drop tokens less likely than this share of the best one")
      ->check(Number(0, 1, "a number from 0 to 1"))
      ->capture_default_str();
  command.add_option("--repetition-penalty", params.repetition_penalty, "Above 1: repeat less")
      ->check(Number(kLeast, kMost, "a number above 0"))
      ->capture_default_str();
  command.add_option("--presence-penalty", params.presence_penalty, "Subtracted from logits of tokens in the answer")
      ->check(finite)
      ->capture_default_str();
  command
      .add_option("--frequency-penalty", params.frequency_penalty,
                  "Subtracted from logits for each occurrence in the answer")
      ->check(finite)
      ->capture_default_str();
}

Result<std::unique_ptr<engine::Engine>> open_engine(engine::EngineOptions options) {
  QUIRE_TRY_VOID(read_environment(options));
  Progress progress("loading");
  options.progress = [&progress](double fraction) { progress.show(fraction); };
  auto engine = engine::Engine::open(std::move(options));
  progress.end();
  if (engine.ok() && !(*engine)->info().repack.note.empty()) report((*engine)->info().repack.note);
  return engine;
}

std::uint64_t draw_seed() {
  std::random_device device;
  // JSON readers that know only doubles keep 53 bits.
  return ((std::uint64_t{device()} << 32) | device()) >> 11;
}

}  // namespace quire::cli
