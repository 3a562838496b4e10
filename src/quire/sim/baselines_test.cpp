// The papers' baselines against naive models of their definitions, and what every system decides as committed digests:
// equal on every machine, with every compiler and at every optimisation level (./dev digests).

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "quire/sim/exercise.h"
#include "quire/sim/reserving_system.h"
#include "quire/sim/simulation.h"
#include "quire/sim/systems.h"
#include "quire/workload/synthetic.h"

namespace quire {
namespace {

RequestSpec spec(std::int32_t prompt, std::int32_t output) {
  RequestSpec request;
  request.prompt_tokens = prompt;
  request.output_tokens = output;
  return request;
}

TEST(ReservationRules, AreThoseOfThePaper) {
  // (prompt, output) and the slots that Max, Pow2 and Oracle ask for, of sequences of at most 2,048.
  const std::map<std::pair<int, int>, std::vector<std::int64_t>> wanted = {
      {{100, 25}, {2048, 132, 125}}, {{100, 32}, {2048, 132, 132}},      {{100, 33}, {2048, 164, 133}},
      {{1, 1}, {2048, 2, 2}},        {{1024, 1000}, {2048, 2048, 2024}}, {{1500, 500}, {2048, 2012, 2000}}};
  for (const auto& [lengths, slots] : wanted) {
    const RequestSpec request = spec(lengths.first, lengths.second);
    EXPECT_EQ(reserved_slots(ReservationRule::maximum, request, 2048), slots[0]);
    EXPECT_EQ(reserved_slots(ReservationRule::power_of_two, request, 2048), slots[1]);
    EXPECT_EQ(reserved_slots(ReservationRule::exact, request, 2048), slots[2]);
  }
}

/// A millisecond a step, whatever is in it.
struct EvenCost final : CostModel {
  std::uint64_t step_ns(const StepShape&) const override { return 1'000'000; }
  std::string description() const override { return "even"; }
};

SystemOptions options() {
  SystemOptions made;
  made.core.block_size = 16;
  made.core.num_blocks = 128;  // 2,048 slots, four sequences of 512
  made.core.context_tokens = 512;
  made.core.token_budget = 256;
  made.core.max_rows = 64;
  made.max_sequence = 512;
  made.page_group_bytes = std::int64_t{64} << 10;
  return made;
}

std::vector<RequestSpec> random_requests(std::uint64_t seed, int count) {
  Rng rng(seed);
  std::vector<RequestSpec> requests;
  std::uint64_t now_ns = 0;
  for (int i = 0; i < count; ++i) {
    requests.push_back(
        spec(static_cast<std::int32_t>(rng.between(1, 200)), static_cast<std::int32_t>(rng.between(1, 120))));
    requests.back().arrival_ns = now_ns;
    if (rng.chance(0.7)) now_ns += static_cast<std::uint64_t>(rng.between(0, 60)) * 1'000'000;
  }
  return requests;
}

/// When each request ends if the earliest arrivals, at most `most` of them, run together until the longest has ended.
std::vector<std::uint64_t> naive_static_batches(const std::vector<RequestSpec>& requests, std::size_t most) {
  std::vector<std::uint64_t> ends(requests.size());
  std::uint64_t now_ns = 0;
  for (std::size_t first = 0; first < requests.size();) {
    now_ns = std::max(now_ns, requests[first].arrival_ns);
    std::size_t last = first;
    std::uint64_t steps = 0;
    for (; last < requests.size() && last - first < most && requests[last].arrival_ns <= now_ns; ++last)
      steps = std::max(steps, static_cast<std::uint64_t>(requests[last].output_tokens));
    now_ns += steps * 1'000'000;
    for (; first < last; ++first) ends[first] = now_ns;
  }
  return ends;
}

TEST(StaticBatches, AgreeWithANaiveModelOnRandomArrivals) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<RequestSpec> requests = random_requests(seed, 60);
    auto system = make_system("fastertransformer", options()).value();
    ListSource source(requests);
    const SimulationResult found = simulate(*system, EvenCost(), source, {.max_records = requests.size()});
    const std::vector<std::uint64_t> wanted = naive_static_batches(requests, 4);
    ASSERT_EQ(found.records.size(), requests.size());
    for (const RequestRecord& record : found.records)
      ASSERT_EQ(record.finish_ns, wanted[record.id.value - 1]) << "seed " << seed << ", request " << record.id.value;
  }
}

TEST(Refusals, SayWhichRequestAndWhy) {
  for (std::string_view name : system_names()) {
    const std::vector<RequestSpec> requests = {spec(10, 10), spec(600, 10), spec(700, 10)};
    auto system = make_system(name, options()).value();
    ListSource source(requests);
    const SimulationResult found = simulate(*system, EvenCost(), source);
    EXPECT_EQ(found.num_refused, 2u) << name;
    EXPECT_TRUE(found.first_refusal.starts_with("request 2: ")) << name << ": " << found.first_refusal;
    EXPECT_NE(found.first_refusal.find("512"), std::string::npos) << name << ": " << found.first_refusal;
  }
}

TEST(Memory, WhatArraysLeaveOfThePoolIsFreeInIt) {
  SystemOptions three = options();  // 2,048 slots, of which arrays of 150 take 12 * 160
  three.max_sequence = 150;
  for (std::string_view name : system_names()) {
    if (name == "vattention") continue;
    auto system = make_system(name, three).value();
    ASSERT_TRUE(system->submit(RequestId{1}, spec(10, 10)));
    system->plan_step();
    EXPECT_EQ(system->memory().pool_slots, three.core.pool_tokens()) << name;
  }
}

TEST(Systems, PageGroupsOfNothingAreRefused) {
  SystemOptions none = options();
  none.page_group_bytes = 0;
  EXPECT_EQ(make_system("vattention", none).error().message, "found page-groups of 0 bytes, wanted some");
}

std::map<std::string_view, std::uint64_t> digests_of_systems() {
  const IndependentLengths lengths(LengthDistribution::parse("lognormal:4,1@1-300").value(),
                                   LengthDistribution::parse("exponential:60@1-200").value(), 512);
  std::map<std::string_view, std::uint64_t> found;
  for (std::string_view name : system_names()) {
    SystemOptions made = options();
    made.core.prefix_cache = name == "quire";
    auto system = make_system(name, made).value();
    SyntheticSource source({.num_requests = 400, .seed = 3, .shared_prefix_tokens = 40},
                           ArrivalProcess::parse("gamma:2", 8).value(), lengths);
    found[name] = simulate(*system, *make_cost_model("opt-13b").value(), source, {.digests_plans = true}).digest;
  }
  return found;
}

TEST(CommittedDigests, OfEverySystem) {
  // orca-max and contiguous are equal here: both hold four sequences of 512.
  const std::map<std::string_view, std::uint64_t> wanted = {
      {"contiguous", 11834785203422895854u}, {"fastertransformer", 15408863338121781956u},
      {"orca-max", 11834785203422895854u},   {"orca-oracle", 12522416782706621099u},
      {"orca-pow2", 3318035746691504441u},   {"paged-static", 18318550486665757397u},
      {"quire", 17032080397291474710u},      {"vattention", 4822336537335076320u}};
  EXPECT_EQ(digests_of_systems(), wanted);
}

/// Keeps what is written.
class MemoryFile final : public BlockFile {
 public:
  Result<std::uint64_t> write(std::span<const std::byte> bytes) override {
    const std::uint64_t at = bytes_.size();
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return at;
  }
  Result<void> read(std::uint64_t at, std::span<std::byte> bytes) override {
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), bytes.size(), bytes.begin());
    return {};
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST(CommittedDigests, OfTheExercise) {
  MemoryFile file;
  const ExerciseReport report = run_exercise({}, file).value();
  std::vector<std::uint64_t> found;
  for (const ExerciseSetting& setting : report.settings)
    for (const ExerciseSide* side : {&setting.paged, &setting.contiguous}) found.push_back(side->digest);
  const std::vector<std::uint64_t> wanted = {6938230413868265539u,  4561044793307801455u, 3068395498591404884u,
                                             4561044793307801455u,  6938230413868265539u, 6669703870396208710u,
                                             3068395498591404884u,  6669703870396208710u, 6938230413868265539u,
                                             12627630045660214578u, 3068395498591404884u, 12627630045660214578u};
  EXPECT_EQ(found, wanted);
}

}  // namespace
}  // namespace quire
