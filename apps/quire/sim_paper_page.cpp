// The page of `quire sim paper`.

#include <algorithm>

#include "quire/base/cat.h"
#include "sim_page.h"
#include "sim_paper.h"

namespace quire::cli {
namespace {

html::Outcome outcome_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::within:
      return html::Outcome::holds;
    case Verdict::outside:
      return html::Outcome::fails;
    case Verdict::none:
      return html::Outcome::none;
  }
  return html::Outcome::none;
}

html::Verdict as_verdict(const PaperRow& row) {
  std::string what = row.note.empty() ? row.what : cat(row.what, " (", row.note, ")");
  return {std::move(what), row.paper ? paper_number(*row.paper, row.unit) : "", paper_number(row.ours, row.unit),
          paper_band(row), outcome_of(row.verdict())};
}

/// A chart for each unit in which the paper gives at least two numbers.
std::vector<html::Chart> charts_of(const PaperFigure& figure) {
  std::vector<std::string> units;
  for (const PaperRow& row : figure.rows) {
    if (row.paper && std::find(units.begin(), units.end(), row.unit) == units.end()) units.push_back(row.unit);
  }
  std::vector<html::Chart> charts;
  for (const std::string& unit : units) {
    html::BarChart chart{.x = {figure.name, ""}, .y = {"value", unit}, .names = html::Names::all};
    chart.arrangement = html::Arrangement::side_by_side;
    chart.series = {{"paper", {}}, {"ours", {}}};
    for (const PaperRow& row : figure.rows) {
      if (!row.paper || row.unit != unit) continue;
      chart.categories.push_back(row.what);
      chart.series[0].values.push_back(*row.paper);
      chart.series[1].values.push_back(row.ours);
    }
    if (chart.categories.size() < 2) continue;
    charts.push_back({cat(figure.name, ", ", unit.empty() ? "numbers" : unit),
                      "The paper's numbers, and ours beside them.", std::move(chart)});
  }
  return charts;
}

}  // namespace

html::Page paper_page(const SimFlags& flags, const std::vector<PaperFigure>& figures) {
  html::Page page = page_head(flags, "Published figures, reproduced");
  std::size_t within = 0, rows = 0;
  for (const PaperFigure& figure : figures) {
    html::Section section{.heading = figure.title, .text = figure.notes, .charts = charts_of(figure)};
    for (const PaperRow& row : figure.rows) {
      section.verdicts.push_back(as_verdict(row));
      within += row.verdict() == Verdict::within;
      rows += row.verdict() != Verdict::none;
    }
    page.sections.push_back(std::move(section));
  }
  page.subtitle = cat(within, " of ", rows, " rows with a band are within it");
  return page;
}

}  // namespace quire::cli
