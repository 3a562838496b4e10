// quire chat: a conversation on the terminal.

#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "answers.h"
#include "commands.h"
#include "flags.h"
#include "quire/json/json.h"
#include "quire/text/chat_prompt.h"
#include "quire/text/chat_template.h"
#include "terminal.h"

namespace quire::cli {
namespace {

constexpr int kExitInterrupted = 130;  ///< as shells report a program ended by Ctrl-C

volatile std::sig_atomic_t interrupted = 0;  ///< a signal handler can reach nothing else

extern "C" void on_interrupt(int) {
  if (interrupted != 0) ::_exit(kExitInterrupted);
  interrupted = 1;
}

/// While it lives, the first Ctrl-C sets `interrupted` and the second one ends the program.
class InterruptWatch {
 public:
  InterruptWatch() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    ::sigaction(SIGINT, &action, &before_);
  }
  ~InterruptWatch() { ::sigaction(SIGINT, &before_, nullptr); }
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  struct sigaction before_ {};
};

/// Control characters could move the cursor or worse: on a terminal they are shown as U+FFFD.
std::string for_terminal(std::string_view text) {
  std::string safe;
  for (char c : text) {
    bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
    control ? safe += "\xEF\xBF\xBD" : safe += c;
  }
  return safe;
}

struct ChatFlags {
  engine::EngineOptions engine;
  engine::GenerateRequest request;
  std::optional<std::string> system;
  std::optional<std::int32_t> max_tokens;
  std::optional<std::uint64_t> seed;
};

class Chat {
 public:
  Chat(engine::Engine& engine, const ChatFlags& flags)
      : engine_(engine), flags_(flags), seed_(flags.seed ? *flags.seed : draw_seed()) {
    reset();
  }

  int run() {
    if (interactive_) write_output("/reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer\n");
    LineReader input;
    std::string line;
    while (prompt_for(input, line)) {
      if (line == "/exit" || line == "/quit") break;
      if (line == "/help" || line == "/?") {
        write_output("/reset forgets the conversation, /exit leaves\n");
      } else if (line == "/reset") {
        reset();
      } else if (line.starts_with('/') && interactive_) {
        write_output(cat("'", line, "' is not a command: /reset, /exit, /help\n"));
      } else if (!line.empty()) {
        if (auto answered = answer(line); !answered.ok()) {
          report(answered.error().message);
          if (!interactive_) return kFailed;
        }
      }
    }
    if (!input.error().empty()) return report(input.error()), kFailed;
    if (interactive_) write_output("\n");
    return kDone;
  }

 private:
  bool prompt_for(LineReader& input, std::string& line) {
    if (interactive_) write_output("> ");
    return flush_output() && input.next(line);
  }

  void reset() {
    messages_.clear();
    if (flags_.system) add_message("system", *flags_.system);
  }

  void add_message(std::string_view role, std::string_view content) {
    messages_.emplace_back(json::Object{{"role", role}, {"content", content}});
  }

  Result<std::vector<TokenId>> render() const {
    const Tokenizer& tokenizer = engine_.tokenizer();
    json::Value messages = messages_;
    ChatInput input{.messages = messages,
                    .bos_token = {},  // with_bos() adds it
                    .now = civil_time(static_cast<std::int64_t>(std::time(nullptr)))};
    if (tokenizer.eos()) input.eos_token = tokenizer.token_bytes(*tokenizer.eos());
    QUIRE_TRY(Rendered rendered, engine_.chat_template()->render(input));
    QUIRE_TRY(auto ids, encode_chat(tokenizer, rendered));
    return with_bos(tokenizer, std::move(ids));
  }

  /// One turn. If it cannot be answered, the conversation stays as it was.
  Result<void> answer(const std::string& question) {
    add_message("user", question);
    auto text = generate();
    if (!text.ok()) {
      messages_.pop_back();
      return text.error();
    }
    add_message("assistant", *text);
    return {};
  }

  Result<std::string> generate() {
    engine::GenerateRequest request = flags_.request;
    QUIRE_TRY(request.prompt, render());
    request.max_tokens = flags_.max_tokens;
    request.sampling.seed = seed_;
    InterruptWatch watch;
    DeltaQueue queue;
    auto submitted = engine_.submit(request, [&queue](engine::Delta delta) { queue.push(0, std::move(delta)); });
    if (!submitted.id) return fail(submitted.refusal.message, "; /reset starts anew");
    std::string text;
    for (bool cancelled = false;;) {
      auto item = queue.pop_within(std::chrono::milliseconds(50));
      if (interrupted != 0 && !cancelled) {
        engine_.cancel(*submitted.id);
        cancelled = true;
      }
      if (!item) continue;
      text += item->delta.text;
      write_output(stdout_is_terminal() ? for_terminal(item->delta.text) : item->delta.text);
      if (!flush_output()) engine_.cancel(*submitted.id);
      if (!item->delta.finish) continue;
      write_output("\n");
      if (item->delta.finish->reason == engine::FinishReason::failed) return fail(item->delta.finish->message);
      if (interactive_) show_rates(item->delta);
      return text;
    }
  }

  void show_rates(const engine::Delta& last) const {
    const auto& usage = last.usage;
    double prefill_s = static_cast<double>(last.timings.prefill_ns) / 1e9;
    double decode_s = static_cast<double>(last.timings.decode_ns) / 1e9;
    std::fprintf(stderr, "[%d prompt tokens, first token after %.2f s; %d tokens, %.0f tokens/s%s]\n",
                 usage.prompt_tokens, prefill_s, usage.completion_tokens,
                 decode_s > 0 ? (usage.completion_tokens - 1) / decode_s : 0.0,
                 last.finish->reason == engine::FinishReason::length ? "; cut off: --max-tokens or the context" : "");
  }

  engine::Engine& engine_;
  const ChatFlags& flags_;
  const std::uint64_t seed_;
  const bool interactive_ = stdin_is_terminal();
  json::Array messages_;
};

int chat(const ChatFlags& flags) {
  auto engine = open_engine(flags.engine);
  if (!engine.ok()) return report(engine.error().message), kFailed;
  if ((*engine)->chat_template() == nullptr) {
    const std::string& fault = (*engine)->info().chat_template_fault;
    report(cat("chat: ", flags.engine.model_path,
               fault.empty() ? std::string(" has no chat template (a base model)")
                             : cat(" has a chat template that cannot be used (", fault, ")"),
               "; use quire generate, or a model made for chat"));
    return kFailed;
  }
  return Chat(**engine, flags).run();
}

}  // namespace

void add_chat(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<ChatFlags>();
  // What people know from other local chat programs; the model's own distribution is --temperature 1 --top-k 0
  // --top-p 1 --min-p 0.
  flags->request.sampling.temperature = 0.8;
  flags->request.sampling.top_k = 40;
  flags->request.sampling.top_p = 0.95;
  flags->request.sampling.min_p = 0.05;
  auto* command = app.add_subcommand(
      "chat", "Talk to the model on the terminal, one line a turn; Ctrl-C stops the answer, twice it ends the program");
  add_model(*command, flags->engine.model_path);
  command->add_option("--system", flags->system, "A system message to begin with");
  command
      ->add_option("--max-tokens", flags->max_tokens, "Tokens in an answer at most (default: what the context leaves)")
      ->check(CLI::Range(1, INT32_MAX));
  command->add_option("--seed", flags->seed, "Makes the answers repeatable (default: drawn)")->check(whole_number());
  add_sampling_flags(*command, flags->request.sampling);
  flags->engine.max_batch_rows = 1;  // and so no more KV memory than one conversation can use
  add_engine_flags(*command, flags->engine);
  command->callback([flags, &chosen] { chosen = [flags] { return chat(*flags); }; });
}

}  // namespace quire::cli
