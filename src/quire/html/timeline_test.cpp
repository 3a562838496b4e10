#include <gtest/gtest.h>

#include "quire/base/rng.h"
#include "quire/html/chart_json.h"
#include "quire/html/page.h"
#include "quire/json/json.h"

namespace quire::html {
namespace {

std::string written(const Chart& chart) {
  std::string text;
  const auto done = append_chart(text, chart);
  return done.ok() ? text : done.error().message;
}

json::Value parsed(const Chart& chart) { return *json::parse(written(chart)); }

GanttRow request_with_chunks(std::uint64_t number, std::size_t num_spans, Rng& rng) {
  GanttRow row{cat(number), {}};
  std::uint64_t ns = number * 7'654'321;
  for (std::size_t i = 0; i < num_spans; ++i) {
    const auto length = static_cast<std::uint64_t>(rng.between(1'000'000, 900'000'000));
    row.spans.push_back({static_cast<Phase>(i % kNumPhases), ns, ns + length});
    ns += length;
  }
  return row;
}

TEST(Timeline, SpansAreWrittenAsGapsLengthsAndPhases) {
  const GanttChart chart{{{"a", {{Phase::queued, 5, 15}, {Phase::decode, 20, 21}}}, {"b", {}}}};
  const json::Value value = parsed({"t", "", chart});
  EXPECT_EQ(json::dump(*value.find("rows")), R"([["a",5,10,0,5,1,2],["b"]])");
  EXPECT_EQ(value.find("tick_ns")->as_int(), 1);
}

TEST(Timeline, TicksKeepEightDigitsAndDoNotDrift) {
  GanttRow row{"a", {}};
  for (std::uint64_t i = 0; i < 1000; ++i)
    row.spans.push_back({Phase::decode, i * 7'000'000'049, i * 7'000'000'049 + 49});
  const json::Value value = parsed({"t", "", GanttChart{{row}}});
  EXPECT_EQ(value.find("tick_ns")->as_int(), 100'000);
  std::int64_t at = 0;
  const json::Array& list = value.find("rows")->as_array()[0].as_array();
  for (std::size_t i = 1; i < list.size(); i += 3) at += list[i].as_int() + list[i + 1].as_int();
  EXPECT_NEAR(static_cast<double>(at) * 1e5, 999.0 * 7'000'000'049, 1e5);
}

TEST(Timeline, SpansOutOfOrderAreRefused) {
  EXPECT_EQ(written({"t", "", GanttChart{{{"a", {{Phase::queued, 5, 15}, {Phase::decode, 14, 20}}}}}}),
            "chart 't': request 'a': found a span from 14 ns after one that ends at 15, wanted in order");
  EXPECT_EQ(written({"t", "", GanttChart{{{"a", {{Phase::queued, 5, 4}}}}}}),
            "chart 't': request 'a': found a span from 5 to 4 ns, wanted begin <= end");
}

TEST(Timeline, AGanttOfTenThousandRequestsIsSmall) {
  Rng rng(1);
  GanttChart chart;
  for (std::uint64_t i = 0; i < 10'000; ++i) chart.rows.push_back(request_with_chunks(i, 8, rng));
  Page page{.title = "t", .command = "c", .version = "v"};
  page.sections = {{.heading = "h", .charts = {{"Requests", "", chart}}}};
  const auto html = render(page);
  ASSERT_TRUE(html.ok());
  EXPECT_LT(html->size(), std::size_t{3} << 20);
  EXPECT_EQ(html->find("Thinned"), html->npos);
}

TEST(Timeline, AGanttOfTooManySpansShowsEveryKthRequestAndSaysSo) {
  Rng rng(2);
  GanttChart chart;
  for (std::uint64_t i = 0; i < 30'000; ++i) chart.rows.push_back(request_with_chunks(i, 10, rng));
  const json::Value value = parsed({"t", "", chart});
  EXPECT_EQ(value.find("rows")->as_array().size(), 15'000u);
  EXPECT_EQ(value.find("note")->as_string(), "Thinned: one of every 2 of 30000 requests is shown.");
}

TEST(Film, RunsAreWrittenByBlockAndFreeBlocksAreEmpty) {
  BlockFilm film{
      .num_blocks = 3,
      .end_ns = 100,
      .runs = {{2, BlockState::cached, 50, 60, 7}, {0, BlockState::used, 10, 40, 7}, {2, BlockState::used, 20, 50, 7}}};
  EXPECT_EQ(json::dump(*parsed({"t", "", film}).find("blocks")), "[[10,30,0,7],[],[20,30,0,7,0,10,2,7]]");
}

TEST(Film, OfVeryManyBlocksEveryKthIsShown) {
  const BlockFilm film{
      .num_blocks = UINT32_MAX,
      .end_ns = 10,
      .runs = {{0, BlockState::used, 1, 2, 3}, {1, BlockState::used, 1, 2, 3}, {1 << 20, BlockState::used, 4, 9, 3}}};
  const json::Value value = parsed({"t", "", film});
  EXPECT_EQ(value.find("every")->as_int(), 1 << 20);
  EXPECT_EQ(value.find("blocks")->as_array().size(), kMaxFilmBlocks);
  EXPECT_EQ(json::dump(value.find("blocks")->as_array()[1]), "[4,5,0,3]");
  EXPECT_EQ(value.find("note")->as_string(), "Thinned: one of every 1048576 of 4294967295 blocks is shown. ");
}

TEST(Film, WhatCannotBeIsRefused) {
  BlockFilm film{.num_blocks = 3, .end_ns = 100, .runs = {{3, BlockState::used, 0, 1, 0}}};
  EXPECT_EQ(written({"t", "", film}), "chart 't': block 3: wanted one below 3");
  film.runs = {{1, BlockState::used, 0, 101, 0}};
  EXPECT_EQ(written({"t", "", film}), "chart 't': block 1: found a run until 101 ns, wanted at most the film's 100");
  film.runs = {{1, BlockState::used, 0, 50, 1}, {1, BlockState::used, 49, 60, 2}};
  EXPECT_EQ(written({"t", "", film}),
            "chart 't': block 1: found a span from 49 ns after one that ends at 50, wanted in order");
}

TEST(Film, OneOfAThousandBlocksIsSmallHoweverOftenTheyChange) {
  Rng rng(3);
  BlockFilm film{.num_blocks = 1000, .end_ns = 400'000'000'000};
  for (std::uint32_t block = 0; block < film.num_blocks; ++block) {
    for (std::uint64_t ns = 0; ns + 900'000'000 < film.end_ns;) {
      const auto length = static_cast<std::uint64_t>(rng.between(100'000'000, 900'000'000));
      film.runs.push_back({block, BlockState::used, ns, ns + length, static_cast<std::uint64_t>(rng.between(1, 9999))});
      ns += length;
    }
  }
  ASSERT_GT(film.runs.size(), 4 * kMaxFilmRuns);
  const std::string text = written({"t", "", film});
  EXPECT_LT(text.size(), std::size_t{3} << 20);
  const json::Value value = *json::parse(text);
  EXPECT_NE(value.find("note")->as_string().find("equally spaced moments"), std::string::npos);
  std::size_t runs = 0;
  for (const json::Value& block : value.find("blocks")->as_array()) runs += block.as_array().size() / 4;
  EXPECT_LE(runs, kMaxFilmRuns);
  EXPECT_GT(runs, kMaxFilmRuns / 2) << "no more is left out than has to be";
}

}  // namespace
}  // namespace quire::html
