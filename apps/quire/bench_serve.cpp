// quire bench serve: a load on any OpenAI-compatible server. quire bench compare: two such runs side by side.

#include "bench_serve.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "flags.h"
#include "quire/base/checked.h"
#include "quire/loadgen/load_run.h"
#include "quire/loadgen/sources.h"
#include "quire/loadgen/summary.h"
#include "quire/traces/trace_file.h"
#include "quire/workload/numbers.h"
#include "quire/workload/synthetic.h"
#include "table.h"
#include "terminal.h"

namespace quire::cli {
namespace {

/// With neither --requests nor --duration.
constexpr std::uint64_t kDefaultRequests = 100;
constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};
/// The filter that vLLM's benchmarks put on ShareGPT.
constexpr std::int32_t kShareGptShortest = 4, kShareGptLongestPrompt = 1024, kShareGptLongest = 2048;

struct ServeLoadFlags {
  std::string url;
  std::uint64_t clients = 0;
  double rate = 0, speed = 1;
  bool replay = false;
  std::string arrivals = "poisson";
  std::uint64_t requests = 0, warmup = 0, seed = 1;
  std::string duration;
  std::string prompt = "128", output = "128", lengths, trace;
  std::int64_t max_total = 0;
  std::int32_t shared_prefix = 0;
  bool chat = false, text = false, obey_eos = false;
  std::string token_ids = "1000-15999", model, api_key, slo, timeout = "10min", json_path, requests_to;
  double temperature = 0;
};

/// "128" is "fixed:128".
Result<LengthDistribution> parse_lengths(std::string_view flag, const std::string& text) {
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  auto parsed = LengthDistribution::parse(is_number ? "fixed:" + text : text);
  if (!parsed.ok()) return fail(flag, ": ", parsed.error().message, ", or a number");
  return parsed;
}

/// The first turns of the ShareGPT conversations that the program carries.
Result<std::vector<LengthPair>> sharegpt_lengths() {
  QUIRE_TRY(const Trace trace, embedded_trace("sharegpt"));
  std::vector<LengthPair> pairs;
  for (const RequestSpec& spec : trace.requests) {
    if (spec.prompt_tokens < kShareGptShortest || spec.prompt_tokens > kShareGptLongestPrompt) continue;
    if (spec.output_tokens < kShareGptShortest || spec.prompt_tokens + spec.output_tokens > kShareGptLongest) continue;
    pairs.push_back({spec.prompt_tokens, spec.output_tokens});
  }
  return pairs;
}

/// The requests, and what they are made from.
struct Workload {
  std::unique_ptr<LengthSampler> sampler;
  std::unique_ptr<RequestSource> source;
  const loadgen::ShortEnoughSource* filter = nullptr;  ///< the source, with --max-total
};

Result<ArrivalProcess> arrivals_of(const ServeLoadFlags& flags) {
  if (flags.rate == 0) return ArrivalProcess::poisson(1);  // a closed loop looks at no arrival
  auto arrivals = ArrivalProcess::parse(flags.arrivals, flags.rate);
  if (!arrivals.ok()) return fail("--arrivals, --rate: ", arrivals.error().message);
  return arrivals;
}

Result<Workload> open_trace_workload(const ServeLoadFlags& flags) {
  QUIRE_TRY(Trace trace, open_trace(flags.trace));
  if (flags.replay && !trace.has_arrivals) {
    return fail("--replay: ", flags.trace, " has no arrival times; give --rate or --clients instead");
  }
  for (const std::string& note : trace.notes) report(note);
  Workload out;
  out.source = std::make_unique<loadgen::OwnedSource>(std::move(trace.requests));
  if (flags.replay) {
    out.source = std::make_unique<loadgen::FasterSource>(std::move(out.source), flags.speed);
  } else {
    QUIRE_TRY(const ArrivalProcess arrivals, arrivals_of(flags));
    out.source = std::make_unique<loadgen::RetimedSource>(std::move(out.source), arrivals, flags.seed);
  }
  return out;
}

Result<Workload> make_whole_workload(const ServeLoadFlags& flags) {
  if (!flags.trace.empty()) return open_trace_workload(flags);
  Workload out;
  if (flags.lengths == "sharegpt") {
    QUIRE_TRY(auto pairs, sharegpt_lengths());
    out.sampler = std::make_unique<EmpiricalLengths>(std::move(pairs));
  } else {
    QUIRE_TRY(const auto prompt, parse_lengths("--prompt", flags.prompt));
    QUIRE_TRY(const auto output, parse_lengths("--output", flags.output));
    out.sampler = std::make_unique<IndependentLengths>(prompt, output);
  }
  QUIRE_TRY(const ArrivalProcess arrivals, arrivals_of(flags));
  const SyntheticSource::Options options{.num_requests = kNoLimit, .seed = flags.seed};
  out.source = std::make_unique<SyntheticSource>(options, arrivals, *out.sampler);
  return out;
}

Result<Workload> make_workload(const ServeLoadFlags& flags) {
  QUIRE_TRY(Workload out, make_whole_workload(flags));
  if (flags.max_total > 0) {
    auto short_enough = std::make_unique<loadgen::ShortEnoughSource>(std::move(out.source), flags.max_total);
    out.filter = short_enough.get();
    out.source = std::move(short_enough);
  }
  return out;
}

Result<loadgen::RequestWriterOptions> writer_options(const ServeLoadFlags& flags) {
  loadgen::RequestWriterOptions out{.seed = flags.seed, .shared_prefix = flags.shared_prefix};
  if (flags.chat) out.endpoint = loadgen::Endpoint::chat;
  if (flags.chat || flags.text) out.prompt = loadgen::PromptKind::text;
  if (flags.obey_eos) out.eos = loadgen::Eos::obey;
  out.model = flags.model;
  out.temperature = flags.temperature;
  const auto ids = split(flags.token_ids, '-');
  const auto first = parse_integer(ids.front()), last = parse_integer(ids.back());
  if (ids.size() != 2 || !first || !last || *first < 0 || *last < *first || *last > INT32_MAX) {
    return fail("--token-ids: found '", flags.token_ids, "', wanted FIRST-LAST, such as 1000-15999");
  }
  out.first_token_id = static_cast<std::int32_t>(*first);
  out.last_token_id = static_cast<std::int32_t>(*last);
  return out;
}

Result<loadgen::LoadOptions> load_options(const ServeLoadFlags& flags) {
  const bool open = flags.rate > 0 || flags.replay;
  if (flags.clients > 0 && open)
    return fail("--clients is a closed loop, --rate and --replay are open ones; wanted one");
  if (flags.replay && flags.rate > 0) return fail("--replay and --rate: wanted one of them");
  if (flags.replay && flags.trace.empty()) return fail("--replay needs --trace");
  if (!flags.lengths.empty() && !flags.trace.empty()) return fail("--lengths and --trace: wanted one of them");
  loadgen::LoadOptions out;
  out.loop = open ? loadgen::Loop::open : loadgen::Loop::closed;
  out.num_clients = flags.clients > 0 ? flags.clients : open ? 8 : 1;
  out.num_warmup = flags.warmup;
  if (!flags.duration.empty()) {
    auto ms = loadgen::parse_duration_ms(flags.duration);
    if (!ms.ok()) return fail("--duration: ", ms.error().message);
    out.duration_ns = static_cast<std::uint64_t>(*ms * 1e6);
  }
  const bool ends = out.duration_ns > 0 || !flags.trace.empty();
  out.num_requests = flags.requests > 0 ? flags.requests : ends ? kNoLimit : kDefaultRequests;
  return out;
}

/// What decides the load, for the file; what two runs should have in common.
json::Object settings_of(const ServeLoadFlags& flags, const loadgen::LoadOptions& options) {
  const bool open = options.loop == loadgen::Loop::open;
  json::Object out{{"url", flags.url},
                   {"endpoint", flags.chat ? "chat" : "completions"},
                   {"loop", open ? "open" : "closed"},
                   {"warmup", flags.warmup},
                   {"seed", flags.seed},
                   {"shared_prefix", flags.shared_prefix},
                   {"eos", flags.obey_eos ? "obeyed" : "ignored"}};
  if (!open) out.append("clients", options.num_clients);
  if (flags.rate > 0) {
    out.append("rate", flags.rate);
    out.append("arrivals", flags.arrivals);
  }
  if (flags.replay) out.append("speed", flags.speed);
  if (flags.requests > 0) out.append("requests", flags.requests);
  if (!flags.duration.empty()) out.append("duration", flags.duration);
  if (!flags.slo.empty()) out.append("slo", flags.slo);
  if (!flags.trace.empty()) {
    out.append("trace", flags.trace);
  } else if (!flags.lengths.empty()) {
    out.append("lengths", flags.lengths);
  } else {
    out.append("prompt", flags.prompt);
    out.append("output", flags.output);
  }
  if (flags.max_total > 0) out.append("max_total", flags.max_total);
  return out;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) return fail("cannot write '", path, "': ", std::strerror(errno));
  return {};
}

/// The bodies of the requests that a run would send, one a line, those of the warm-up first.
Result<int> write_requests(const ServeLoadFlags& flags) {
  if (!flags.url.empty()) return fail("found a server and --requests-to, which sends nothing; wanted one of them");
  if (!flags.duration.empty())
    return fail("--requests-to: only a server decides how many a --duration holds; wanted --requests");
  QUIRE_TRY(const loadgen::LoadOptions options, load_options(flags));
  QUIRE_TRY(const Workload workload, make_workload(flags));
  QUIRE_TRY(auto writing, writer_options(flags));
  const loadgen::RequestWriter writer(std::move(writing));
  const std::uint64_t most = checked_add(options.num_warmup, options.num_requests).value_or(kNoLimit);
  std::string lines;
  for (std::uint64_t number = 0; number < most; ++number) {
    const auto spec = workload.source->next();
    if (!spec) break;
    lines += writer.body(*spec, number) + "\n";
  }
  QUIRE_TRY_VOID(write_file(flags.requests_to, lines));
  return kDone;
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (!in.good()) return fail("cannot read '", path, "': ", std::strerror(errno));
  return text;
}

Result<int> serve_load(ServeLoadFlags flags) {
  if (!flags.requests_to.empty()) return write_requests(flags);
  if (flags.url.empty()) return fail("wanted the address of a server, http://HOST:PORT, or --requests-to");
  QUIRE_TRY(const loadgen::Url url, loadgen::parse_url(flags.url));
  QUIRE_TRY(loadgen::LoadOptions options, load_options(flags));
  loadgen::Slo slo;
  if (!flags.slo.empty()) {
    auto parsed = loadgen::Slo::parse(flags.slo);
    if (!parsed.ok()) return fail("--slo: ", parsed.error().message);
    slo = *parsed;
  }
  auto timeout_ms = loadgen::parse_duration_ms(flags.timeout);
  if (!timeout_ms.ok()) return fail("--timeout: ", timeout_ms.error().message);
  QUIRE_TRY(Workload workload, make_workload(flags));
  QUIRE_TRY(auto client, loadgen::make_http_client(url, {.timeout_ms = static_cast<std::uint64_t>(*timeout_ms) + 1,
                                                         .api_key = flags.api_key}));
  if (flags.model.empty()) {
    QUIRE_TRY(flags.model, loadgen::ask_model(*client));
  }
  QUIRE_TRY(auto writing, writer_options(flags));
  const loadgen::RequestWriter writer(std::move(writing));
  Progress progress("sending requests");
  options.progress = [&](const loadgen::LoadProgress& at) {
    const double by_number = static_cast<double>(at.num_ended) / static_cast<double>(options.num_requests);
    const double by_time =
        options.duration_ns == 0 ? 0 : static_cast<double>(at.elapsed_ns) / static_cast<double>(options.duration_ns);
    progress.show(std::min(1.0, std::max(by_number, by_time)));
  };
  const auto result = loadgen::run_load(*client, *workload.source, writer, options);
  progress.end();
  if (result.samples.empty()) return fail("no request was sent: nothing is left of the workload");
  const auto summary = loadgen::summarise(result, slo);
  json::Object settings = settings_of(flags, options);
  if (!flags.json_path.empty()) {
    const auto text = json::dump(loadgen::as_json(summary, flags.model, settings), {.indent = 1}) + "\n";
    QUIRE_TRY_VOID(write_file(flags.json_path, text));
  }
  write_output(load_as_text(flags.url, flags.model, summary));
  if (workload.filter != nullptr && workload.filter->num_left_out() > 0) {
    write_output(
        cat(workload.filter->num_left_out(), " requests of the workload were longer than --max-total and left out\n"));
  }
  return summary.num_completed > 0 ? kDone : kFailed;
}

Result<int> compare_runs(const std::string& path_a, const std::string& path_b) {
  QUIRE_TRY(const std::string a, read_file(path_a));
  QUIRE_TRY(const std::string b, read_file(path_b));
  QUIRE_TRY(const auto comparison, loadgen::compare(path_a, a, path_b, b));
  write_output(comparison_as_text(comparison));
  return kDone;
}

/// Runs and turns an error into its line.
template <class Task>
Action reported(std::string name, Task task) {
  return [name = std::move(name), task = std::move(task)] {
    const Result<int> code = task();
    if (code.ok()) return *code;
    report(name + ": " + code.error().message);
    return kFailed;
  };
}

void add_load_flags(CLI::App& command, ServeLoadFlags& flags) {
  const auto lengths = "a number, uniform:LOW,HIGH, lognormal:MU,SIGMA, exponential:MEAN, pareto:LOW,ALPHA";
  command.add_option("--clients", flags.clients, "Closed loop: so many clients, each with one request at a time (1)")
      ->check(CLI::Range(1, 100'000));
  command.add_option("--rate", flags.rate, "Open loop: requests/s, sent whatever the server does")
      ->check(number_within(1e-6, 1e6));
  command.add_option("--arrivals", flags.arrivals, "Of --rate: poisson, gamma:CV, weibull:CV, on-off:ON,OFF, even")
      ->capture_default_str();
  command.add_flag("--replay", flags.replay, "Open loop at the arrival times of --trace");
  command.add_option("--speed", flags.speed, "Of --replay: so many times as fast")
      ->check(number_within(1e-3, 1e6))
      ->capture_default_str();
  command.add_option("--requests", flags.requests, "Counted requests at most; 100 without --duration and --trace")
      ->check(whole_number());
  command.add_option("--duration", flags.duration, "No request begins later: 60s, 5min");
  command.add_option("--warmup", flags.warmup, "Requests that are sent first and not counted")
      ->check(whole_number())
      ->capture_default_str();
  command.add_option("--seed", flags.seed, "Of lengths, arrivals and prompts")
      ->check(whole_number())
      ->capture_default_str();
  command.add_option("--prompt", flags.prompt, cat("Prompt tokens: ", lengths))->capture_default_str();
  command.add_option("--output", flags.output, "Answer tokens, in the same words")->capture_default_str();
  command.add_option("--lengths", flags.lengths, "sharegpt: prompt and answer lengths of real conversations")
      ->check(CLI::IsMember({"sharegpt"}));
  command.add_option(
      "--trace", flags.trace,
      "Lengths from a trace file: CSV (Azure, Sarathi-Serve, your own), JSON lines (Mooncake), ServeGen");
  command.add_option("--max-total", flags.max_total, "Leave out requests with more tokens in prompt and answer")
      ->check(CLI::Range(2, 1 << 24));
}

void add_request_flags(CLI::App& command, ServeLoadFlags& flags) {
  command.add_option("--shared-prefix", flags.shared_prefix, "Tokens in front of every prompt, the same for all")
      ->check(CLI::Range(0, 1 << 24));
  command.add_flag("--chat", flags.chat, "/v1/chat/completions with text, instead of /v1/completions");
  command.add_flag("--text", flags.text, "Prompts as words, about one token each, instead of token ids");
  command.add_option("--token-ids", flags.token_ids, "FIRST-LAST: ids to draw prompts from")->capture_default_str();
  command.add_flag("--obey-eos", flags.obey_eos, "Answers may end before their length");
  command.add_option("--temperature", flags.temperature)->check(number_within(0, 100))->capture_default_str();
  command.add_option("--model", flags.model, "The `model` field; default: the first of /v1/models");
  command.add_option("--api-key", flags.api_key, "Sent as a bearer token")->envname("QUIRE_API_KEY");
  command.add_option("--timeout", flags.timeout, "Of a request")->capture_default_str();
  command.add_option("--slo", flags.slo, "Limits that goodput counts by: ttft=1s,itl=100ms,tpot=50ms,e2e=30s");
  command.add_option("--json", flags.json_path, "Write the figures to this file");
  command.add_option("--requests-to", flags.requests_to,
                     "Write the requests to this file, a JSON body a line, and send nothing (no URL)");
}

}  // namespace

void add_bench_serve(CLI::App& bench, Action& chosen) {
  auto flags = std::make_shared<ServeLoadFlags>();
  auto* serve = bench.add_subcommand("serve", "A load on an OpenAI-compatible server, and what its clients see");
  serve->add_option("url", flags->url, "http://HOST:PORT");
  add_load_flags(*serve, *flags);
  add_request_flags(*serve, *flags);
  serve->callback([flags, &chosen] { chosen = reported("bench serve", [flags] { return serve_load(*flags); }); });

  auto paths = std::make_shared<std::vector<std::string>>();
  auto* compare = bench.add_subcommand("compare", "Two --json files of `bench serve` side by side");
  compare->add_option("files", *paths, "A.json B.json")->required()->expected(2);
  compare->callback([paths, &chosen] {
    chosen = reported("bench compare", [paths] { return compare_runs(paths->at(0), paths->at(1)); });
  });
}

}  // namespace quire::cli
