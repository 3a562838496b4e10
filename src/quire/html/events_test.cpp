#include "quire/html/events.h"

#include <gtest/gtest.h>

#include <fstream>

#include "quire/html/run_charts.h"

namespace quire::html {
namespace {

using Kind = RequestEventKind;
constexpr std::string_view kFirst = R"({"event":"run","format":1,"version":"0.1.0","command":"quire sim"})"
                                    "\n";

std::string refusal(std::string_view text) {
  const auto read = read_events(text);
  return read.ok() ? "" : read.error().message;
}

RequestEvent event(Kind kind, std::uint64_t ns, std::uint64_t end_ns = 0, std::uint64_t tokens = 0) {
  return {.kind = kind, .request = {1}, .ns = ns, .end_ns = end_ns, .tokens = tokens, .detail = {}};
}

std::string phases_of(std::vector<RequestEvent> events) {
  RunEvents run;
  run.requests = std::move(events);
  const GanttChart chart = request_gantt(run);
  std::string out;
  for (const PhaseSpan& span : chart.rows.at(0).spans) {
    out += cat(to_string(span.phase), " ", span.begin_ns, "-", span.end_ns, " ");
  }
  return out;
}

TEST(Events, WhatIsWrittenIsReadBack) {
  std::string text;
  append_event(text, RunHeader{.name = "paged",
                               .version = "1",
                               .command = "c \"d\"",
                               .seed = ~std::uint64_t{0},
                               .total_slots = 1600,
                               .block_size = 16,
                               .max_step_tokens = 512,
                               .options = {{"a", "b"}}});
  append_event(text, StepEvent{.begin_ns = 1,
                               .end_ns = 9,
                               .prefill_tokens = 2,
                               .decode_tokens = 3,
                               .running = 4,
                               .waiting = 5,
                               .slots = {6, 7, 8, 9, 10}});
  append_event(text, RequestEvent{Kind::chunk, {7}, 1, 9, 2, ""});
  append_event(text, RequestEvent{Kind::preempted, {7}, 9, 0, 0, "swap"});
  append_event(text, BlockRun{3, BlockState::cached, 1, 9, 7});
  append_event(text, BlockRun{4, BlockState::shared, 1, 9, 7});
  const auto run = read_events(text);
  ASSERT_TRUE(run.ok()) << run.error().message;
  std::string again;
  append_event(again, run->header);
  append_event(again, run->steps.at(0));
  append_event(again, run->requests.at(0));
  append_event(again, run->requests.at(1));
  for (const BlockRun& block : run->blocks) append_event(again, block);
  EXPECT_EQ(again, text);
  EXPECT_EQ(run->header.seed, ~std::uint64_t{0});
  EXPECT_EQ(run->steps[0].slots.cached, 10u);
}

TEST(Events, TheExampleInTheDocumentIsRead) {
  std::ifstream file(QUIRE_SOURCE_DIR "/docs/events.md");
  std::string text, line;
  while (std::getline(file, line)) {
    if (line.starts_with("    {")) text += line + "\n";
  }
  const auto run = read_events(text);
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(run->num_unknown, 0u);
  EXPECT_EQ(run_sections(*run).size(), 4u);
  EXPECT_TRUE(render(run_page("example", *run)).ok());
}

TEST(Events, UnknownKindsAreCountedAndUnknownFieldsPassedOver) {
  const auto run = read_events(cat(kFirst, "\r\n", R"({"event":"weather","sun":1})", "\r\n",
                                   R"({"event":"first_token","request":1,"ns":5,"mood":"good"})", "\r\n"));
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(run->num_unknown, 1u);
  EXPECT_EQ(run->requests.size(), 1u);
}

TEST(Events, BadLinesAreRefusedWithTheirNumber) {
  EXPECT_EQ(refusal(""), "found no line, wanted one with 'event': 'run' first");
  EXPECT_EQ(refusal("[]"), "line 1: found an array, wanted an object");
  EXPECT_EQ(refusal(R"({"event":"step"})"), "line 1: 'event': found 'step', wanted 'run' in the first line");
  EXPECT_EQ(refusal(cat(kFirst, kFirst)), "line 2: 'event': found 'run', wanted 'run' once");
  EXPECT_NE(refusal(R"({"event":"run","format":2,"version":"","command":""})").find("'format': found 2, wanted 1"),
            std::string::npos);
  EXPECT_EQ(refusal(cat(kFirst, R"({"event":"step","begin_ns":5,"end_ns":4})")),
            "line 2: 'end_ns': found 4, wanted at least 'begin_ns', 5");
  EXPECT_NE(refusal(cat(kFirst, R"({"event":"queued","request":-1,"ns":4})")).find("line 2: 'request': found -1"),
            std::string::npos);
  EXPECT_NE(refusal(cat(kFirst, R"({"event":"queued","request":1,"ns":1e99})")).find("line 2: 'ns'"),
            std::string::npos);
  EXPECT_NE(refusal(cat(kFirst, R"({"event":"block","block":4294967295,"begin_ns":0,"end_ns":1})")).find("'block'"),
            std::string::npos);
  const std::string pool = R"({"event":"run","format":1,"version":"","command":"","total_slots":40,"block_size":16})";
  EXPECT_EQ(refusal(cat(pool, "\n", R"({"event":"block","block":2,"begin_ns":0,"end_ns":1})")),
            "line 2: 'block': found 2, wanted less than the pool's 2 blocks");
  EXPECT_EQ(refusal(cat(pool, "\n", R"({"event":"step","begin_ns":0,"end_ns":1,"slots":{"written":30,"unused":11}})")),
            "line 2: 'slots': found 41 in all, wanted at most 'total_slots', 40");
  EXPECT_NE(refusal(cat(kFirst, "{\"event\":")).find("line 2: "), std::string::npos);
  EXPECT_NE(refusal(cat(kFirst, R"({"event":"step","begin_ns":0,"end_ns":9})", "\n",
                        R"({"event":"step","begin_ns":8,"end_ns":10})"))
                .find("line 3: 'begin_ns': found 8, wanted at least the end of the step before, 9"),
            std::string::npos);
}

TEST(RequestPhases, ARequestIsQueuedPrefilledInChunksAndDecoded) {
  EXPECT_EQ(phases_of({event(Kind::queued, 0), event(Kind::started, 10), event(Kind::chunk, 10, 20),
                       event(Kind::chunk, 30, 40), event(Kind::first_token, 40), event(Kind::finished, 90)}),
            "queued 0-10 prefill 10-20 prefill 30-40 decode 40-90 ");
}

TEST(RequestPhases, WithoutChunksPrefillLastsUntilTheFirstToken) {
  EXPECT_EQ(phases_of({event(Kind::queued, 0), event(Kind::started, 10), event(Kind::first_token, 40),
                       event(Kind::finished, 90)}),
            "queued 0-10 prefill 10-40 decode 40-90 ");
}

TEST(RequestPhases, APreemptedOneWaitsIsRestoredAndGoesOn) {
  EXPECT_EQ(phases_of({event(Kind::queued, 0), event(Kind::started, 0), event(Kind::first_token, 10),
                       event(Kind::preempted, 20), event(Kind::restored, 50, 60), event(Kind::finished, 90)}),
            "prefill 0-10 decode 10-20 preempted 20-50 restored 50-60 decode 60-90 ");
}

TEST(RequestPhases, APreemptionOfUnknownLengthIsNoPhase) {
  const std::vector<RequestEvent> events = {event(Kind::first_token, 0), event(Kind::preempted, 20)};
  auto finished = events, cancelled = events;
  finished.push_back({Kind::finished, {1}, 90, 0, 5, "length"});
  cancelled.push_back({Kind::finished, {1}, 90, 0, 5, "cancelled"});
  EXPECT_EQ(phases_of(finished), "decode 0-90 ");
  EXPECT_EQ(phases_of(cancelled), "decode 0-20 preempted 20-90 ");
}

TEST(RequestPhases, OneThatDoesNotFinishLastsUntilTheEnd) {
  EXPECT_EQ(phases_of({event(Kind::queued, 3), event(Kind::started, 5), event(Kind::chunk, 5, 9)}),
            "queued 3-5 prefill 5-9 ");
  EXPECT_EQ(phases_of({event(Kind::first_token, 4), event(Kind::chunk, 6, 9)}), "decode 4-6 prefill 6-9 ");
}

TEST(RunCharts, ARunWithoutEventsHasNoSections) { EXPECT_TRUE(run_sections({}).empty()); }

TEST(RunCharts, StepBarsAreMeansAndTheBudgetIsTheRest) {
  RunEvents run;
  run.header.max_step_tokens = 100;
  run.steps = {{.begin_ns = 0, .end_ns = 1, .prefill_tokens = 40, .decode_tokens = 10},
               {.begin_ns = 1, .end_ns = 48'000, .prefill_tokens = 0, .decode_tokens = 20}};
  const BarChart chart = step_budget(run);
  EXPECT_EQ(chart.series[0].values[0], 15);
  EXPECT_EQ(chart.series[1].values[0], 20);
  EXPECT_EQ(chart.series[2].values[0], 65);
  EXPECT_LE(chart.categories.size(), 49u);
}

TEST(RunCharts, AFilmHasThePoolsBlocksOrAsManyAsWereSeen) {
  RunEvents run;
  run.blocks = {{5, BlockState::used, 0, 10, 1}};
  EXPECT_EQ(block_film(run).num_blocks, 6u);
  run.header.total_slots = 160;
  run.header.block_size = 16;
  EXPECT_EQ(block_film(run).num_blocks, 10u);
}

TEST(RunCharts, LatenciesAreFromArrivalAndEveryRunRenders) {
  RunEvents run;
  run.requests = {event(Kind::queued, 0), event(Kind::first_token, 2'000'000'000),
                  event(Kind::finished, 6'000'000'000, 0, 5)};
  run.steps = {{.begin_ns = 0, .end_ns = 6'000'000'000, .running = 1, .slots = {.written = 8, .unused = 8}}};
  const Section section = latency_section(run);
  ASSERT_EQ(section.tables.at(0).rows.size(), 3u);
  EXPECT_EQ(section.tables[0].rows[0][2], "2000");
  EXPECT_EQ(section.tables[0].rows[1][2], "1000") << "four gaps in four seconds";
  EXPECT_EQ(section.tables[0].rows[2][2], "6000");
  EXPECT_TRUE(render(run_page("r", run)).ok());
}

}  // namespace
}  // namespace quire::html
