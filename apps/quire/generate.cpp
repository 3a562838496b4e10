// quire generate: raw text in, its continuation out.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answers.h"
#include "commands.h"
#include "flags.h"
#include "quire/json/json.h"
#include "quire/text/chat_prompt.h"
#include "quire/text/tokenizer.h"
#include "terminal.h"

namespace quire::cli {
namespace {

constexpr std::size_t kMaxPromptBytes = std::size_t{64} << 20;

struct GenerateFlags {
  engine::EngineOptions engine;
  engine::GenerateRequest request;
  std::optional<std::string> prompt;
  std::vector<std::int32_t> ids, stop_tokens;
  std::int32_t max_tokens = 256;
  std::optional<std::uint64_t> seed;
  std::optional<std::int32_t> logprobs;
  std::int32_t num_answers = 1;
  std::optional<std::int32_t> beam_width;
  BeamParams beams;
  std::string early_stopping = "false";
  bool special = false, json = false;
};

/// A whole answer.
struct Collected {
  std::string text;
  std::vector<engine::OutputToken> tokens;
  engine::Delta last;
};

Result<std::vector<TokenId>> prompt_tokens(const GenerateFlags& flags, const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  if (!flags.prompt) {
    for (std::int32_t id : flags.ids) ids.push_back(TokenId{id});
    return ids;
  }
  std::string text = *flags.prompt;
  if (text == "-") {
    QUIRE_TRY(text, read_input(kMaxPromptBytes));
  }
  QUIRE_TRY(ids, tokenizer.encode(text, flags.special ? SpecialTokens::parsed : SpecialTokens::as_text));
  return with_bos(tokenizer, std::move(ids));
}

std::string_view finish_reason(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::stop:
      return "stop";
    case engine::FinishReason::length:
      return "length";
    case engine::FinishReason::cancelled:
      return "cancelled";
    case engine::FinishReason::timed_out:
      return "timed_out";
    case engine::FinishReason::failed:
      return "failed";
  }
  return "";
}

double per_second(std::int64_t count, std::uint64_t ns) {
  return ns == 0 ? 0 : static_cast<double>(count) * 1e9 / static_cast<double>(ns);
}

void write_logprobs(json::Writer& out, const Collected& answer, const Tokenizer& tokenizer) {
  out.key("logprobs").begin_array();
  for (const auto& token : answer.tokens) {
    out.begin_object().field("id", token.token.value).field("token", tokenizer.token_bytes(token.token));
    out.key("logprob").raw(cat(token.logprob)).key("top").begin_array();
    for (const auto& other : token.top) {
      out.begin_array().value(other.token.value).raw(cat(other.logprob)).end_array();
    }
    out.end_array().end_object();
  }
  out.end_array();
}

void write_answer(json::Writer& out, const GenerateFlags& flags, const Collected& answer, const Tokenizer& tokenizer) {
  const engine::Finish& finish = *answer.last.finish;
  out.field("text", answer.text).key("token_ids").begin_array();
  for (const auto& token : answer.tokens) out.value(token.token.value);
  out.end_array().field("finish_reason", finish_reason(finish.reason));
  if (finish.stop_string) out.field("stop_string", *finish.stop_string);
  if (finish.stop_token) out.field("stop_token", finish.stop_token->value);
  if (finish.score) out.field("beam_score", *finish.score);
  if (flags.logprobs) write_logprobs(out, answer, tokenizer);
}

/// The first answer's members, usage and timings; then, where several were asked for, all of them as "answers".
std::string as_json(const GenerateFlags& flags, const std::vector<Collected>& answers, const engine::Engine& engine) {
  const Tokenizer& tokenizer = engine.tokenizer();
  std::string text;
  json::Writer out(text);
  out.begin_object();
  write_answer(out, flags, answers.front(), tokenizer);
  const auto& usage = answers.front().last.usage;
  std::int32_t completion_tokens = 0;
  for (const Collected& answer : answers) completion_tokens += answer.last.usage.completion_tokens;
  out.key("usage").begin_object().field("prompt_tokens", usage.prompt_tokens);
  out.field("completion_tokens", completion_tokens);
  out.field("total_tokens", usage.prompt_tokens + completion_tokens);
  out.field("cached_tokens", usage.cached_tokens).end_object();
  const auto& timings = answers.front().last.timings;
  out.key("timings").begin_object().field("queue_ms", static_cast<double>(timings.queue_ns) / 1e6);
  out.field("prefill_ms", static_cast<double>(timings.prefill_ns) / 1e6);
  out.field("decode_ms", static_cast<double>(timings.decode_ns) / 1e6);
  out.field("prefill_tokens_per_s", per_second(usage.prompt_tokens - usage.cached_tokens, timings.prefill_ns));
  out.field("decode_tokens_per_s", per_second(usage.completion_tokens - 1, timings.decode_ns)).end_object();
  if (flags.engine.num_speculative_tokens > 0) {
    const engine::EngineStats stats = engine.stats();
    out.key("speculation").begin_object().field("steps", stats.steps).field("proposed_tokens", stats.proposed_tokens);
    out.field("accepted_tokens", stats.accepted_tokens).end_object();
  }
  out.field("seed", flags.request.sampling.seed);
  if (answers.size() > 1) {
    out.key("answers").begin_array();
    for (const Collected& answer : answers) {
      out.begin_object();
      write_answer(out, flags, answer, tokenizer);
      out.end_object();
    }
    out.end_array();
  }
  out.end_object();
  text += '\n';
  return text;
}

/// Takes deltas until the end. A single answer's text is printed as it comes unless it is collected for --json.
std::vector<Collected> receive(engine::Engine& engine, RequestId id, DeltaQueue& queue, const GenerateFlags& flags) {
  std::vector<Collected> answers(static_cast<std::size_t>(flags.num_answers));
  const bool prints = !flags.json && answers.size() == 1;
  while (true) {
    engine::Delta delta = queue.pop().delta;
    Collected& answer = answers[static_cast<std::size_t>(delta.branch)];
    answer.text += delta.text;
    answer.tokens.insert(answer.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    if (prints && !delta.text.empty()) {
      if (!write_output(delta.text) || !flush_output()) engine.cancel(id);
    }
    const bool is_last = delta.ends_request;
    if (delta.finish) answer.last = std::move(delta);
    if (is_last) return answers;
  }
}

/// Sets how many answers are made, and how; false if the flags do not go together.
bool set_branches(GenerateFlags& flags) {
  auto& request = flags.request;
  flags.engine.max_batch_rows = flags.beam_width.value_or(flags.num_answers);  // KV memory follows from it
  if (!flags.beam_width) {
    request.num_branches = flags.num_answers;
    return true;
  }
  if (*flags.beam_width < flags.num_answers) {
    report(cat("generate: --beam-width is ", *flags.beam_width, ", wanted at least the ", flags.num_answers,
               " answers of --n"));
    return false;
  }
  request.beams = flags.beams;
  request.beams->width = *flags.beam_width;
  request.beams->num_returned = flags.num_answers;
  if (flags.early_stopping == "true") request.beams->early_stopping = EarlyStopping::when_full;
  if (flags.early_stopping == "never") request.beams->early_stopping = EarlyStopping::never;
  return true;
}

int generate(GenerateFlags& flags) {
  if (flags.prompt.has_value() == !flags.ids.empty()) {
    report("generate: wanted either a prompt or --ids (see quire generate --help)");
    return kUsage;
  }
  if (flags.logprobs && !flags.json) {
    report("generate: --logprobs is printed by --json only; add --json");
    return kUsage;
  }
  if (!set_branches(flags)) return kUsage;
  auto engine = open_engine(flags.engine);
  if (!engine.ok()) return report(engine.error().message), kFailed;
  auto prompt = prompt_tokens(flags, (*engine)->tokenizer());
  if (!prompt.ok()) return report(prompt.error().message), kFailed;

  auto& request = flags.request;
  request.prompt = std::move(*prompt);
  request.max_tokens = flags.max_tokens;
  for (std::int32_t id : flags.stop_tokens) request.stop_tokens.push_back(TokenId{id});
  request.sampling.seed = flags.seed ? *flags.seed : draw_seed();
  request.top_logprobs = flags.logprobs;

  DeltaQueue queue;
  auto submitted = (*engine)->submit(request, [&queue](engine::Delta delta) { queue.push(0, std::move(delta)); });
  if (!submitted.id) return report(submitted.refusal.message), kFailed;
  const std::vector<Collected> answers = receive(**engine, *submitted.id, queue, flags);
  for (const Collected& answer : answers)
    if (answer.last.finish->reason == engine::FinishReason::failed) return report(answer.last.finish->message), kFailed;
  if (flags.json) return write_output(as_json(flags, answers, **engine)), kDone;
  for (std::size_t k = 0; answers.size() > 1 && k < answers.size(); ++k)
    write_output(cat(k > 0 ? "\n" : "", "--- ", k + 1, " ---\n", answers[k].text));
  write_output("\n");
  return kDone;
}

}  // namespace

void add_generate(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<GenerateFlags>();
  flags->request.sampling.temperature = 0;
  auto* command = app.add_subcommand("generate",
                                     "Continue a text as it stands: no chat template; BOS in front if the model wants "
                                     "one. Greedy unless a temperature "
                                     "is given. Prints the text and a line break; --json prints one object");
  add_model(*command, flags->engine.model_path);
  command->add_option("PROMPT", flags->prompt, "The text; - reads it from standard input");
  command->add_option("--ids", flags->ids, "Token ids instead of a text, used as given: 1,2,3")->delimiter(',');
  command->add_option("--max-tokens", flags->max_tokens, "Tokens to generate at most")
      ->check(CLI::Range(0, INT32_MAX))
      ->capture_default_str();
  command->add_option("--min-tokens", flags->request.min_tokens, "End tokens and stop strings count from here on only")
      ->check(CLI::Range(0, INT32_MAX));
  command->add_option("--seed", flags->seed, "Makes sampling repeatable (default: drawn, and shown by --json)")
      ->check(whole_number());
  command->add_option("--stop", flags->request.stop, "Text that ends the answer; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--stop-tokens", flags->stop_tokens, "Token ids that end the answer: 1,2,3")->delimiter(',');
  command->add_flag("--ignore-eos", flags->request.ignore_eos, "Go on past the model's end tokens");
  command->add_flag("--special", flags->special, "Parse control tokens spelled in the prompt");
  command->add_option("--logprobs", flags->logprobs, "With --json: logprobs of the tokens and of the n best ones")
      ->check(CLI::Range(0, INT32_MAX));
  command->add_flag("--json", flags->json, "One JSON object: text, token_ids, finish_reason, usage, timings");
  add_sampling_flags(*command, flags->request.sampling);
  command->add_option("--n", flags->num_answers, "Answers to make; answer k is that of the seed + k")
      ->check(CLI::Range(1, kMaxBranches));
  command
      ->add_option("--beam-width", flags->beam_width, "Search the most probable text with so many beams; --n are shown")
      ->check(CLI::Range(1, kMaxBranches));
  command
      ->add_option("--length-penalty", flags->beams.length_penalty, "With --beam-width: above 0 favours long answers")
      ->check(CLI::Range(-kMaxLengthPenalty, kMaxLengthPenalty))
      ->needs("--beam-width");
  command->add_option("--early-stopping", flags->early_stopping, "With --beam-width: when to stop before --max-tokens")
      ->check(CLI::IsMember({"false", "true", "never"}))
      ->needs("--beam-width");
  add_engine_flags(*command, flags->engine);
  command->callback([flags, &chosen] { chosen = [flags] { return generate(*flags); }; });
}

}  // namespace quire::cli
