#include "quire/html/chart.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "quire/base/cat.h"
#include "quire/base/check.h"

namespace quire::html {

std::string_view to_string(Phase phase) {
  constexpr std::string_view kNames[kNumPhases] = {"queued", "prefill", "decode", "preempted", "restored"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::string_view to_string(BlockState state) {
  constexpr std::string_view kNames[kNumBlockStates] = {"used", "shared", "cached", "reserved"};
  return kNames[static_cast<std::size_t>(state)];
}

namespace {

/// Four decimals at most: edges are products of the width, and 0.15000000000000002 is nobody's edge.
std::string edge(double value) { return cat(std::round(value * 1e4) / 1e4); }

std::string range_name(const HistogramSpec& spec, std::size_t bin, bool anything_outside) {
  const double width = (spec.high - spec.low) / static_cast<double>(spec.num_bins);
  const std::string begin = edge(spec.low + width * static_cast<double>(bin));
  const std::string end = edge(spec.low + width * static_cast<double>(bin + 1));
  if (anything_outside && bin == 0) return cat("up to ", end);
  if (anything_outside && bin + 1 == spec.num_bins) return cat("from ", begin);
  return cat(begin, "–", end);
}

}  // namespace

BarChart histogram(const HistogramSpec& spec, const std::vector<double>& values, const std::vector<double>& weights) {
  QUIRE_CHECK(spec.low < spec.high && spec.num_bins >= 1, "the range of a histogram");
  QUIRE_CHECK(weights.empty() || weights.size() == values.size(), "a weight for each value");
  BarChart chart{.x = spec.x, .y = {"share", "%"}, .series = {{spec.name, std::vector<double>(spec.num_bins)}}};
  std::vector<double>& bins = chart.series[0].values;
  const double bins_per_unit = static_cast<double>(spec.num_bins) / (spec.high - spec.low);
  double total = 0;
  bool outside = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double weight = weights.empty() ? 1 : weights[i];
    outside = outside || !(values[i] >= spec.low && values[i] <= spec.high);
    const double place = (values[i] - spec.low) * bins_per_unit;
    const double last = static_cast<double>(spec.num_bins - 1);
    bins[static_cast<std::size_t>(place > 0 ? std::min(place, last) : 0)] += weight;
    total += weight;
  }
  for (double& bin : bins) bin = total > 0 ? bin * 100 / total : 0;
  for (std::size_t bin = 0; bin < spec.num_bins; ++bin) chart.categories.push_back(range_name(spec, bin, outside));
  return chart;
}

Series cdf(std::string name, std::vector<double> values) {
  Series series{std::move(name), Draw::steps, {}, {}};
  std::sort(values.begin(), values.end());
  const std::size_t count = values.size(), points = std::min(count, kMaxCdfPoints);
  for (std::size_t point = 0; point < points; ++point) {
    const std::size_t at = points == 1 ? 0 : point * (count - 1) / (points - 1);
    const auto not_above = std::upper_bound(values.begin(), values.end(), values[at]) - values.begin();
    series.x.push_back(values[at]);
    series.y.push_back(100 * static_cast<double>(not_above) / static_cast<double>(count));
  }
  return series;
}

}  // namespace quire::html
