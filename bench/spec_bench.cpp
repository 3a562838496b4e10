// speculative decoding with and without: tokens per second and acceptance, for answers that repeat their prompt and
// others

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>

#include "bench/measure.h"
#include "quire/base/cat.h"
#include "quire/base/check.h"
#include "quire/engine/engine.h"
#include "quire/json/json.h"
#include "quire/text/chat_prompt.h"
#include "quire/text/chat_template.h"
#include "quire/text/tokenizer.h"

namespace quire::bench {
namespace {

constexpr std::int32_t kSpeculativeTokens = 5, kMaxTokens = 160;
constexpr int kMaxRounds = 5;  ///< a round takes seconds

constexpr std::string_view kCode =
    "def mean(values):\n    total = 0\n    for value in values:\n        total = total + value\n"
    "    return total / len(values)\n\n"
    "def variance(values):\n    center = mean(values)\n    total = 0\n    for value in values:\n"
    "        total = total + (value - center) * (value - center)\n    return total / len(values)\n";

/// Answers that consist of their prompt for the most part.
std::vector<std::string> edits() {
  std::vector<std::string> prompts;
  for (std::string_view name : {"data", "numbers", "items", "samples", "points", "rows", "weights", "prices"})
    prompts.push_back(cat("Write this Python code again, with the name `", name, "` instead of `values`:\n\n", kCode));
  return prompts;
}

/// Answers in words of their own.
std::vector<std::string> chats() {
  return {"Why is the sky blue?",
          "Write a short story about a fox that learns to swim.",
          "What should I see in Rome in two days?",
          "Explain how a bicycle stays upright.",
          "Give me a recipe for a soup with lentils.",
          "How do I become better at chess?",
          "Write a letter to a friend who has moved to another country.",
          "What is the difference between weather and climate?"};
}

Result<engine::GenerateRequest> request_of(const engine::Engine& engine, const std::string& prompt,
                                           double temperature) {
  if (engine.chat_template() == nullptr) return fail("wants a model with a chat template");
  const json::Value messages = json::Array{json::Object{{"role", "user"}, {"content", prompt}}};
  const Tokenizer& tokenizer = engine.tokenizer();
  ChatInput input{.messages = messages, .bos_token = {}};
  if (tokenizer.eos()) input.eos_token = tokenizer.token_bytes(*tokenizer.eos());
  QUIRE_TRY(const Rendered rendered, engine.chat_template()->render(input));
  QUIRE_TRY(auto ids, encode_chat(tokenizer, rendered));
  engine::GenerateRequest request{.prompt = with_bos(tokenizer, std::move(ids)), .max_tokens = kMaxTokens};
  request.sampling.temperature = temperature;
  request.sampling.seed = 7;
  return request;
}

Result<std::unique_ptr<engine::Engine>> open_engine(const Options& options, std::int32_t num_speculative_tokens) {
  if (options.model.empty()) return fail("wants a model: --model FILE");
  engine::EngineOptions engine_options;
  engine_options.model_path = options.model;
  engine_options.threads = options.threads;
  engine_options.cpu_tier = std::string(to_string(options.tier));
  engine_options.context = 1024;
  engine_options.kv_memory_bytes = std::uint64_t{512} << 20;
  engine_options.num_speculative_tokens = num_speculative_tokens;
  return engine::Engine::open(std::move(engine_options));
}

/// Runs the requests, `batch` at a time.
double tokens_per_second(engine::Engine& engine, const std::vector<engine::GenerateRequest>& requests,
                         std::size_t batch) {
  std::mutex mutex;
  std::condition_variable done;
  std::size_t left = 0;
  std::int64_t tokens = 0;
  const auto on_delta = [&](const engine::Delta& delta) {
    if (!delta.finish) return;
    std::lock_guard lock(mutex);
    tokens += delta.usage.completion_tokens;
    if (--left == 0) done.notify_all();
  };
  const double seconds = seconds_of([&] {
    for (std::size_t i = 0; i < requests.size();) {
      std::unique_lock lock(mutex);
      for (; left < batch && i < requests.size(); ++i, ++left)
        QUIRE_CHECK(engine.submit(requests[i], on_delta).id, "a request of the benchmark is refused");
      done.wait(lock, [&] { return left == 0; });
    }
  });
  return static_cast<double>(tokens) / seconds;
}

struct Load {
  std::string_view name;
  std::vector<std::string> prompts;
  double temperature;
};

/// The prompts' K and V are in the prefix cache after the round that is not counted: what is measured is decoding.
Result<void> compare(const Load& load, std::size_t batch, const Options& options, report::Report& report) {
  QUIRE_TRY(auto with, open_engine(options, kSpeculativeTokens));
  QUIRE_TRY(auto without, open_engine(options, 0));
  std::vector<engine::GenerateRequest> requests;
  for (const std::string& prompt : load.prompts) {
    QUIRE_TRY(requests.emplace_back(), request_of(*with, prompt, load.temperature));
  }
  const auto rates =
      run_rounds(std::min(options.rounds, kMaxRounds), {[&] { return tokens_per_second(*with, requests, batch); },
                                                        [&] { return tokens_per_second(*without, requests, batch); }});
  const std::string what = cat(load.name, ", batch ", batch);
  report.rows.push_back(report::make_row({what, "tokens/s"}, rates[0], "no proposals", rates[1]));
  const engine::EngineStats stats = with->stats(), plain = without->stats();
  const auto share = [](std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  report.rows.push_back(report::make_row({cat(what, ": proposals that came true"), "%"},
                                         {100 * share(stats.accepted_tokens, stats.proposed_tokens)}));
  report.rows.push_back(report::make_row({cat(what, ": steps"), ""}, {static_cast<double>(stats.steps)}, "no proposals",
                                         {static_cast<double>(plain.steps)}));
  return {};
}

template <std::size_t kBatch>
Result<void> edit(const Options& options, report::Report& report) {
  return compare({"code written again", edits(), 0}, kBatch, options, report);
}

template <std::size_t kBatch>
Result<void> chat(const Options& options, report::Report& report) {
  return compare({"chat", chats(), 0}, kBatch, options, report);
}

template <std::size_t kBatch>
Result<void> chat_sampled(const Options& options, report::Report& report) {
  return compare({"chat at temperature 1", chats(), 1}, kBatch, options, report);
}

constexpr Section kSections[] = {{"edit-1", edit<1>},
                                 {"edit-8", edit<8>},
                                 {"chat-1", chat<1>},
                                 {"chat-8", chat<8>},
                                 {"sampled-1", chat_sampled<1>},
                                 {"sampled-8", chat_sampled<8>}};

}  // namespace

std::span<const Section> sections() { return kSections; }

}  // namespace quire::bench
