// quire sim record-beams: beam searches of a real model, kept as who continued whom. The engine's command log is the
// source: it is replayed, and the core's own events say what became of each beam.

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "answers.h"
#include "flags.h"
#include "quire/core/command_log.h"
#include "quire/text/chat_prompt.h"
#include "quire/text/tokenizer.h"
#include "quire/traces/bytes.h"
#include "quire/workload/beam_forks.h"
#include "quire/workload/numbers.h"
#include "sim.h"
#include "terminal.h"

namespace quire::cli {
namespace {

struct RecordFlags {
  engine::EngineOptions engine;
  std::string prompts_path, out_path;
  std::vector<std::int32_t> widths = {2, 4, 6};
};

struct Prompt {
  std::string set;
  std::vector<TokenId> tokens;
  std::int32_t max_tokens = 0;
};

/// What was asked for under a request's id.
struct Asked {
  std::size_t prompt;
  std::int32_t width;
};

Result<Prompt> read_prompt(const std::string& place, std::string_view line, const Tokenizer& tokenizer) {
  auto parsed = json::parse(line);
  if (!parsed.ok()) return fail(place, ": ", parsed.error().message);
  const json::Value *set = parsed->find("set"), *text = parsed->find("prompt"), *max = parsed->find("max_tokens");
  Prompt prompt;
  if (!set || !set->is_string() || set->as_string().empty() ||
      set->as_string().find_first_of(" \n\r#") != std::string::npos)
    return fail(place, ": wanted a 'set', a name without spaces");
  prompt.set = set->as_string();
  if (!text || !text->is_string()) return fail(place, ": wanted a 'prompt', a string");
  const auto max_tokens = max ? max->if_int() : std::nullopt;
  if (!max_tokens || *max_tokens < 2 || *max_tokens > 1 << 20)
    return fail(place, ": found ", max ? json::dump(*max) : "no", " 'max_tokens', wanted a whole number from 2 to ",
                1 << 20);
  prompt.max_tokens = static_cast<std::int32_t>(*max_tokens);
  QUIRE_TRY(auto tokens, tokenizer.encode(text->as_string(), SpecialTokens::as_text));
  prompt.tokens = with_bos(tokenizer, std::move(tokens));
  return prompt;
}

Result<std::vector<Prompt>> read_prompts(const std::string& path, const Tokenizer& tokenizer) {
  QUIRE_TRY(const std::string text, read_trace_bytes(path));
  std::vector<Prompt> prompts;
  std::uint64_t row = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++row;
    if (line.empty()) continue;
    QUIRE_TRY(prompts.emplace_back(), read_prompt(cat(path, ", row ", row), line, tokenizer));
  }
  if (prompts.empty()) return fail(path, ": there is no prompt");
  return prompts;
}

/// Runs all searches; says which request was which.
Result<std::map<RequestId, Asked>> search_all(engine::Engine& engine, const std::vector<Prompt>& prompts,
                                              const std::vector<std::int32_t>& widths) {
  std::map<RequestId, Asked> asked;
  DeltaQueue queue;
  for (const std::int32_t width : widths) {
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      engine::GenerateRequest request;
      request.prompt = prompts[i].tokens;
      request.max_tokens = prompts[i].max_tokens;
      request.ignore_eos = true;
      request.sampling.temperature = 0;
      request.beams.emplace().width = width;
      request.beams->num_returned = 1;
      const auto submitted =
          engine.submit(std::move(request), [&queue](engine::Delta delta) { queue.push(0, std::move(delta)); });
      if (!submitted.id) return fail("prompt ", i + 1, ", width ", width, ": ", submitted.refusal.message);
      asked[*submitted.id] = {i, width};
    }
  }
  for (std::size_t ended = 0; ended < asked.size();) {
    const engine::Delta delta = queue.pop().delta;
    if (delta.finish && delta.finish->reason == engine::FinishReason::failed) return fail(delta.finish->message);
    ended += delta.ends_request ? 1 : 0;
    if (delta.ends_request && stderr_is_terminal())
      std::fprintf(stderr, "\r%zu of %zu searches\033[K", ended, asked.size());
  }
  if (stderr_is_terminal()) std::fputs("\r\033[K", stderr);
  return asked;
}

/// The events of the logged run, as searches in the order of their requests.
Result<std::vector<BeamForks>> forks_of(std::string_view log, const std::map<RequestId, Asked>& asked,
                                        const std::vector<Prompt>& prompts) {
  QUIRE_TRY(const Replay run, replay(std::as_bytes(std::span(log))));
  if (run.first_difference) return fail("the engine's log does not replay: step ", *run.first_difference, " differs");
  std::map<RequestId, BeamForks> searches;
  for (const Event& event : run.events) {
    const auto* advanced = std::get_if<BeamsAdvanced>(&event);
    if (!advanced || advanced->steps.empty()) continue;
    const Asked& what = asked.at(advanced->request);
    const auto [place, is_first] = searches.try_emplace(advanced->request);
    if (is_first) {
      place->second = {
          prompts[what.prompt].set, what.width, static_cast<std::int32_t>(prompts[what.prompt].tokens.size()), {}};
      continue;
    }
    if (advanced->steps.size() != static_cast<std::size_t>(what.width))
      return fail("found a step with ", advanced->steps.size(), " beams, wanted ", what.width);
    for (const BeamStep& step : advanced->steps)
      place->second.parents.push_back(static_cast<std::uint8_t>(step.parent));
  }
  std::vector<BeamForks> all;
  for (auto& [id, search] : searches) {
    if (!search.parents.empty()) all.push_back(std::move(search));
  }
  if (all.empty()) return fail("no search was longer than its first tokens");
  return all;
}

/// A file that is gone at the end.
class TemporaryLog {
 public:
  explicit TemporaryLog(const std::string& beside) : path_(cat(beside, ".", ::getpid(), ".log")) {}
  ~TemporaryLog() { ::unlink(path_.c_str()); }
  TemporaryLog(const TemporaryLog&) = delete;
  TemporaryLog& operator=(const TemporaryLog&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<void> record(RecordFlags& flags) {
  const TemporaryLog log(flags.out_path);
  flags.engine.command_log = log.path();
  flags.engine.max_waiting = 1'000'000;
  flags.engine.prefix_cache = false;
  std::map<RequestId, Asked> asked;
  std::vector<Prompt> prompts;
  std::string model;
  {
    QUIRE_TRY(const auto engine, open_engine(flags.engine));
    const engine::EngineInfo& info = engine->info();
    model = cat(std::filesystem::path(info.model_path).filename().string(), ", ", info.file_bytes, " bytes, ",
                info.quantization, ", kv ", info.kv_type);
    QUIRE_TRY(prompts, read_prompts(flags.prompts_path, engine->tokenizer()));
    QUIRE_TRY(asked, search_all(*engine, prompts, flags.widths));
  }
  QUIRE_TRY(const std::string bytes, read_trace_bytes(log.path()));
  QUIRE_TRY(const auto searches, forks_of(bytes, asked, prompts));
  std::string text;
  append_beam_forks_head(
      text, {cat("Quire ", QUIRE_VERSION, ", quire sim record-beams; end tokens are tokens like any other"),
             cat("model: ", model)});
  for (const BeamForks& search : searches) append_beam_forks(text, search);
  std::ofstream out(flags.out_path, std::ios::binary);
  out << text;
  out.close();
  if (!out) return fail(flags.out_path, ": ", std::strerror(errno));
  write_output(cat(searches.size(), " searches written to ", flags.out_path, "\n"));
  return {};
}

}  // namespace

void add_sim_record_beams(CLI::App& sim, Action& chosen) {
  auto flags = std::make_shared<RecordFlags>();
  flags->engine.max_batch_rows = 24;
  auto* command = sim.add_subcommand(
      "record-beams", "Search with a real model and keep which beam continued which, for quire sim paper sharing");
  add_model(*command, flags->engine.model_path);
  command
      ->add_option("PROMPTS", flags->prompts_path,
                   "JSON lines with set (a name), prompt (a text) and max_tokens; plain or gzip")
      ->required();
  command->add_option("OUT", flags->out_path, "The file to write")->required();
  command->add_option("--width", flags->widths, "Beams; several with commas between them")
      ->delimiter(',')
      ->check(CLI::Range(2, kMaxBeamForksWidth))
      ->capture_default_str();
  command->add_option("--threads", flags->engine.threads, "0: all cores")->check(CLI::Range(0, 1024));
  command->add_option("--ctx", flags->engine.context, "Tokens of a prompt and its answer at most; 0: the model's own");
  command->add_option("--max-batch-rows", flags->engine.max_batch_rows, "Beams that are computed at once at most")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str();
  command->callback([flags, &chosen] { chosen = [flags] { return run_sim([&] { return record(*flags); }); }; });
}

}  // namespace quire::cli
