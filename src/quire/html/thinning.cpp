#include "quire/html/thinning.h"

#include <algorithm>

namespace quire::html {
namespace {

/// How many points stand together, so that two of each and the two ends are at most `max_points`.
std::size_t run_length(std::size_t count, std::size_t max_points) {
  if (count <= max_points) return 1;
  const std::size_t runs = (max_points - 2) / 2;
  return (count + runs - 1) / runs;
}

std::vector<std::size_t> kept_points(const std::vector<double>& y, std::size_t run) {
  std::vector<std::size_t> kept = {0};
  const auto keep = [&](std::size_t index) {
    if (index != kept.back()) kept.push_back(index);
  };
  for (std::size_t begin = 0; begin < y.size(); begin += run) {
    const auto first = y.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = y.begin() + static_cast<std::ptrdiff_t>(std::min(begin + run, y.size()));
    const auto [low, high] = std::minmax_element(first, last);
    keep(static_cast<std::size_t>(std::min(low, high) - y.begin()));
    keep(static_cast<std::size_t>(std::max(low, high) - y.begin()));
  }
  keep(y.size() - 1);
  return kept;
}

void keep_only(Series& series, const std::vector<std::size_t>& kept) {
  Series thin{series.name, series.draw, {}, {}};
  for (const std::size_t index : kept) {
    thin.x.push_back(series.x[index]);
    thin.y.push_back(series.y[index]);
  }
  series = std::move(thin);
}

}  // namespace

std::size_t thin_each(std::vector<Series>& series, std::size_t max_points) {
  std::size_t longest = 1;
  for (Series& one : series) {
    const std::size_t run = run_length(one.y.size(), max_points);
    if (run > 1) keep_only(one, kept_points(one.y, run));
    longest = std::max(longest, run);
  }
  return longest;
}

std::size_t thin_stacked(std::vector<Series>& series, std::size_t max_points) {
  const std::size_t run = series.empty() ? 1 : run_length(series[0].y.size(), max_points);
  if (run == 1) return 1;
  std::vector<double> sum(series[0].y.size());
  for (const Series& one : series) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one.y[i];
  }
  const std::vector<std::size_t> kept = kept_points(sum, run);
  for (Series& one : series) keep_only(one, kept);
  return run;
}

}  // namespace quire::html
