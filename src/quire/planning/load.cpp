#include "quire/planning/load.h"

#include <algorithm>
#include <utility>

#include "quire/base/cat.h"
#include "quire/base/hash.h"
#include "quire/traces/trace_file.h"
#include "quire/workload/lengths.h"

namespace quire::planning {
namespace {

constexpr std::int64_t kDrawn = 4096;  ///< pairs of a distribution
constexpr std::uint64_t kLengthStream = 1, kShuffleStream = 2;
constexpr std::int32_t kPrefixBlockTokens = 16;
constexpr std::string_view kInteractive = "ttft_p95=1s,itl_p99=100ms";

struct NamedLoad {
  std::string_view name, embedded, distributions, description, limits;
};
constexpr NamedLoad kNamed[] = {{"chat", "sharegpt", "", "first turns of ShareGPT conversations", kInteractive},
                                {"conversation", "conversation", "",
                                 "Mooncake's chat trace, prompts with shared beginnings", "ttft_p95=30s,itl_p99=200ms"},
                                {"code", "", "lognormal:7.0,1.36@8-7437/lognormal:2.79,0.85@1-1899",
                                 "completions, with the moments of Azure's code trace", "ttft_p95=2s,itl_p99=100ms"},
                                {"batch", "", "lognormal:7.3,0.6@256-6144/lognormal:5,0.5@32-512",
                                 "documents to summarise, made up", "e2e_p95=5min"}};

bool has_order(const std::vector<RequestSpec>& requests) {
  return std::any_of(requests.begin(), requests.end(),
                     [](const RequestSpec& r) { return r.session != 0 || !r.prefix_blocks.empty(); });
}

void shuffle(std::vector<RequestSpec>& requests, std::uint64_t seed) {
  Rng rng(random_at(seed, kShuffleStream));
  for (std::size_t i = requests.size(); i > 1; --i)
    std::swap(requests[i - 1], requests[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(i) - 1))]);
}

std::vector<RequestSpec> without_times(Trace trace, std::uint64_t seed) {
  for (RequestSpec& request : trace.requests) request.arrival_ns = 0;
  if (!has_order(trace.requests)) shuffle(trace.requests, seed);
  return std::move(trace.requests);
}

Result<std::vector<RequestSpec>> draw(std::string_view distributions, std::uint64_t seed) {
  const std::size_t slash = distributions.find('/');
  QUIRE_TRY(const auto prompt, LengthDistribution::parse(distributions.substr(0, slash)));
  QUIRE_TRY(const auto output, LengthDistribution::parse(distributions.substr(slash + 1)));
  const IndependentLengths lengths(prompt, output);
  Rng rng(random_at(seed, kLengthStream));
  std::vector<RequestSpec> requests(kDrawn);
  for (RequestSpec& request : requests) {
    const LengthPair pair = lengths.sample(rng);
    request.prompt_tokens = pair.prompt_tokens;
    request.output_tokens = pair.output_tokens;
  }
  return requests;
}

bool names_distributions(std::string_view name) {
  const std::size_t slash = name.find('/');
  return slash != std::string_view::npos && name.substr(0, slash).find(':') != std::string_view::npos &&
         name.find(':', slash) != std::string_view::npos;
}

Result<Load> open_named(const NamedLoad& row, std::uint64_t seed) {
  Load load{.name = std::string(row.name),
            .description = std::string(row.description),
            .requests = {},
            .default_limits = std::string(row.limits)};
  if (row.embedded.empty()) {
    QUIRE_TRY(load.requests, draw(row.distributions, seed));
  } else {
    QUIRE_TRY(Trace trace, embedded_trace(row.embedded));
    load.requests = without_times(std::move(trace), seed);
  }
  return load;
}

}  // namespace

Result<Load> open_load(std::string_view name, std::uint64_t seed) {
  for (const NamedLoad& row : kNamed)
    if (row.name == name) return open_named(row, seed);
  Load load{.name = std::string(name), .description = "", .requests = {}, .default_limits = std::string(kInteractive)};
  if (names_distributions(name)) {
    load.description = cat("made up, prompts and answers ", name);
    QUIRE_TRY(load.requests, draw(name, seed));
    return load;
  }
  TraceFileOptions options;
  options.servegen.seed = seed;
  auto trace = open_trace(load.name, options);
  if (!trace.ok() && name.find_first_of("/.") == std::string_view::npos)
    return fail("found '", name,
                "', wanted chat, conversation, code, batch, PROMPT/ANSWER as in "
                "uniform:50,500/fixed:100, or a trace file (",
                trace.error().message, ")");
  if (!trace.ok()) return trace.error();
  if (trace->requests.empty()) return fail(name, ": found no request, wanted at least one");
  load.description = cat(trace->format, ", ", trace->requests.size(), " requests");
  load.requests = without_times(*std::move(trace), seed);
  return load;
}

Result<void> add_shared_prefix(Load& load, std::int32_t num_tokens) {
  if (num_tokens == 0) return {};
  if (has_order(load.requests))
    return fail("the prompts of ", load.name, " share beginnings already; wanted a workload of lengths alone");
  for (RequestSpec& request : load.requests) {
    request.prompt_tokens += num_tokens;
    request.prefix_block_tokens = kPrefixBlockTokens;
    // What is not named is each request's own.
    for (std::int32_t i = 1; i <= num_tokens / kPrefixBlockTokens; ++i)
      request.prefix_blocks.push_back(static_cast<std::uint64_t>(i));
  }
  return {};
}

Result<void> drop_longer(Load& load, std::int64_t num_tokens) {
  const std::size_t before = load.requests.size();
  std::int64_t shortest = kMaxLength;
  for (const RequestSpec& request : load.requests)
    shortest = std::min<std::int64_t>(shortest, std::int64_t{request.prompt_tokens} + request.output_tokens);
  std::erase_if(load.requests, [num_tokens](const RequestSpec& request) {
    return std::int64_t{request.prompt_tokens} + request.output_tokens > num_tokens;
  });
  load.num_left_out += before - load.requests.size();
  if (load.requests.empty())
    return fail("no request of ", load.name, " fits into ", num_tokens, " tokens; the shortest needs ", shortest,
                ": give more with --ctx or --memory, or another --workload");
  return {};
}

double mean_prompt(const Load& load) {
  double sum = 0;
  for (const RequestSpec& request : load.requests) sum += request.prompt_tokens;
  return sum / static_cast<double>(load.requests.size());
}

double mean_output(const Load& load) {
  double sum = 0;
  for (const RequestSpec& request : load.requests) sum += request.output_tokens;
  return sum / static_cast<double>(load.requests.size());
}

LoadSource::LoadSource(const Load& load, std::uint64_t num_requests, ArrivalProcess arrivals, std::uint64_t seed)
    : load_(load), num_requests_(num_requests), arrivals_(std::move(arrivals)), rng_(seed) {}

std::optional<RequestSpec> LoadSource::next() {
  if (num_made_ == num_requests_) return std::nullopt;
  const std::uint64_t round = num_made_ / load_.requests.size();
  RequestSpec request = load_.requests[static_cast<std::size_t>(num_made_ % load_.requests.size())];
  ++num_made_;
  request.arrival_ns = last_ns_ = arrivals_.next_ns(rng_);
  if (round > 0) {
    const std::uint64_t salt = mix64(round);
    if (request.session != 0) request.session = (request.session ^ salt) | 1;
    for (std::uint64_t& name : request.prefix_blocks) name = mix64(name ^ salt);
  }
  return request;
}

}  // namespace quire::planning
