// quire sim run and quire sim trace: a workload, made up or recorded, on one or several systems.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "flags.h"
#include "quire/sim/prefix_replay.h"
#include "quire/sim/systems.h"
#include "quire/traces/trace_file.h"
#include "quire/workload/synthetic.h"
#include "sim.h"
#include "sim_cost.h"
#include "sim_page.h"
#include "sim_rates.h"
#include "sim_report.h"
#include "table.h"
#include "terminal.h"

namespace quire::cli {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
constexpr int kLastSecond = 10'000'000;  ///< of ServeGen's windows

struct RunFlags {
  SimFlags sim;
  std::vector<std::string> systems = {"quire"};
  SystemOptions system;
  MemoryFlags memory;
  CostFlags cost;
  std::size_t records = 1000;
  std::string events_path;
  std::string prefix_cache = "off";
  // Arrivals.
  std::string arrivals = "poisson";
  std::optional<double> rate;
  std::vector<double> rates;  ///< of a sweep; empty: there is one rate
  // Made up.
  std::uint64_t num_requests = 10'000;
  std::string prompt = "lognormal:4.6,1.25@4-1024", output = "exponential:340@4-1024";
  std::int64_t max_total = 2048;
  std::int32_t shared_prefix = 0;
  // Recorded.
  std::string path;
  double speed = 1;
  std::uint64_t limit = 0;
  bool turns = false;
  std::uint64_t begin_s = 0, end_s = 24 * 3600;
};

/// The workload, anew for each system.
using MakeSource = std::function<std::unique_ptr<RequestSource>()>;

/// A line on stderr while it runs, if that is a terminal.
class Progress {
 public:
  Progress(std::string name, std::optional<std::uint64_t> num_requests)
      : name_(std::move(name)), num_requests_(num_requests), shows_(stderr_is_terminal()) {}
  ~Progress() {
    if (shows_) std::fputs("\r\033[K", stderr);
  }
  void operator()(std::uint64_t num_finished, std::uint64_t now_ns) {
    const auto now = Clock::now();
    if (!shows_ || now - shown_ < std::chrono::milliseconds(100)) return;
    shown_ = now;
    const double wall_s = std::chrono::duration<double>(now - start_).count();
    std::string line = cat("\r", name_, ": ", grouped(num_finished), " requests, virtual ", duration(double(now_ns)));
    if (num_requests_ && *num_requests_ > 0 && num_finished > 0) {
      constexpr std::size_t kWidth = 30;
      const double share = static_cast<double>(num_finished) / static_cast<double>(*num_requests_);
      const auto full = static_cast<std::size_t>(share * kWidth);
      line += cat(" [", std::string(full, '#'), std::string(kWidth - std::min(full, kWidth), '.'), "] ",
                  fixed(100 * share, 0), " %, ", fixed(wall_s / share - wall_s, 0), " s left");
    }
    std::fputs((line + "\033[K").c_str(), stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string name_;
  std::optional<std::uint64_t> num_requests_;
  bool shows_;
  Clock::time_point start_ = Clock::now(), shown_ = start_;
};

/// Each system on the same workload; adds the wall time they took.
Result<std::vector<SimulationResult>> simulate_all(const RunFlags& flags, const CostModel& cost,
                                                   SimulationOptions options, const MakeSource& make_source,
                                                   double& wall_s) {
  std::vector<SimulationResult> all;
  for (const std::string& name : flags.systems) {
    QUIRE_TRY(auto system, make_system(name, flags.system));
    const auto source = make_source();
    Progress progress(name, source->num_requests());
    options.progress = [&progress](std::uint64_t finished, std::uint64_t now_ns) { progress(finished, now_ns); };
    const auto start = std::chrono::steady_clock::now();
    const SimulationResult& found = all.emplace_back(simulate(*system, cost, *source, options));
    if (found.ran_out_of_time)
      return fail(name, ": found steps and arrivals that end behind ", kMaxVirtualNs / kNsPerSecond,
                  " s of virtual time, the most there is; wanted fewer or faster ones");
    wall_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return all;
}

/// The memory and the cost model that the flags ask for.
Result<std::shared_ptr<const CostModel>> set_up(RunFlags& flags) {
  QUIRE_TRY_VOID(apply(flags.memory, flags.system));
  flags.system.core.prefix_cache = flags.prefix_cache == "on";
  return make_cost(flags.cost);
}

Result<void> run_systems(RunFlags& flags, const MakeSource& make_source, json::Object extra) {
  QUIRE_TRY(const auto cost, set_up(flags));
  SimulationOptions options{.max_records = flags.records, .digests_plans = true};
  options.records_blocks = !flags.sim.html_path.empty() || !flags.events_path.empty();
  if (!flags.events_path.empty() && flags.systems.size() != 1)
    return fail("--events: found ", flags.systems.size(), " systems, wanted one");
  double wall_s = 0;
  QUIRE_TRY(const std::vector<SimulationResult> all, simulate_all(flags, *cost, options, make_source, wall_s));
  std::uint64_t tokens = 0;
  for (const SimulationResult& found : all) tokens += found.scheduled_tokens;
  write_output(cat("\n", simulations_as_text(all), "\ncost: ", cost->description(), "\npool: ",
                   grouped(static_cast<std::uint64_t>(flags.system.slots())), " slots; seed ", flags.sim.seed, "; ",
                   grouped(tokens), " tokens scheduled in ", fixed(wall_s, 2), " s of wall time, ",
                   fixed(wall_s > 0 ? static_cast<double>(tokens) / wall_s / 1e6 : 0, 2), " million a second\n"));
  json::Object out = sim_report_head(flags.sim);
  for (auto& member : extra) out.append(member.key, std::move(member.value));
  out.append("pool_slots", flags.system.slots());
  json::Array systems;
  for (const SimulationResult& found : all) systems.push_back(simulation_as_json(found));
  out.append("systems", std::move(systems));
  QUIRE_TRY_VOID(write_sim_json(flags.sim, out));
  if (!flags.events_path.empty()) QUIRE_TRY_VOID(write_sim_events(flags.sim, flags.events_path, all.front()));
  return write_sim_page(flags.sim, simulations_page(flags.sim, all));
}

/// The workload at each of --rates.
Result<void> run_rates(RunFlags& flags, const IndependentLengths& lengths, const SyntheticSource::Options& workload) {
  QUIRE_TRY(const auto cost, set_up(flags));
  std::sort(flags.rates.begin(), flags.rates.end());
  std::vector<RatePoint> points;
  double wall_s = 0;
  for (const double rate : flags.rates) {
    QUIRE_TRY(const auto arrivals, ArrivalProcess::parse(flags.arrivals, rate));
    const auto make = [&]() -> std::unique_ptr<RequestSource> {
      return std::make_unique<SyntheticSource>(workload, arrivals, lengths);
    };
    QUIRE_TRY(auto systems, simulate_all(flags, *cost, {.max_samples = 0, .digests_plans = true}, make, wall_s));
    points.push_back({rate, std::move(systems)});
  }
  write_output(cat("\n", rates_as_text(points), "\ncost: ", cost->description(), "; seed ", flags.sim.seed, "; ",
                   fixed(wall_s, 2), " s of wall time\n"));
  json::Object out = sim_report_head(flags.sim);
  out.append("arrivals", flags.arrivals);
  out.append("rates", rates_as_json(points));
  QUIRE_TRY_VOID(write_sim_json(flags.sim, out));
  return write_sim_page(flags.sim, rates_page(flags.sim, points));
}

Result<void> run_synthetic(RunFlags& flags) {
  QUIRE_TRY(const auto prompt, LengthDistribution::parse(flags.prompt));
  QUIRE_TRY(const auto output, LengthDistribution::parse(flags.output));
  const double rate = flags.rate.value_or(1.0);
  QUIRE_TRY(const auto arrivals, ArrivalProcess::parse(flags.arrivals, rate));
  const IndependentLengths lengths(prompt, output, flags.max_total);
  if (const auto kept = lengths.check(); !kept.ok()) return fail("--max-total: ", kept.error().message);
  const SyntheticSource::Options options{
      .num_requests = flags.num_requests, .seed = flags.sim.seed, .shared_prefix_tokens = flags.shared_prefix};
  const std::string at = flags.rates.empty() ? cat(fixed(rate, 3), "/s") : cat(flags.rates.size(), " rates");
  write_output(cat(grouped(flags.num_requests), " requests, arrivals ", flags.arrivals, " at ", at, ", prompts ",
                   flags.prompt, ", answers ", flags.output, "\n"));
  if (!flags.rates.empty()) return run_rates(flags, lengths, options);
  const auto make = [&]() -> std::unique_ptr<RequestSource> {
    return std::make_unique<SyntheticSource>(options, arrivals, lengths);
  };
  return run_systems(
      flags, make,
      json::Object{{"arrivals", flags.arrivals}, {"rate", rate}, {"prompt", flags.prompt}, {"output", flags.output}});
}

/// What a cache of each size would find, if the trace says what its prompts share.
json::Array show_prefix_rates(const Trace& trace) {
  json::Array rows;
  if (trace.requests.front().prefix_blocks.empty()) return rows;
  Table table({"blocks", "found, tokens", "found, blocks", "evicted"});
  for (std::int32_t capacity : {1'000, 3'000, 5'859, 10'000, 30'000, 50'000, 100'000, 0}) {
    const PrefixReplay found = replay_prefixes(trace.requests, capacity);
    table.add({capacity == 0 ? "unlimited" : grouped(static_cast<std::uint64_t>(capacity)), percent(found.token_rate()),
               percent(found.block_rate()), grouped(found.evicted_blocks)});
    rows.push_back(
        json::Object{{"blocks", capacity}, {"token_rate", found.token_rate()}, {"block_rate", found.block_rate()}});
  }
  write_output(cat("\nPrefixes found by a cache of so many blocks of ", trace.requests.front().prefix_block_tokens,
                   " tokens, in order of the file, without time\n", table.text()));
  return rows;
}

Result<Trace> load_trace(const RunFlags& flags) {
  if (flags.begin_s >= flags.end_s)
    return fail("--begin: found second ", flags.begin_s, ", wanted one before --end, ", flags.end_s);
  TraceFileOptions options;
  options.turns = flags.turns ? CsvTurns::by_length : CsvTurns::none;
  options.servegen = {flags.sim.seed, flags.begin_s, flags.end_s};
  QUIRE_TRY(Trace trace, open_trace(flags.path, options));
  for (const std::string& note : trace.notes) report("note: " + note);
  if (flags.limit > 0 && trace.requests.size() > flags.limit) trace.requests.resize(flags.limit);
  if (flags.rate || !trace.has_arrivals) {
    const bool at_once = !flags.rate;
    QUIRE_TRY(auto arrivals, ArrivalProcess::parse(at_once ? "at-once" : flags.arrivals, flags.rate.value_or(1.0)));
    Rng rng(flags.sim.seed);
    for (RequestSpec& request : trace.requests) request.arrival_ns = arrivals.next_ns(rng);
    if (at_once) report("note: " + flags.path + " has no arrival times; all come at once, unless --rate is given");
  }
  for (RequestSpec& request : trace.requests)
    request.arrival_ns = static_cast<std::uint64_t>(
        std::min(static_cast<double>(request.arrival_ns) / flags.speed, static_cast<double>(kLateNs)));
  return trace;
}

Result<void> run_trace(RunFlags& flags) {
  QUIRE_TRY(const Trace trace, load_trace(flags));
  const double span_s = static_cast<double>(trace.requests.back().arrival_ns) / kNsPerSecond;
  write_output(cat(flags.path, ": ", trace.format, ", ", grouped(trace.requests.size()), " requests over ",
                   fixed(span_s, 1), " s\n"));
  json::Array prefixes = show_prefix_rates(trace);
  const auto make = [&]() -> std::unique_ptr<RequestSource> { return std::make_unique<ListSource>(trace.requests); };
  return run_systems(
      flags, make,
      json::Object{{"trace", flags.path}, {"format", trace.format}, {"prefix_rates", std::move(prefixes)}});
}

void add_common(CLI::App& command, RunFlags& flags) {
  add_sim_flags(command, flags.sim);
  const std::vector<std::string> names(system_names().begin(), system_names().end());
  command.add_option("--system", flags.systems, "Systems to compare, with commas between them")
      ->delimiter(',')
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  add_core_flags(command, flags.system);
  add_memory_flags(command, flags.memory);
  add_cost_flags(command, flags.cost);
  command.add_option("--prefix-cache", flags.prefix_cache, "Quire finds prefixes that were computed before: on or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  command
      .add_option("--arrivals", flags.arrivals,
                  "How requests come: poisson, gamma:CV, weibull:CV, on-off:ON,OFF, even, at-once")
      ->capture_default_str();
  command.add_option("--events", flags.events_path, "Write what happened to this file, as JSON lines (docs/events.md)");
  command
      .add_option("--records", flags.records,
                  "Requests whose times are kept one by one, for --json, --html and --events")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
}

}  // namespace

void add_sim_run(CLI::App& sim, Action& chosen) {
  auto flags = std::make_shared<RunFlags>();
  auto* command = sim.add_subcommand("run", "A made-up workload on one or several systems");
  add_common(*command, *flags);
  auto* rate = command->add_option("--rate", flags->rate, "Requests a second (default: 1)");
  command->add_option("--rates", flags->rates, "A run at each of these rates: latency against rate, and its knee")
      ->delimiter(',')
      ->check(number_within(1e-6, 1e9))
      ->excludes(rate)
      ->excludes(command->get_option("--events"));
  command->add_option("--requests", flags->num_requests, "How many")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  command
      ->add_option("--prompt", flags->prompt, "Lengths of prompts, as in uniform:50,500 or lognormal:4.6,1.25@4-1024")
      ->capture_default_str();
  command->add_option("--output", flags->output, "Lengths of answers, the same way")->capture_default_str();
  command->add_option("--max-total", flags->max_total, "Pairs with a larger sum are drawn again; 0: none are")
      ->check(CLI::Range(std::int64_t{0}, 2 * kMaxLength))
      ->capture_default_str();
  command->add_option("--shared-prefix", flags->shared_prefix, "Tokens that all prompts begin with")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->callback([flags, &chosen] { chosen = [flags] { return run_sim([&] { return run_synthetic(*flags); }); }; });
}

void add_sim_trace(CLI::App& sim, Action& chosen) {
  auto flags = std::make_shared<RunFlags>();
  auto* command = sim.add_subcommand("trace", "A recorded workload on one or several systems");
  command
      ->add_option(
          "FILE", flags->path,
          "CSV (Azure, Sarathi-Serve, vAttention, one's own), JSON lines (Mooncake, one's own), tar (ServeGen, "
          "agent sessions); plain or gzip")
      ->required();
  add_common(*command, *flags);
  auto* rate = command->add_option("--rate", flags->rate,
                                   "Ignore the trace's arrivals; this many requests a second come instead");
  command->get_option("--arrivals")->needs(rate);
  command->add_option("--speed", flags->speed, "Let the trace's time pass so many times faster")
      ->check(number_within(1e-3, 1e6))
      ->capture_default_str();
  command->add_option("--limit", flags->limit, "Only the first so many requests; 0: all")
      ->check(whole_number())
      ->capture_default_str();
  command->add_flag("--turns", flags->turns,
                    "Rows of a CSV are turns of conversations, a new one where prompts get shorter");
  command->add_option("--begin", flags->begin_s, "ServeGen: from this second of the day")
      ->check(CLI::Range(0, kLastSecond))
      ->capture_default_str();
  command->add_option("--end", flags->end_s, "ServeGen: to this second of the day")
      ->check(CLI::Range(0, kLastSecond))
      ->capture_default_str();
  command->callback([flags, &chosen] { chosen = [flags] { return run_sim([&] { return run_trace(*flags); }); }; });
}

}  // namespace quire::cli
