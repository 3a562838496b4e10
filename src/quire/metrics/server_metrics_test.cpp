#include "quire/metrics/server_metrics.h"

#include <gtest/gtest.h>

#include <charconv>
#include <map>
#include <set>
#include <sstream>
#include <string>

namespace quire::metrics {
namespace {

// A strict reader of the text format: HELP and TYPE before samples, each once per family, samples of a family together.
struct Parsed {
  std::map<std::string, double> samples;  ///< name{labels} to value
  std::map<std::string, std::string> types;
};

Parsed parse_strictly(const std::string& text) {
  Parsed parsed;
  std::istringstream lines(text);
  std::string line, family;
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  while (std::getline(lines, line)) {
    if (line.starts_with("# HELP ")) continue;
    if (line.starts_with("# TYPE ")) {
      std::istringstream words(line.substr(7));
      std::string name, type;
      words >> name >> type;
      EXPECT_TRUE(parsed.types.emplace(name, type).second) << "family twice: " << name;
      family = name;
      continue;
    }
    std::size_t space = line.rfind(' ');
    EXPECT_NE(space, std::string::npos) << line;
    if (space == std::string::npos) continue;
    EXPECT_TRUE(line.starts_with(family)) << line << " is outside its family " << family;
    EXPECT_TRUE(line.starts_with("quire_")) << line;
    double value = 0;
    std::string number = line.substr(space + 1);
    auto end = std::from_chars(number.data(), number.data() + number.size(), value);
    EXPECT_EQ(end.ptr, number.data() + number.size()) << line;
    EXPECT_TRUE(parsed.samples.emplace(line.substr(0, space), value).second) << "sample twice: " << line;
  }
  return parsed;
}

TEST(ServerMetrics, KvMemoryIsShownByState) {
  ServerMetrics metrics("m");
  EngineSnapshot engine;
  engine.blocks_total = 100;
  engine.blocks_used = 20;
  engine.blocks_cached = 30;
  engine.kv_block_size = 16;
  engine.kv_table_entries = 25;
  engine.kv_unfilled_slots = 32;
  Parsed parsed = parse_strictly(metrics.text(engine));
  EXPECT_EQ(parsed.samples.at("quire_kv_blocks_free{model=\"m\"}"), 50);
  EXPECT_EQ(parsed.samples.at("quire_kv_blocks_saved{model=\"m\"}"), 5);
  EXPECT_EQ(parsed.samples.at("quire_kv_fragmentation_ratio{model=\"m\",kind=\"internal\"}"), 0.1);
  EXPECT_EQ(parsed.samples.at("quire_kv_fragmentation_ratio{model=\"m\",kind=\"external\"}"), 0);
  parsed = parse_strictly(metrics.text({}));
  EXPECT_EQ(parsed.samples.at("quire_kv_fragmentation_ratio{model=\"m\",kind=\"internal\"}"), 0) << "no block is held";
}

TEST(ServerMetrics, EveryFamilyIsThereFromTheStartAndParses) {
  ServerMetrics metrics("m");
  Parsed parsed = parse_strictly(metrics.text({}));
  for (const char* name : {"quire_requests_running", "quire_requests_waiting", "quire_kv_blocks_used",
                           "quire_generated_tokens_total", "quire_time_to_first_token_seconds",
                           "quire_inter_token_seconds", "quire_requests_finished_total", "quire_ready"}) {
    EXPECT_TRUE(parsed.types.contains(name)) << name;
  }
  for (const auto& [name, type] : parsed.types) {
    EXPECT_EQ(type == "counter", name.ends_with("_total")) << name;
  }
}

TEST(ServerMetrics, EngineCountersAreTakenOverOnce) {
  ServerMetrics metrics("m");
  EngineSnapshot engine{.running = 3,
                        .steps = 10,
                        .step_ns = 2'000'000'000,
                        .generated_tokens = 7,
                        .shared_positions = 960,
                        .unshared_positions = 7680};
  metrics.text(engine);
  Parsed parsed = parse_strictly(metrics.text(engine));
  EXPECT_EQ(parsed.samples["quire_engine_steps_total{model=\"m\"}"], 10);
  EXPECT_EQ(parsed.samples["quire_engine_step_seconds_total{model=\"m\"}"], 2);
  EXPECT_EQ(parsed.samples["quire_generated_tokens_total{model=\"m\"}"], 7);
  EXPECT_EQ(parsed.samples["quire_attention_shared_positions_total{model=\"m\"}"], 960);
  EXPECT_EQ(parsed.samples["quire_attention_unshared_positions_total{model=\"m\"}"], 7680);
  EXPECT_EQ(parsed.samples["quire_requests_running{model=\"m\"}"], 3);
  engine.steps = 12;
  EXPECT_EQ(parse_strictly(metrics.text(engine)).samples["quire_engine_steps_total{model=\"m\"}"], 12);
}

TEST(ServerMetrics, CountsWithALabelAreTakenOverOnce) {
  ServerMetrics metrics("m");
  EngineSnapshot engine{
      .files = 9, .preemptions_by_kind = {{"swap", 3}, {"recompute_no_room", 1}}, .file_reads = {{"done", 5}}};
  metrics.text(engine);
  engine.preemptions_by_kind[0].count = 4;
  Parsed parsed = parse_strictly(metrics.text(engine));
  EXPECT_EQ(parsed.samples["quire_preemptions_by_kind_total{model=\"m\",kind=\"swap\"}"] +
                parsed.samples["quire_preemptions_by_kind_total{kind=\"swap\",model=\"m\"}"],
            4);
  EXPECT_EQ(parsed.samples["quire_kv_files{model=\"m\"}"], 9);
}

TEST(ServerMetrics, RequestsAreCountedByRouteAndStatus) {
  ServerMetrics metrics("m");
  metrics.count_http_request("/v1/models", 200);
  metrics.count_http_request("/v1/models", 200);
  metrics.count_http_request("other", 404);
  metrics.count_unknown_fields("/v1/completions", 0);
  metrics.count_unknown_fields("/v1/completions", 3);
  metrics.count_refusal(RefusalReason::overloaded);
  Parsed parsed = parse_strictly(metrics.text({}));
  EXPECT_EQ(parsed.samples["quire_http_requests_total{route=\"/v1/models\",status=\"200\"}"], 2);
  EXPECT_EQ(parsed.samples["quire_http_requests_total{route=\"other\",status=\"404\"}"], 1);
  EXPECT_EQ(parsed.samples["quire_unknown_request_fields_total{route=\"/v1/completions\"}"], 3);
  EXPECT_EQ(parsed.samples["quire_requests_refused_total{model=\"m\",reason=\"overloaded\"}"], 1);
}

TEST(ServerMetrics, TimesOfARequestAddUp) {
  ServerMetrics metrics("m");
  metrics.observe_request(
      {.queue_ns = 500'000'000, .prefill_ns = 250'000'000, .decode_ns = 1'000'000'000, .had_first_token = true});
  metrics.observe_request({.queue_ns = 500'000'000});
  Parsed parsed = parse_strictly(metrics.text({}));
  EXPECT_EQ(parsed.samples["quire_queue_seconds_sum{model=\"m\"}"], 1);
  EXPECT_EQ(parsed.samples["quire_time_to_first_token_seconds_sum{model=\"m\"}"], 0.75);
  EXPECT_EQ(parsed.samples["quire_time_to_first_token_seconds_count{model=\"m\"}"], 1);
  EXPECT_EQ(parsed.samples["quire_request_seconds_sum{model=\"m\"}"], 2.25);
  EXPECT_EQ(parsed.samples["quire_request_seconds_bucket{model=\"m\",le=\"+Inf\"}"], 2);
}

TEST(ServerMetrics, LabelsAreEscaped) {
  ServerMetrics metrics("a\"b\\c\nd");
  std::string text = metrics.text({});
  EXPECT_NE(text.find(R"(quire_requests_running{model="a\"b\\c\nd"})"), std::string::npos);
}

}  // namespace
}  // namespace quire::metrics
