#include "quire/loadgen/summary.h"

#include <algorithm>
#include <charconv>
#include <numeric>

namespace quire::loadgen {
namespace {

constexpr double kNsPerMs = 1e6;

double ms(std::uint64_t from_ns, std::uint64_t to_ns) {
  return to_ns > from_ns ? static_cast<double>(to_ns - from_ns) / kNsPerMs : 0;
}

double worst_gap_ms(const Sample& sample) {
  const auto worst = std::max_element(sample.gaps_ns.begin(), sample.gaps_ns.end());
  return worst == sample.gaps_ns.end() ? 0 : static_cast<double>(*worst) / kNsPerMs;
}

std::optional<double> tpot_ms(const Sample& sample) {
  if (sample.output_tokens < 2) return std::nullopt;
  return ms(sample.first_ns, sample.last_ns) / static_cast<double>(sample.output_tokens - 1);
}

bool within(const std::optional<double>& limit, double value) { return !limit || value <= *limit; }

void add_distribution(std::vector<Metric>& out, const std::string& name, const Distribution& d) {
  if (d.count == 0) return;
  const std::pair<const char*, double> parts[] = {{"mean", d.mean}, {"p50", d.p50}, {"p90", d.p90},
                                                  {"p95", d.p95},   {"p99", d.p99}, {"max", d.max}};
  for (const auto& [part, value] : parts) out.push_back({name + " " + part, "ms", value});
}

Result<json::Value> parse_run(std::string_view name, std::string_view text) {
  auto value = json::parse(text);
  if (!value.ok()) return fail(name, ": ", value.error().message);
  const json::Value* kind = value->find("name");
  const json::Value* rows = value->find("rows");
  const json::Value* settings = value->find("settings");
  if (kind == nullptr || *kind != json::Value("serve") || rows == nullptr || !rows->is_array() || settings == nullptr ||
      !settings->is_object()) {
    return fail(name, ": found another JSON text, wanted the --json file of `quire bench serve`");
  }
  return value;
}

/// The value of a metric; nothing if the run has none.
const json::Value* find_row(const json::Value& run, const json::Value& metric) {
  for (const json::Value& row : run.find("rows")->as_array()) {
    const json::Value* name = row.find("metric");
    if (name != nullptr && *name == metric) return row.find("value");
  }
  return nullptr;
}

std::vector<std::string> differing(const json::Object& a, const json::Object& b) {
  std::vector<std::string> out;
  const auto shown = [](const json::Value* value) { return value == nullptr ? "nothing" : json::dump(*value); };
  for (const auto& member : a) {
    const json::Value* other = b.find(member.key);
    if (other == nullptr || *other != member.value) {
      out.push_back(cat(member.key, ": ", shown(&member.value), " and ", shown(other)));
    }
  }
  for (const auto& member : b) {
    if (a.find(member.key) == nullptr) out.push_back(cat(member.key, ": nothing and ", shown(&member.value)));
  }
  return out;
}

}  // namespace

Result<double> parse_duration_ms(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"ms", 1}, {"s", 1000}, {"min", 60'000}};
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  for (const auto& [name, factor] : kUnits) {
    if (error == std::errc() && unit == name && number > 0 && number * factor <= 1e12) return number * factor;
  }
  return fail("found '", text, "', wanted a duration such as 250ms, 1.5s or 2min");
}

Result<Slo> Slo::parse(std::string_view text) {
  Slo slo;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    const std::size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    std::optional<double>* limit = name == "ttft"   ? &slo.ttft_ms
                                   : name == "itl"  ? &slo.itl_ms
                                   : name == "tpot" ? &slo.tpot_ms
                                   : name == "e2e"  ? &slo.e2e_ms
                                                    : nullptr;
    if (equals == std::string_view::npos || limit == nullptr || *limit) {
      return fail("found '", part,
                  "', wanted ttft=, itl=, tpot= or e2e= with a duration, each once, as in "
                  "ttft=1s,itl=100ms");
    }
    QUIRE_TRY(*limit, parse_duration_ms(part.substr(equals + 1)));
    if (part.size() == text.size()) return slo;
    text.remove_prefix(part.size() + 1);
  }
}

bool Slo::is_met(const Sample& sample) const {
  return sample.completed() && within(ttft_ms, ms(sample.due_ns, sample.first_ns)) &&
         within(itl_ms, worst_gap_ms(sample)) && within(tpot_ms, loadgen::tpot_ms(sample).value_or(0)) &&
         within(e2e_ms, ms(sample.due_ns, sample.end_ns));
}

Distribution distribution_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (values[above] - values[below]) * (place - static_cast<double>(below));
  };
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.count = values.size(),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = at(0.5),
          .p90 = at(0.9),
          .p95 = at(0.95),
          .p99 = at(0.99),
          .max = values.back()};
}

Summary summarise(const LoadResult& result, const Slo& slo) {
  Summary out;
  out.duration_s = ms(result.begin_ns, result.end_ns) / 1000;
  std::vector<double> ttft, gaps, worst, tpot, e2e, late;
  if (slo.any()) out.num_good = 0;
  for (const Sample& sample : result.samples) {
    late.push_back(ms(sample.due_ns, sample.sent_ns));
    if (!sample.completed()) {
      ++out.num_failed;
      FailureCount& failure = out.failures[sample.failure];
      if (failure.count++ == 0) failure.example = sample.failure_message;
      continue;
    }
    ++out.num_completed;
    out.num_short += sample.output_tokens < sample.wanted_tokens;
    out.prompt_tokens += sample.prompt_tokens;
    out.output_tokens += sample.output_tokens;
    ttft.push_back(ms(sample.due_ns, sample.first_ns));
    e2e.push_back(ms(sample.due_ns, sample.end_ns));
    for (std::uint64_t gap : sample.gaps_ns) gaps.push_back(static_cast<double>(gap) / kNsPerMs);
    if (!sample.gaps_ns.empty()) worst.push_back(worst_gap_ms(sample));
    if (const auto each = tpot_ms(sample)) tpot.push_back(*each);
    if (out.num_good && slo.is_met(sample)) ++*out.num_good;
  }
  out.ttft = distribution_of(std::move(ttft));
  out.gap = distribution_of(std::move(gaps));
  out.worst_gap = distribution_of(std::move(worst));
  out.tpot = distribution_of(std::move(tpot));
  out.e2e = distribution_of(std::move(e2e));
  out.late = distribution_of(std::move(late));
  return out;
}

std::vector<Metric> metrics_of(const Summary& s) {
  const auto count = [](auto number) { return static_cast<double>(number); };
  std::vector<Metric> out = {
      {"completed", "requests", count(s.num_completed)},
      {"failed", "requests", count(s.num_failed)},
      {"short", "requests", count(s.num_short)},
      {"duration", "s", s.duration_s},
      {"requests/s", "requests/s", s.per_second(count(s.num_completed))},
      {"output tokens/s", "tokens/s", s.per_second(count(s.output_tokens))},
      {"prompt tokens/s", "tokens/s", s.per_second(count(s.prompt_tokens))},
  };
  if (s.num_good) {
    out.push_back({"goodput", "requests/s", s.per_second(count(*s.num_good))});
    const double all = count(s.num_completed + s.num_failed);
    out.push_back({"good share", "", all > 0 ? count(*s.num_good) / all : 0});
  }
  add_distribution(out, "ttft", s.ttft);
  add_distribution(out, "gap", s.gap);
  add_distribution(out, "worst gap", s.worst_gap);
  add_distribution(out, "tpot", s.tpot);
  add_distribution(out, "e2e", s.e2e);
  add_distribution(out, "late", s.late);
  return out;
}

json::Value as_json(const Summary& summary, const std::string& model, json::Object settings) {
  json::Array rows;
  for (const Metric& metric : metrics_of(summary)) {
    rows.emplace_back(json::Object{{"metric", metric.name}, {"value", metric.value}, {"unit", metric.unit}});
  }
  json::Object failures;
  for (const auto& [kind, failure] : summary.failures) {
    failures.append(kind, json::Object{{"count", failure.count}, {"example", failure.example}});
  }
  return json::Object{{"name", "serve"},
                      {"machine", nullptr},
                      {"subject", model},
                      {"rows", std::move(rows)},
                      {"settings", std::move(settings)},
                      {"failures", std::move(failures)}};
}

Result<Comparison> compare(std::string_view name_a, std::string_view a, std::string_view name_b, std::string_view b) {
  QUIRE_TRY(const json::Value run_a, parse_run(name_a, a));
  QUIRE_TRY(const json::Value run_b, parse_run(name_b, b));
  Comparison out;
  for (const json::Value& row : run_a.find("rows")->as_array()) {
    const json::Value* metric = row.find("metric");
    if (metric == nullptr || !metric->is_string()) continue;
    const json::Value *value_a = row.find("value"), *value_b = find_row(run_b, *metric);
    if (value_a == nullptr || value_b == nullptr || !value_a->is_number() || !value_b->is_number()) continue;
    ComparedRow& compared = out.rows.emplace_back();
    compared.metric = metric->as_string();
    const json::Value* unit = row.find("unit");
    if (unit != nullptr && unit->is_string()) compared.unit = unit->as_string();
    compared.a = value_a->as_number();
    compared.b = value_b->as_number();
    if (compared.a != 0) compared.ratio = compared.b / compared.a;
  }
  out.differences = differing(run_a.find("settings")->as_object(), run_b.find("settings")->as_object());
  return out;
}

}  // namespace quire::loadgen
