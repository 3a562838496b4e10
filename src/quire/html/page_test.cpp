#include "quire/html/page.h"

#include <gtest/gtest.h>

#include <cmath>

#include "quire/html/chart_json.h"
#include "quire/html/page_assets.h"
#include "quire/json/json.h"

namespace quire::html {
namespace {

Chart line_chart(std::vector<double> x, std::vector<double> y) {
  LineChart lines{.x = {"time", "s"}, .y = {"memory", "bytes"}};
  lines.series = {{"used", Draw::line, std::move(x), std::move(y)}};
  return {"Memory", "Bytes over time.", lines};
}

json::Value parsed(const Chart& chart) {
  std::string text;
  const auto done = append_chart(text, chart);
  EXPECT_TRUE(done.ok()) << done.error().message;
  const auto value = json::parse(text);
  EXPECT_TRUE(value.ok()) << value.error().message;
  return *value;
}

std::string refusal(const Chart& chart) {
  std::string text;
  const auto done = append_chart(text, chart);
  return done.ok() ? "" : done.error().message;
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

TEST(Page, NoTextCanBecomeMarkup) {
  const std::string evil = "</script><script>alert('\"&')</script>";
  Chart chart = line_chart({0, 1}, {2, 3});
  chart.title = chart.summary = evil;
  std::get<LineChart>(chart.picture).series[0].name = evil;
  Page page{.title = evil, .subtitle = evil, .command = evil, .version = evil, .notes = {evil}};
  page.facts = {{evil, evil}};
  page.sections = {{.heading = evil,
                    .text = {evil},
                    .verdicts = {{evil, evil, evil, evil, Outcome::fails}},
                    .tables = {{evil, {evil}, {{evil}}}},
                    .charts = {chart}}};
  const auto html = render(page);
  ASSERT_TRUE(html.ok());
  EXPECT_EQ(count(*html, "alert('"), 3u) << "in the JSON only: in HTML quotes are escaped";
  EXPECT_EQ(count(*html, "<script"), 3u) << "the data, the library and the page's own";
  EXPECT_EQ(count(*html, "</script"), 3u);
  EXPECT_NE(html->find("&lt;/script&gt;&lt;script&gt;alert(&#39;&quot;&amp;&#39;)"), html->npos);
  EXPECT_NE(html->find("\\u003c/script>"), html->npos) << "in the charts' JSON";
}

TEST(Page, ItsPartsCannotEndTheScriptTheyStandIn) {
  for (const std::string_view part : {page_script(), chart_library()}) {
    EXPECT_GT(part.size(), 10'000u);
    EXPECT_EQ(part.find("</script"), part.npos);
    EXPECT_EQ(part.find("<!--"), part.npos);
  }
  EXPECT_EQ(page_style().find("</style"), page_style().npos);
  EXPECT_NE(chart_library().find("Chart.js v"), chart_library().npos);
  EXPECT_NE(chart_library().find("MIT License"), chart_library().npos) << "its licence has to go along";
}

TEST(Page, ForbidsEveryFetchAndNamesNoAddressToFetchFrom) {
  const auto html = render({.title = "t", .command = "quire sim", .version = "1", .sections = {{.heading = "h"}}});
  ASSERT_TRUE(html.ok());
  EXPECT_NE(html->find("default-src 'none'"), html->npos);
  for (const std::string_view part : {"src=\"", "@import", "url(", "<link rel=\"stylesheet"}) {
    EXPECT_EQ(html->find(part), html->npos) << part;
  }
}

TEST(Page, EveryChartSaysWhatMadeIt) {
  Page page{.title = "t", .command = "quire sim exercise --seed 7", .version = "9.8.7", .seed = 7};
  page.sections = {{.heading = "h", .charts = {line_chart({0}, {1}), line_chart({0}, {2})}}};
  const auto html = render(page);
  ASSERT_TRUE(html.ok());
  EXPECT_EQ(count(*html, "<p class=\"source\">Quire 9.8.7 · seed 7 · <code>quire sim exercise --seed 7</code>"), 2u);
}

TEST(Page, TheSamePageGivesTheSameBytes) {
  Page page{.title = "t", .command = "c", .version = "v"};
  page.sections = {{.heading = "h", .charts = {line_chart({0, 1}, {1, 2})}}};
  EXPECT_EQ(*render(page), *render(page));
}

TEST(Page, ARowThatIsNotAsLongAsItsColumnsIsRefused) {
  Page page{.title = "t", .command = "c", .version = "v"};
  page.sections = {{.heading = "h", .tables = {{"sizes", {"a", "b"}, {{"1", "2"}, {"3"}}}}}};
  EXPECT_EQ(render(page).error().message, "table 'sizes', row 1: found 1 cells, wanted 2");
}

TEST(Page, AColumnOfNumbersIsSetToTheRight) {
  Page page{.title = "t", .command = "c", .version = "v"};
  page.sections = {{.heading = "h", .tables = {{"sizes", {"name", "size"}, {{"x1", "1,024"}, {"2", "-3.5 %"}}}}}};
  const auto html = render(page);
  ASSERT_TRUE(html.ok());
  EXPECT_NE(html->find("<td>x1</td><td class=\"number\">1,024</td>"), html->npos);
  EXPECT_NE(html->find("<td>2</td>"), html->npos) << "x1 above it is no number";
}

TEST(Chart, NumbersThatAreNotFiniteAreRefusedByName) {
  EXPECT_EQ(refusal(line_chart({0, 1}, {2, std::nan("")})),
            "chart 'Memory': series 'used', y, number 1: found nan, wanted a finite one");
  EXPECT_EQ(refusal(line_chart({0, INFINITY}, {2, 3})),
            "chart 'Memory': series 'used', x, number 1: found inf, wanted a finite one");
  BarChart bars{.categories = {"a"}, .series = {{"s", {-INFINITY}}}};
  EXPECT_NE(refusal({"t", "", bars}).find("found -inf"), std::string::npos);
  Comparison comparison{"manager", {"a"}, {{"m", "", Better::lower, {std::nan("")}}}};
  EXPECT_NE(refusal({"t", "", comparison}).find("metric 'm'"), std::string::npos);
}

TEST(Chart, ListsThatDoNotFitEachOtherAreRefused) {
  EXPECT_EQ(refusal(line_chart({0, 1}, {2})), "chart 'Memory': series 'used': found 1 numbers, wanted 2");
  EXPECT_EQ(refusal(line_chart({1, 0}, {2, 3})),
            "chart 'Memory': series 'used', x, number 1: found 0 after 1, wanted ascending");
  EXPECT_EQ(refusal({"t", "", BarChart{.categories = {"a", "b"}, .series = {{"s", {1}}}}}),
            "chart 't': series 's': found 1 numbers, wanted 2");
  LineChart stacked{.series = {{"a", Draw::area, {0, 1}, {1, 1}}, {"b", Draw::area, {0, 2}, {1, 1}}}};
  stacked.arrangement = Arrangement::stacked;
  EXPECT_NE(refusal({"t", "", stacked}).find("series 'b': found an x of its own"), std::string::npos);
}

TEST(Chart, ALogarithmicAxisRefusesZero) {
  Chart chart = line_chart({0, 1}, {1, 2});
  std::get<LineChart>(chart.picture).x.scale = Scale::logarithmic;
  EXPECT_EQ(refusal(chart),
            "chart 'Memory': series 'used': found 0 on the logarithmic axis 'time', wanted numbers above 0");
}

TEST(Chart, ALongSeriesKeepsItsExtremesAndItsEnds) {
  std::vector<double> x(1'000'000), y(x.size(), 5.0);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  y[123'456] = 99;
  y[654'321] = -7;
  const json::Value value = parsed(line_chart(x, y));
  const json::Value& series = value.find("series")->as_array()[0];
  const json::Array& kept = series.find("y")->as_array();
  EXPECT_LE(kept.size(), kMaxPoints);
  EXPECT_GT(kept.size(), kMaxPoints / 4);
  EXPECT_EQ(series.find("x")->as_array().front().as_number(), 0);
  EXPECT_EQ(series.find("x")->as_array().back().as_number(), 999'999);
  EXPECT_NE(std::find(kept.begin(), kept.end(), json::Value(99)), kept.end());
  EXPECT_NE(std::find(kept.begin(), kept.end(), json::Value(-7)), kept.end());
  EXPECT_EQ(value.find("note")->as_string(), "Thinned: the lowest and the highest of every 251 values are kept.");
}

TEST(Chart, AShortSeriesIsWrittenWhole) {
  const json::Value value = parsed(line_chart({0.1, 0.2}, {1, 1e300}));
  EXPECT_EQ(value.find("note"), nullptr);
  EXPECT_EQ(value.find("series")->as_array()[0].find("y")->as_array()[1].as_number(), 1e300);
}

TEST(Chart, StackedSeriesAreThinnedTogether) {
  std::vector<double> x(50'000), low(x.size(), 1), high(x.size(), 2);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  high[40'000] = 50;
  LineChart chart{.series = {{"low", Draw::area, x, low}, {"high", Draw::area, x, high}}};
  chart.arrangement = Arrangement::stacked;
  const json::Value value = parsed({"t", "", chart});
  const json::Array& series = value.find("series")->as_array();
  EXPECT_EQ(series[1].find("x"), nullptr) << "that of the first";
  EXPECT_EQ(series[0].find("y")->as_array().size(), series[1].find("y")->as_array().size());
  EXPECT_NE(std::find(series[1].find("y")->as_array().begin(), series[1].find("y")->as_array().end(), json::Value(50)),
            series[1].find("y")->as_array().end());
}

TEST(Chart, AHistogramCountsEveryValueOnce) {
  const HistogramSpec spec{.x = {"utilisation", "%"}, .name = "steps", .low = 0, .high = 100, .num_bins = 4};
  const BarChart inside = histogram(spec, {0, 10, 25, 99, 100});
  EXPECT_EQ(inside.series[0].values, (std::vector<double>{40, 20, 0, 40}));
  EXPECT_EQ(inside.categories[1], "25–50");
  const BarChart outside = histogram(spec, {-5, 200}, {1, 3});
  EXPECT_EQ(outside.series[0].values, (std::vector<double>{25, 0, 0, 75}));
  EXPECT_EQ(outside.categories.front(), "up to 25");
  EXPECT_EQ(outside.categories.back(), "from 75");
  EXPECT_EQ(histogram(spec, {}).series[0].values, std::vector<double>(4));
}

TEST(Chart, ACdfEndsAtAllAndHoldsAtTies) {
  const Series series = cdf("ttft", {3, 1, 1, 2});
  EXPECT_EQ(series.x, (std::vector<double>{1, 1, 2, 3}));
  EXPECT_EQ(series.y, (std::vector<double>{50, 50, 75, 100}));
  std::vector<double> many(100'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<double>(i);
  const Series thin = cdf("many", many);
  EXPECT_EQ(thin.x.size(), kMaxCdfPoints);
  EXPECT_EQ(thin.x.front(), 0);
  EXPECT_EQ(thin.x.back(), 99'999);
  EXPECT_EQ(thin.y.back(), 100);
  EXPECT_TRUE(cdf("none", {}).x.empty());
}

}  // namespace
}  // namespace quire::html
