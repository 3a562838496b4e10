#include "quire/loadgen/load_run.h"

#include <gtest/gtest.h>

#include <map>

#include "quire/loadgen/sources.h"
#include "quire/loadgen/summary.h"

namespace quire::loadgen {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

/// Virtual time: each call's answer takes `first_ms` to its first token and `gap_ms` for each further one, as many
/// tokens as asked for; every `fail_every`-th call is refused.
class FakeClient final : public HttpClient {
 public:
  std::uint64_t first_ms = 50, gap_ms = 10;
  int fail_every = 0;
  std::vector<std::uint64_t> started_ns;
  std::size_t in_flight = 0, most_in_flight = 0;

  std::uint64_t now_ns() const override { return now_ns_; }
  void at(std::uint64_t time_ns, std::function<void()> task) override {
    tasks_.emplace(std::max(time_ns, now_ns_), std::move(task));
  }
  void run() override {
    while (!tasks_.empty()) {
      auto first = tasks_.begin();
      now_ns_ = first->first;
      auto task = std::move(first->second);
      tasks_.erase(first);
      task();
    }
  }
  void call(HttpCall call, CallObserver observer) override {
    started_ns.push_back(now_ns_);
    most_in_flight = std::max(most_in_flight, ++in_flight);
    const auto shared = std::make_shared<CallObserver>(std::move(observer));
    const bool refused = fail_every > 0 && started_ns.size() % static_cast<std::size_t>(fail_every) == 0;
    if (refused) {
      at(now_ns_ + kMs, [shared] {
        shared->on_status(503);
        shared->on_body(R"({"error":{"message":"queue full"}})");
      });
    } else {
      answer(call, shared);
    }
    at(refused ? now_ns_ + kMs : end_of(call), [this, shared] {
      --in_flight;
      shared->on_end(CallEnd::complete, "");
    });
  }

 private:
  static std::int64_t tokens_of(const HttpCall& call) { return json::parse(call.body)->find("max_tokens")->as_int(); }
  std::uint64_t end_of(const HttpCall& call) const {
    return now_ns_ + (first_ms + gap_ms * static_cast<std::uint64_t>(tokens_of(call) - 1)) * kMs;
  }
  void answer(const HttpCall& call, const std::shared_ptr<CallObserver>& shared) {
    at(now_ns_, [shared] { shared->on_status(200); });
    const auto tokens = static_cast<std::uint64_t>(tokens_of(call));
    for (std::uint64_t i = 0; i < tokens; ++i) {
      at(now_ns_ + (first_ms + i * gap_ms) * kMs, [shared, i, tokens] {
        shared->on_body(cat(R"(data: {"choices":[{"text":"a","finish_reason":)",
                            i + 1 == tokens ? "\"length\"" : "null", "}]}\n\n"));
      });
    }
  }

  std::uint64_t now_ns_ = 1'000'000'000;
  std::multimap<std::uint64_t, std::function<void()>> tasks_;
};

std::vector<RequestSpec> requests(std::size_t count, std::int32_t output, std::uint64_t spacing_ms = 0) {
  std::vector<RequestSpec> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i].output_tokens = output;
    out[i].arrival_ns = i * spacing_ms * kMs;
  }
  return out;
}

LoadResult run(FakeClient& client, std::vector<RequestSpec> list, LoadOptions options) {
  OwnedSource source(std::move(list));
  return run_load(client, source, RequestWriter({.model = "m"}), options);
}

TEST(LoadRun, AClosedLoopKeepsItsClientsBusyAndNoMore) {
  FakeClient client;
  const LoadResult result = run(client, requests(40, 6), {.num_clients = 4});
  EXPECT_EQ(result.samples.size(), 40u);
  EXPECT_EQ(client.most_in_flight, 4u);
  EXPECT_EQ(result.end_ns - result.begin_ns, 10 * 100 * kMs) << "ten rounds of 50 + 5 * 10 ms";
  for (const Sample& sample : result.samples) {
    EXPECT_TRUE(sample.completed());
    EXPECT_EQ(sample.due_ns, sample.sent_ns);
    EXPECT_EQ(sample.first_ns - sample.due_ns, 50 * kMs);
    EXPECT_EQ(sample.gaps_ns, std::vector<std::uint64_t>(5, 10 * kMs));
    EXPECT_EQ(sample.output_tokens, 6);
  }
}

TEST(LoadRun, AnOpenLoopSendsAtTheArrivalTimesHoweverSlowTheServerIs) {
  FakeClient client;
  client.first_ms = 10'000;
  const LoadResult result = run(client, requests(30, 1, 20), {.loop = Loop::open});
  ASSERT_EQ(result.samples.size(), 30u);
  EXPECT_EQ(client.most_in_flight, 30u);
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(client.started_ns[i], result.begin_ns + i * 20 * kMs);
}

TEST(LoadRun, TheWarmUpComesFirstAndIsNotCounted) {
  for (Loop loop : {Loop::closed, Loop::open}) {
    FakeClient client;
    const LoadResult result = run(client, requests(10, 1, 20), {.loop = loop, .num_clients = 2, .num_warmup = 4});
    ASSERT_EQ(result.samples.size(), 6u);
    EXPECT_EQ(client.started_ns.size(), 10u);
    std::uint64_t lowest = 100;
    for (const Sample& sample : result.samples) {
      EXPECT_GE(sample.due_ns, result.begin_ns);
      lowest = std::min(lowest, sample.number);
    }
    EXPECT_EQ(lowest, 4u);
    EXPECT_EQ(result.begin_ns, 1'000'000'000 + 2 * 50 * kMs);
    if (loop == Loop::open) {
      EXPECT_EQ(client.started_ns[4], result.begin_ns + 20 * kMs)
          << "as long after the warm-up's last as in the workload";
    }
  }
}

TEST(LoadRun, LimitsOnNumberAndTimeHoldAndWhatRunsMayEnd) {
  FakeClient client;
  EXPECT_EQ(run(client, requests(100, 1), {.num_clients = 3, .num_requests = 7}).samples.size(), 7u);
  FakeClient timed;
  const LoadResult result = run(timed, requests(100, 6), {.num_clients = 2, .duration_ns = 250 * kMs});
  EXPECT_EQ(result.samples.size(), 6u) << "begun at 0, 100 and 200 ms";
  EXPECT_EQ(result.end_ns - result.begin_ns, 300 * kMs);
  FakeClient open;
  EXPECT_EQ(run(open, requests(100, 1, 10), {.loop = Loop::open, .duration_ns = 95 * kMs}).samples.size(), 10u);
}

TEST(LoadRun, FailuresAreCountedByKindAndTheLoopGoesOn) {
  FakeClient client;
  client.fail_every = 4;
  const Summary summary = summarise(run(client, requests(20, 3), {.num_clients = 3}), {});
  EXPECT_EQ(summary.num_completed, 15u);
  EXPECT_EQ(summary.num_failed, 5u);
  ASSERT_EQ(summary.failures.size(), 1u);
  EXPECT_EQ(summary.failures.at("HTTP 503").count, 5u);
  EXPECT_EQ(summary.failures.at("HTTP 503").example, "queue full");
  EXPECT_EQ(summary.output_tokens, 45);
}

TEST(Summary, PercentilesAreNumpys) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Distribution d = distribution_of(values);
  EXPECT_DOUBLE_EQ(d.mean, 50.5);
  EXPECT_DOUBLE_EQ(d.p50, 50.5);
  EXPECT_DOUBLE_EQ(d.p90, 90.1);
  EXPECT_DOUBLE_EQ(d.p95, 95.05);
  EXPECT_DOUBLE_EQ(d.p99, 99.01);
  EXPECT_DOUBLE_EQ(d.max, 100);
  EXPECT_EQ(distribution_of({}).count, 0u);
  EXPECT_DOUBLE_EQ(distribution_of({7}).p99, 7);
}

Sample sample_of(std::uint64_t due_ms, std::uint64_t first_ms, const std::vector<std::uint64_t>& gaps_ms) {
  Sample sample;
  sample.due_ns = sample.sent_ns = due_ms * kMs;
  sample.first_ns = sample.last_ns = first_ms * kMs;
  for (std::uint64_t gap : gaps_ms) {
    sample.gaps_ns.push_back(gap * kMs);
    sample.last_ns += gap * kMs;
  }
  sample.end_ns = sample.last_ns;
  sample.output_tokens = sample.wanted_tokens = static_cast<std::int64_t>(gaps_ms.size()) + 1;
  return sample;
}

TEST(Summary, GoodputCountsRequestsWithinEveryLimit) {
  LoadResult result;
  result.samples = {sample_of(0, 100, {10, 20}), sample_of(0, 300, {10, 20}), sample_of(0, 100, {10, 90}),
                    sample_of(0, 90, {})};
  result.samples.push_back(sample_of(0, 50, {1}));
  result.samples.back().failure = "cut off";
  result.end_ns = 2000 * kMs;
  const Summary summary = summarise(result, *Slo::parse("ttft=200ms,itl=50ms"));
  EXPECT_EQ(summary.num_good, 2u);
  EXPECT_DOUBLE_EQ(summary.per_second(2), 1);
  EXPECT_DOUBLE_EQ(summary.worst_gap.max, 90);
  EXPECT_EQ(summary.gap.count, 6u);
  EXPECT_DOUBLE_EQ(summary.tpot.p50, 15);
  EXPECT_EQ(summarise(result, {}).num_good, std::nullopt);
}

TEST(Summary, LimitsAndDurationsAreReadStrictly) {
  const auto slo = Slo::parse("e2e=2min,tpot=1.5s");
  ASSERT_TRUE(slo.ok());
  EXPECT_EQ(slo->e2e_ms, 120'000);
  EXPECT_EQ(slo->tpot_ms, 1500);
  EXPECT_FALSE(slo->ttft_ms);
  for (const char* bad : {"", "ttft", "ttft=", "ttft=5", "ttft=1s,", "ttft=1s,ttft=2s", "x=1s", "ttft=-1s", "ttft=nans",
                          "ttft=1e3s", "ttft=1 s"}) {
    EXPECT_FALSE(Slo::parse(bad).ok()) << bad;
  }
}

TEST(Summary, TwoRunsCompareByMetricAndBySettings) {
  LoadResult result;
  result.samples = {sample_of(0, 100, {10})};
  result.end_ns = 1000 * kMs;
  const std::string a = json::dump(as_json(summarise(result, {}), "m", json::Object{{"clients", 1}, {"seed", 1}}));
  result.samples = {sample_of(0, 50, {10})};
  const std::string b = json::dump(as_json(summarise(result, {}), "m", json::Object{{"clients", 2}, {"seed", 1}}));
  const auto compared = compare("a.json", a, "b.json", b);
  ASSERT_TRUE(compared.ok()) << compared.error().message;
  const auto ttft = std::find_if(compared->rows.begin(), compared->rows.end(),
                                 [](const ComparedRow& row) { return row.metric == "ttft p50"; });
  ASSERT_NE(ttft, compared->rows.end());
  EXPECT_EQ(ttft->ratio, 0.5);
  EXPECT_EQ(ttft->unit, "ms");
  EXPECT_EQ(compared->differences, std::vector<std::string>{"clients: 1 and 2"});
  EXPECT_NE(compare("a.json", a, "b.json", "{}").error().message.find("b.json"), std::string::npos);
  EXPECT_FALSE(compare("a.json", "[", "b.json", b).ok());
}

}  // namespace
}  // namespace quire::loadgen
