#pragma once
// The figures of a run, and how two runs compare.
//
// Percentiles are interpolated between the two nearest values, as numpy's default does. Times in milliseconds:
//   ttft        time to first token: from when the request was due to the first event with text
//   gap         between events with text, over all answers together
//   worst gap   the largest of an answer
//   tpot        time per output token: from the first to the last event with text, over tokens - 1; answers of two
//               tokens and more
//   e2e         from when the request was due to its end
//   late        from when a request was due to when the client sent it; large values mean that the client is too slow
// Only completed requests count, but for the numbers of failures. Rates are over the time from the first request to the
// end of the last. Goodput: completed requests within every limit of the Slo.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/json/json.h"
#include "quire/loadgen/load_run.h"

namespace quire::loadgen {

/// Limits in milliseconds; none: no limit.
struct Slo {
  std::optional<double> ttft_ms, itl_ms, tpot_ms, e2e_ms;  ///< itl: the worst gap

  /// "ttft=1s,itl=100ms". An error names what was found and what was wanted.
  static Result<Slo> parse(std::string_view text);
  bool any() const { return ttft_ms || itl_ms || tpot_ms || e2e_ms; }
  bool is_met(const Sample& sample) const;
};

/// "250ms", "1.5s" or "2min" in milliseconds.
Result<double> parse_duration_ms(std::string_view text);

struct Distribution {
  std::size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;  ///< 0 if there are none
};
Distribution distribution_of(std::vector<double> values);

struct FailureCount {
  std::uint64_t count = 0;
  std::string example;  ///< the first message
};

struct Summary {
  std::uint64_t num_completed = 0, num_failed = 0;
  std::uint64_t num_short = 0;  ///< completed, with fewer tokens than asked for
  double duration_s = 0;
  std::int64_t prompt_tokens = 0, output_tokens = 0;
  Distribution ttft, gap, worst_gap, tpot, e2e, late;
  std::optional<std::uint64_t> num_good;  ///< only with an Slo
  std::map<std::string, FailureCount> failures;

  double per_second(double amount) const { return duration_s > 0 ? amount / duration_s : 0; }
};

Summary summarise(const LoadResult& result, const Slo& slo);

struct Metric {
  std::string name, unit;
  double value = 0;
};

/// Everything of a summary that is a number, for files and comparisons.
std::vector<Metric> metrics_of(const Summary& summary);

/// {"name": "serve", "machine": null, "subject": MODEL, "rows": [{"metric", "value", "unit"}], "settings", "failures"}
json::Value as_json(const Summary& summary, const std::string& model, json::Object settings);

struct ComparedRow {
  std::string metric, unit;
  double a = 0, b = 0;
  std::optional<double> ratio;  ///< b / a; none if a is 0
};

struct Comparison {
  std::vector<ComparedRow> rows;         ///< metrics that both have, in the order of the first
  std::vector<std::string> differences;  ///< of the settings: "clients: 8 and 32"
};

/// Of two texts that as_json() made. An error names the text by the names given.
Result<Comparison> compare(std::string_view name_a, std::string_view a, std::string_view name_b, std::string_view b);

}  // namespace quire::loadgen
