#include "quire/html/chart_json.h"

#include <algorithm>
#include <cmath>

#include "quire/html/thinning.h"
#include "quire/html/timeline_json.h"
#include "quire/json/json.h"

namespace quire::html {
namespace {

using json::Writer;

/// Every number of `numbers` is finite; `where` names the list.
Result<void> check_finite(const std::vector<double>& numbers, std::string_view where) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!std::isfinite(numbers[i])) return fail(where, ", number ", i, ": found ", numbers[i], ", wanted a finite one");
  }
  return {};
}

Result<void> check_count(std::size_t found, std::size_t wanted, std::string_view where) {
  if (found != wanted) return fail(where, ": found ", found, " numbers, wanted ", wanted);
  return {};
}

Result<void> check_series(const Series& series) {
  const std::string where = cat("series '", series.name, "'");
  QUIRE_TRY_VOID(check_count(series.y.size(), series.x.size(), where));
  QUIRE_TRY_VOID(check_finite(series.x, cat(where, ", x")));
  QUIRE_TRY_VOID(check_finite(series.y, cat(where, ", y")));
  for (std::size_t i = 1; series.draw != Draw::points && i < series.x.size(); ++i) {
    if (series.x[i] < series.x[i - 1]) {
      return fail(where, ", x, number ", i, ": found ", series.x[i], " after ", series.x[i - 1], ", wanted ascending");
    }
  }
  return {};
}

/// A logarithmic axis has no place for 0 and less.
Result<void> check_scale(const Axis& axis, const std::vector<double>& numbers, std::string_view where) {
  if (axis.scale == Scale::linear) return {};
  const auto bad = std::find_if(numbers.begin(), numbers.end(), [](double number) { return number <= 0; });
  if (bad == numbers.end()) return {};
  return fail(where, ": found ", *bad, " on the logarithmic axis '", axis.label, "', wanted numbers above 0");
}

Result<void> check_lines(const LineChart& chart) {
  for (const Series& series : chart.series) {
    QUIRE_TRY_VOID(check_series(series));
    QUIRE_TRY_VOID(check_scale(chart.x, series.x, cat("series '", series.name, "'")));
    QUIRE_TRY_VOID(check_scale(chart.y, series.y, cat("series '", series.name, "'")));
    if (chart.arrangement == Arrangement::stacked && series.x != chart.series[0].x) {
      return fail("series '", series.name, "': found an x of its own, wanted that of '", chart.series[0].name,
                  "': the series are stacked");
    }
  }
  for (const Marks& marks : chart.marks) QUIRE_TRY_VOID(check_finite(marks.x, cat("marks '", marks.name, "'")));
  for (const Limit& limit : chart.limits) QUIRE_TRY_VOID(check_finite({limit.y}, cat("limit '", limit.name, "'")));
  if (chart.knee) QUIRE_TRY_VOID(check_finite({chart.knee->x, chart.knee->y}, "the knee"));
  return {};
}

std::string_view name_of(Draw draw) {
  switch (draw) {
    case Draw::line:
      return "line";
    case Draw::steps:
      return "steps";
    case Draw::area:
      return "area";
    case Draw::points:
      return "points";
  }
  return "line";
}

void append_axis(Writer& w, std::string_view name, const Axis& axis) {
  w.key(name).begin_object().field("label", axis.label).field("unit", axis.unit);
  w.field("log", axis.scale == Scale::logarithmic).end_object();
}

/// Shortest form; json::append_double would write 1 as 1.0.
std::string numbers_json(const std::vector<double>& numbers) {
  std::string out = "[";
  for (const double number : numbers) {
    append_text(out, number);
    out += ',';
  }
  if (out.size() > 1) out.pop_back();
  return out + "]";
}

void append_numbers(Writer& w, std::string_view name, const std::vector<double>& numbers) {
  w.key(name).raw(numbers_json(numbers));
}

void append_series(Writer& w, const std::vector<Series>& all) {
  w.key("series").begin_array();
  const std::string first_x = all.empty() ? std::string() : numbers_json(all[0].x);
  for (std::size_t i = 0; i < all.size(); ++i) {
    w.begin_object().field("name", all[i].name).field("draw", name_of(all[i].draw));
    if (i == 0) {
      w.key("x").raw(first_x);
    } else if (all[i].x != all[0].x) {  // else it is that of the first
      append_numbers(w, "x", all[i].x);
    }
    append_numbers(w, "y", all[i].y);
    w.end_object();
  }
  w.end_array();
}

Result<void> append_picture(Writer& w, const LineChart& chart) {
  QUIRE_TRY_VOID(check_lines(chart));
  std::vector<Series> series = chart.series;
  const std::size_t run =
      chart.arrangement == Arrangement::stacked ? thin_stacked(series, kMaxPoints) : thin_each(series, kMaxPoints);
  w.field("kind", "lines").field("stacked", chart.arrangement == Arrangement::stacked);
  append_axis(w, "x", chart.x);
  append_axis(w, "y", chart.y);
  append_series(w, series);
  w.key("marks").begin_array();
  for (const Marks& marks : chart.marks) {
    w.begin_object().field("name", marks.name);
    append_numbers(w, "x", marks.x);
    w.end_object();
  }
  w.end_array().key("limits").begin_array();
  for (const Limit& limit : chart.limits) w.begin_object().field("name", limit.name).field("y", limit.y).end_object();
  w.end_array();
  if (chart.knee) {
    w.key("knee").begin_object().field("x", chart.knee->x).field("y", chart.knee->y);
    w.field("text", chart.knee->text).end_object();
  }
  if (run > 1) w.field("note", cat("Thinned: the lowest and the highest of every ", run, " values are kept."));
  return {};
}

Result<void> append_picture(Writer& w, const BarChart& chart) {
  w.field("kind", "bars").field("stacked", chart.arrangement == Arrangement::stacked);
  w.field("names_all", chart.names == Names::all);
  append_axis(w, "x", chart.x);
  append_axis(w, "y", chart.y);
  w.key("categories").begin_array();
  for (const std::string& category : chart.categories) w.value(category);
  w.end_array().key("series").begin_array();
  for (const BarSeries& series : chart.series) {
    const std::string where = cat("series '", series.name, "'");
    QUIRE_TRY_VOID(check_count(series.values.size(), chart.categories.size(), where));
    QUIRE_TRY_VOID(check_finite(series.values, where));
    w.begin_object().field("name", series.name).field("muted", series.tone == Tone::muted);
    append_numbers(w, "y", series.values);
    w.end_object();
  }
  w.end_array();
  return {};
}

std::string_view name_of(Better better) {
  return better == Better::lower ? "lower" : better == Better::higher ? "higher" : "";
}

Result<void> append_picture(Writer& w, const Comparison& comparison) {
  w.field("kind", "comparison").field("what", comparison.what).key("contenders").begin_array();
  for (const std::string& contender : comparison.contenders) w.value(contender);
  w.end_array().key("metrics").begin_array();
  for (const Metric& metric : comparison.metrics) {
    const std::string where = cat("metric '", metric.name, "'");
    QUIRE_TRY_VOID(check_count(metric.values.size(), comparison.contenders.size(), where));
    QUIRE_TRY_VOID(check_finite(metric.values, where));
    w.begin_object().field("name", metric.name).field("unit", metric.unit).field("better", name_of(metric.better));
    append_numbers(w, "values", metric.values);
    w.end_object();
  }
  w.end_array();
  return {};
}

Result<void> append_picture(Writer& w, const GanttChart& chart) { return append_gantt(w, chart); }
Result<void> append_picture(Writer& w, const BlockFilm& film) { return append_film(w, film); }

}  // namespace

Result<void> append_chart(std::string& out, const Chart& chart) {
  Writer w(out);
  w.begin_object().field("title", chart.title).field("summary", chart.summary);
  const auto done = std::visit([&](const auto& picture) { return append_picture(w, picture); }, chart.picture);
  if (!done.ok()) return fail("chart '", chart.title, "': ", done.error().message);
  w.end_object();
  return {};
}

}  // namespace quire::html
