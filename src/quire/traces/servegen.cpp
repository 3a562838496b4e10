#include "quire/traces/servegen.h"

#include <algorithm>
#include <map>

#include "quire/json/json.h"
#include "quire/traces/json_traces.h"
#include "quire/workload/arrivals.h"
#include "quire/workload/numbers.h"
#include "quire/workload/sampling.h"

namespace quire {
namespace {

constexpr std::size_t kMaxRequests = 20'000'000;

/// A distribution over lengths, as text "{50: 0.04, 51: 0.08}"; cumulative.
struct Lengths {
  std::vector<std::pair<double, std::int32_t>> cumulative;
  bool empty() const { return cumulative.empty(); }
  std::int32_t sample(Rng& rng) const {
    const double at = rng.uniform() * cumulative.back().first;
    const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), at,
                                        [](double value, const auto& entry) { return value < entry.first; });
    return found == cumulative.end() ? cumulative.back().second : found->second;
  }
};

struct Period {
  std::uint64_t begin_s = 0;
  Lengths input, output;
};

struct Client {
  std::string_view trace, dataset;
  std::string trace_name, dataset_name;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

Result<Lengths> read_lengths(const TracePlace& place, const json::Value& period) {
  const json::Value* value = period.find(place.column);
  const std::string* text = value ? value->if_string() : nullptr;
  if (!text) return trace_error(place, "is missing, wanted a distribution as text");
  std::string_view inner = *text;
  Lengths lengths;
  if (inner.empty() || inner == "{}") return lengths;
  if (!inner.starts_with('{') || !inner.ends_with('}')) return trace_error(place, "wanted {LENGTH: PROBABILITY, ...}");
  inner = inner.substr(1, inner.size() - 2);
  double sum = 0;
  for (std::string_view entry : split(inner, ',')) {
    const auto parts = split(entry, ':');
    const auto length = parse_number(trimmed(parts[0])), probability = parse_number(trimmed(parts.back()));
    if (parts.size() != 2 || !length || !probability || *length < 0 || *length > static_cast<double>(kMaxLength) ||
        *probability < 0)
      return trace_error(place, "found '", trimmed(entry).substr(0, 40), "', wanted LENGTH: PROBABILITY");
    if (*probability == 0) continue;
    sum += *probability;
    lengths.cumulative.emplace_back(sum, std::max(1, static_cast<std::int32_t>(*length)));
  }
  return lengths;
}

Result<std::vector<Period>> read_dataset(std::string_view file, std::string_view text) {
  auto object = json::parse(text);
  if (!object.ok()) return json_error(file, 1, object.error().message);
  if (!object->is_object())
    return trace_error({file, 1, "1"}, "found ", json::kind_name(object->kind()), ", wanted an object");
  std::vector<Period> periods;
  std::uint64_t row = 0;
  for (const json::Member& member : object->as_object()) {
    Period period;
    ++row;
    const auto begin = parse_integer(member.key);
    if (!begin || *begin < 0)
      return trace_error({file, row, member.key.substr(0, 40)},
                         "found as a name, wanted the second at which it begins");
    period.begin_s = static_cast<std::uint64_t>(*begin);
    QUIRE_TRY(period.input, read_lengths({file, row, "input_tokens"}, member.value));
    QUIRE_TRY(period.output, read_lengths({file, row, "output_tokens"}, member.value));
    if (!period.input.empty() && !period.output.empty()) periods.push_back(std::move(period));
  }
  std::sort(periods.begin(), periods.end(), [](const Period& a, const Period& b) { return a.begin_s < b.begin_s; });
  return periods;
}

/// The period that holds at a time, or the next one that has lengths.
const Period& period_at(const std::vector<Period>& periods, std::uint64_t second) {
  const Period* found = &periods.front();
  for (const Period& period : periods)
    if (period.begin_s <= second) found = &period;
  return *found;
}

/// Coefficients of variation that arrivals are sampled with.
constexpr double kLeastVariation = 0.1, kMostVariation = 30;

struct Window {
  std::uint64_t begin_s = 0, end_s = 0;
  double rate = 0;
  std::string arrivals;  ///< text of an ArrivalProcess
};

Result<std::vector<Window>> read_windows(std::string_view file, std::string_view text,
                                         std::vector<std::string>& notes) {
  std::vector<Window> windows;
  TraceLines lines(file, text, notes);
  std::string_view line;
  while (lines.next(line)) {
    const auto fields = split(line, ',');
    const std::uint64_t row = lines.row();
    if (fields.size() < 4)
      return trace_error({file, row, cat(fields.size() + 1)}, "found ", fields.size(), " columns, wanted 4 or more");
    Window window;
    QUIRE_TRY(const std::uint64_t begin_ns, parse_time({file, row, "1 (start)"}, fields[0], 1e9));
    window.begin_s = begin_ns / 1'000'000'000;
    const auto rate = parse_number(fields[1]), cv = parse_number(fields[2]);
    if (!rate || *rate < 0 || *rate > 1e6)
      return trace_error({file, row, "2 (rate)"}, "found '", fields[1].substr(0, 40),
                         "', wanted requests/s from 0 to 1000000");
    if (!cv || (*rate > 0 && (*cv < kLeastVariation || *cv > kMostVariation)))
      return trace_error({file, row, "3 (variation)"}, "found '", fields[2].substr(0, 40), "', wanted a number from ",
                         kLeastVariation, " to ", kMostVariation);
    window.rate = *rate;
    if (*rate > 0) {
      if (fields[3] != "Gamma" && fields[3] != "Weibull")
        return trace_error({file, row, "4 (distribution)"}, "found '", fields[3].substr(0, 40),
                           "', wanted Gamma or Weibull");
      window.arrivals = cat(fields[3] == "Gamma" ? "gamma:" : "weibull:", *cv);
    }
    if (!windows.empty() && window.begin_s <= windows.back().begin_s)
      return trace_error({file, row, "1 (start)"}, "is not later than the row before");
    if (!windows.empty()) windows.back().end_s = window.begin_s;
    windows.push_back(std::move(window));
  }
  if (windows.size() >= 2) {
    windows.back().end_s = 2 * windows.back().begin_s - windows[windows.size() - 2].begin_s;
  } else if (!windows.empty()) {
    windows.back().end_s = windows.back().begin_s + 600;
  }
  return windows;
}

Result<void> sample_client(const Client& client, std::uint64_t number, const ServeGenOptions& options, Trace& trace) {
  std::vector<std::string> notes;
  QUIRE_TRY(const auto windows, read_windows(client.trace_name, client.trace, notes));
  if (trace.notes.empty()) trace.notes = std::move(notes);  // one file stands for all
  QUIRE_TRY(const auto periods, read_dataset(client.dataset_name, client.dataset));
  if (periods.empty()) return {};
  for (const Window& window : windows) {
    if (window.rate == 0 || window.end_s <= options.begin_s || window.begin_s >= options.end_s) continue;
    Rng rng(random_at(options.seed, number, window.begin_s));
    QUIRE_TRY(ArrivalProcess arrivals, ArrivalProcess::parse(window.arrivals, window.rate));
    const Period& period = period_at(periods, window.begin_s);
    while (true) {
      const std::uint64_t at_ns = window.begin_s * 1'000'000'000 + arrivals.next_ns(rng);
      if (at_ns >= window.end_s * 1'000'000'000) break;
      RequestSpec request;
      request.prompt_tokens = period.input.sample(rng);
      request.output_tokens = period.output.sample(rng);
      if (at_ns < options.begin_s * 1'000'000'000 || at_ns >= options.end_s * 1'000'000'000) continue;
      request.arrival_ns = at_ns - options.begin_s * 1'000'000'000;
      if (trace.requests.size() == kMaxRequests) return fail("more than ", kMaxRequests, " requests");
      trace.requests.push_back(std::move(request));
    }
  }
  return {};
}

}  // namespace

Result<Trace> read_servegen(std::string_view file, std::span<const TarMember> members, const ServeGenOptions& options) {
  constexpr std::string_view kPrefix = "chunk-", kTrace = "-trace.csv", kDataset = "-dataset.json";
  std::map<std::int64_t, Client> clients;
  for (const TarMember& member : members) {
    const std::string_view path = member.name;
    const std::string_view name = path.substr(path.rfind('/') == std::string_view::npos ? 0 : path.rfind('/') + 1);
    const bool is_trace = name.ends_with(kTrace);
    if (!name.starts_with(kPrefix) || (!is_trace && !name.ends_with(kDataset))) continue;
    const std::size_t tail = is_trace ? kTrace.size() : kDataset.size();
    const auto number = parse_integer(name.substr(kPrefix.size(), name.size() - kPrefix.size() - tail));
    if (!number || *number < 0) return fail(file, ", ", name, ": wanted chunk-NUMBER", is_trace ? kTrace : kDataset);
    Client& client = clients[*number];
    (is_trace ? client.trace : client.dataset) = member.content;
    (is_trace ? client.trace_name : client.dataset_name) = cat(file, ", ", name);
  }
  Trace trace;
  trace.format = "servegen";
  trace.has_arrivals = true;
  for (const auto& [number, client] : clients) {
    if (client.trace_name.empty() || client.dataset_name.empty())
      return fail(file, ": client ", number, " lacks its ", client.trace_name.empty() ? "trace" : "dataset");
    QUIRE_TRY_VOID(sample_client(client, static_cast<std::uint64_t>(number), options, trace));
  }
  if (trace.requests.empty()) return fail(file, ", row 1, column 1: no client sends a request in the time asked for");
  std::stable_sort(trace.requests.begin(), trace.requests.end(),
                   [](const RequestSpec& a, const RequestSpec& b) { return a.arrival_ns < b.arrival_ns; });
  return trace;
}

}  // namespace quire
