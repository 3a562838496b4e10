// The small parts of scheduling on their own: budget shares, options, states, policies, plan digests.

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <set>

#include "quire/base/rng.h"
#include "quire/sched/batch_plan.h"
#include "quire/sched/options.h"
#include "quire/sched/policy.h"
#include "quire/sched/prefill_share.h"
#include "quire/sched/request.h"

namespace quire {
namespace {

using Shares = std::vector<std::int32_t>;

TEST(PrefillShare, OnePromptGetsAllItNeeds) {
  EXPECT_EQ(share_prefill_budget({}, 10), Shares{});
  EXPECT_EQ(share_prefill_budget(Shares{7}, 10), (Shares{7}));
  EXPECT_EQ(share_prefill_budget(Shares{70}, 10), (Shares{10}));
  EXPECT_EQ(share_prefill_budget(Shares{70, 3}, 0), (Shares{0, 0}));
}

TEST(PrefillShare, HalfIsOfferedToShorterPromptsShortestFirst) {
  EXPECT_EQ(share_prefill_budget(Shares{100, 30, 4, 10}, 32), (Shares{16, 2, 4, 10}));
  EXPECT_EQ(share_prefill_budget(Shares{100, 4}, 32), (Shares{28, 4}));
}

TEST(PrefillShare, PromptsThatAreNotShorterWaitTheirTurn) {
  EXPECT_EQ(share_prefill_budget(Shares{100, 100, 200}, 32), (Shares{32, 0, 0}));
  EXPECT_EQ(share_prefill_budget(Shares{20, 100, 200}, 32), (Shares{20, 12, 0}));
}

TEST(PrefillShare, TheFirstIsNeverStarvedAndNothingIsWasted) {
  Rng rng(1);
  for (int round = 0; round < 20'000; ++round) {
    Shares remaining(static_cast<std::size_t>(rng.between(1, 12)));
    for (std::int32_t& tokens : remaining) tokens = static_cast<std::int32_t>(rng.between(1, 50));
    const auto budget = static_cast<std::int32_t>(rng.between(1, 100));
    const Shares shares = share_prefill_budget(remaining, budget);
    for (std::size_t i = 0; i < shares.size(); ++i) ASSERT_TRUE(shares[i] >= 0 && shares[i] <= remaining[i]);
    ASSERT_EQ(std::accumulate(shares.begin(), shares.end(), 0),
              std::min(budget, std::accumulate(remaining.begin(), remaining.end(), 0)));
    ASSERT_GE(shares[0], std::min(remaining[0], budget - budget / 2));
  }
}

CoreOptions good_options() {
  CoreOptions options;
  options.num_blocks = 10;
  options.context_tokens = 100;
  return options;
}

TEST(CoreOptions, EachOptionOutOfRangeIsNamedWithItsValue) {
  EXPECT_TRUE(check_options(good_options()).ok());
  const auto message = [](const std::function<void(CoreOptions&)>& change) {
    CoreOptions options = good_options();
    change(options);
    const Result<void> result = check_options(options);
    return result.ok() ? std::string("accepted") : result.error().message;
  };
  EXPECT_EQ(message([](CoreOptions& o) { o.block_size = 12; }),
            "option block_size is 12; it must be 8, 16, 32, 64 or 128");
  EXPECT_EQ(message([](CoreOptions& o) { o.num_blocks = 0; }), "option num_blocks is 0; at least 1 is needed");
  EXPECT_EQ(message([](CoreOptions& o) { o.num_blocks = (1 << 24) + 1; }),
            "option num_blocks is 16777217; at most 16777216 are supported");
  EXPECT_EQ(message([](CoreOptions& o) { o.context_tokens = -5; }),
            "option context_tokens is -5; at least 1 is needed");
  EXPECT_EQ(message([](CoreOptions& o) { o.token_budget = 0; }), "option token_budget is 0; at least 1 is needed");
  EXPECT_EQ(message([](CoreOptions& o) { o.max_rows = 0; }), "option max_rows is 0; at least 1 is needed");
  EXPECT_EQ(message([](CoreOptions& o) { o.watermark_blocks = -2; }),
            "option watermark_blocks is -2; it must be -1 (default) or at least 0");
  EXPECT_EQ(message([](CoreOptions& o) { o.queue_policy = "lifo"; }),
            "option queue_policy is 'lifo'; there are: fcfs, priority, shortest-prompt, longest-cached-prefix");
  EXPECT_EQ(
      message([](CoreOptions& o) { o.victim_policy = ""; }),
      "option victim_policy is ''; there are: latest-arrived, oldest, lowest-priority, most-blocks, least-progress");
  EXPECT_EQ(message([](CoreOptions& o) { o.layer_groups.clear(); }),
            "option layer_groups has 0 groups; 1 to 128 are supported");
  EXPECT_EQ(message([](CoreOptions& o) { o.layer_groups = {{8}}; }),
            "option layer_groups has a window of 8 in its first group; it must be full");
  EXPECT_EQ(message([](CoreOptions& o) {
              o.layer_groups = {{0}, {-1}};
            }),
            "option layer_groups has a window of -1; it must be at least 0");
  EXPECT_EQ(message([](CoreOptions& o) { o.ageing_steps = 0; }), "option ageing_steps is 0; at least 1 is needed");
}

TEST(RequestState, OnlyTheDrawnEdgesAreLegal) {
  using enum RequestState;
  const std::set<std::pair<RequestState, RequestState>> legal = {{waiting, running},   {waiting, finished},
                                                                 {running, preempted}, {running, finished},
                                                                 {preempted, running}, {preempted, finished}};
  for (RequestState from : {waiting, running, preempted, finished})
    for (RequestState to : {waiting, running, preempted, finished})
      EXPECT_EQ(is_legal_edge(from, to), legal.count({from, to}) == 1) << to_string(from) << " to " << to_string(to);
}

using Orders = std::vector<bool>;

/// Whether the first of each pair comes before the second; that the second does not is checked too.
Orders serves(const char* policy, const std::vector<std::pair<RequestView, RequestView>>& pairs) {
  const auto queue = *make_queue_policy(policy);
  Orders orders;
  for (const auto& [a, b] : pairs) {
    EXPECT_FALSE(queue->serves_before(a, a));
    EXPECT_NE(queue->serves_before(a, b), queue->serves_before(b, a));
    orders.push_back(queue->serves_before(a, b));
  }
  return orders;
}

// Fields: id, arrival, priority, preemptions, prompt tokens, cached tokens.
TEST(QueuePolicy, FcfsServesByArrivalWhateverElse) {
  EXPECT_EQ(serves("fcfs", {{{RequestId{9}, 1, 5, 0, 10, 0}, {RequestId{1}, 2, 0, 2, 1, 9}}}), Orders{true});
}

TEST(QueuePolicy, PriorityServesTheLowerValueFirst) {
  EXPECT_EQ(serves("priority", {{{RequestId{1}, 2, -1, 0, 10, 0}, {RequestId{2}, 1, 0, 2, 1, 9}},
                                {{RequestId{1}, 2, INT32_MIN, 0, 10, 0}, {RequestId{2}, 1, INT32_MAX, 0, 1, 9}},
                                {{RequestId{1}, 1, 0, 0, 10, 0}, {RequestId{2}, 2, 0, 0, 1, 9}}}),
            (Orders{true, true, true}));
}

TEST(QueuePolicy, ShortestPromptServesTheShorterPromptFirst) {
  EXPECT_EQ(serves("shortest-prompt", {{{RequestId{1}, 2, 5, 0, 9, 0}, {RequestId{2}, 1, 0, 2, 10, 9}},
                                       {{RequestId{1}, 1, 5, 0, 9, 0}, {RequestId{2}, 2, 0, 0, 9, 9}}}),
            (Orders{true, true}));
}

TEST(QueuePolicy, LongestCachedPrefixServesTheLongerOneFirst) {
  EXPECT_EQ(serves("longest-cached-prefix", {{{RequestId{1}, 2, 5, 0, 9, 3}, {RequestId{2}, 1, 0, 2, 1, 2}},
                                             {{RequestId{1}, 1, 5, 0, 9, 3}, {RequestId{2}, 2, 0, 0, 1, 3}}}),
            (Orders{true, true}));
}

TEST(QueuePolicy, AmongEqualsThePreemptedComesBeforeTheNeverStarted) {
  const RequestView preempted{RequestId{1}, 2, 0, 1, 10, 4}, never_started{RequestId{2}, 1, 0, 0, 10, 4};
  EXPECT_EQ(serves("priority", {{preempted, never_started}}), Orders{true});
  EXPECT_EQ(serves("shortest-prompt", {{preempted, never_started}}), Orders{true});
  EXPECT_EQ(serves("longest-cached-prefix", {{preempted, never_started}}), Orders{true});
  EXPECT_EQ(serves("fcfs", {{preempted, never_started}}), Orders{false});
}

TEST(QueuePolicy, OnlyLongestCachedPrefixLooksIntoTheCache) {
  for (std::string_view name : queue_policy_names())
    EXPECT_EQ((*make_queue_policy(name))->reads_cached_tokens(), name == "longest-cached-prefix") << name;
}

/// Whether the first yields before the second.
bool yields(const char* policy, const RunningView& a, const RunningView& b) {
  const auto victims = *make_victim_policy(policy);
  EXPECT_FALSE(victims->yields_before(a, a));
  EXPECT_NE(victims->yields_before(a, b), victims->yields_before(b, a));
  return victims->yields_before(a, b);
}

TEST(VictimPolicy, EachYieldsByItsOwnMeasureAndTiesByLaterArrival) {
  const auto view = [](std::uint64_t arrival, std::int32_t priority, std::int64_t blocks, std::int32_t generated,
                       std::int32_t computed) {
    return RunningView{{RequestId{arrival}, arrival, priority, 0, 10, 0}, blocks, generated, computed};
  };
  const RunningView early = view(1, 0, 4, 7, 30), late = view(2, 0, 4, 7, 30);
  EXPECT_TRUE(yields("latest-arrived", late, early));
  EXPECT_TRUE(yields("oldest", early, late));
  EXPECT_TRUE(yields("lowest-priority", late, early));
  EXPECT_TRUE(yields("most-blocks", late, early));
  EXPECT_TRUE(yields("least-progress", late, early));
  EXPECT_TRUE(yields("lowest-priority", view(1, 1, 4, 7, 30), late));
  EXPECT_TRUE(yields("most-blocks", view(1, 0, 5, 7, 30), late));
  EXPECT_TRUE(yields("least-progress", view(1, 0, 4, 6, 90), late));
  EXPECT_TRUE(yields("least-progress", view(1, 0, 4, 7, 29), late));
}

TEST(Policy, EveryNameMakesAPolicy) {
  EXPECT_EQ(queue_policy_names().size(), 4u);
  EXPECT_EQ(victim_policy_names().size(), 5u);
  for (std::string_view name : queue_policy_names()) EXPECT_TRUE(make_queue_policy(name).ok()) << name;
  for (std::string_view name : victim_policy_names()) EXPECT_TRUE(make_victim_policy(name).ok()) << name;
  EXPECT_EQ(queue_policy_names()[0], CoreOptions().queue_policy);
  EXPECT_EQ(victim_policy_names()[0], CoreOptions().victim_policy);
}

BatchPlan some_plan() {
  BatchPlan plan;
  plan.step = 3;
  plan.rows = {{SequenceId{1}, RequestId{2}, 4, 1, 0, 0, 1, 4, true, false}};
  plan.tokens = {TokenId{7}};
  plan.new_blocks = {BlockId{5}};
  plan.copies = {{BlockId{1}, BlockId{2}}};
  plan.table_edits = {{SequenceId{1}, 0, BlockId{2}}};
  plan.group_maps = {{1, 2, 3, BlockId{4}}};
  plan.dropped = {SequenceId{8}};
  return plan;
}

TEST(BatchPlan, TheDigestCoversEveryField) {
  const std::vector<std::function<void(BatchPlan&)>> changes = {
      [](BatchPlan& p) { p.step = 4; },
      [](BatchPlan& p) { p.rows[0].sequence.value = 2; },
      [](BatchPlan& p) { p.rows[0].request.value = 3; },
      [](BatchPlan& p) { p.rows[0].begin = 5; },
      [](BatchPlan& p) { p.rows[0].num_tokens = 2; },
      [](BatchPlan& p) { p.rows[0].token_offset = 1; },
      [](BatchPlan& p) { p.rows[0].new_blocks_offset = 1; },
      [](BatchPlan& p) { p.rows[0].num_new_blocks = 0; },
      [](BatchPlan& p) { p.rows[0].place = 0; },
      [](BatchPlan& p) { p.rows[0].num_proposed = 1; },
      [](BatchPlan& p) { p.rows[0].logits_begin = 0; },
      [](BatchPlan& p) { p.rows[0].samples = false; },
      [](BatchPlan& p) { p.rows[0].is_prefill = true; },
      [](BatchPlan& p) { p.rows.clear(); },
      [](BatchPlan& p) { p.tokens[0].value = 8; },
      [](BatchPlan& p) { p.tokens.clear(); },
      [](BatchPlan& p) { p.new_blocks[0].value = 6; },
      [](BatchPlan& p) { p.copies[0].from.value = 3; },
      [](BatchPlan& p) { p.copies[0].to.value = 3; },
      [](BatchPlan& p) { p.table_edits[0].sequence.value = 2; },
      [](BatchPlan& p) { p.table_edits[0].index = 1; },
      [](BatchPlan& p) { p.table_edits[0].block.value = 3; },
      [](BatchPlan& p) { p.table_edits[0].group = 1; },
      [](BatchPlan& p) { p.group_maps[0].place = 9; },
      [](BatchPlan& p) { p.group_maps[0].index = 9; },
      [](BatchPlan& p) { p.group_maps[0].count = 9; },
      [](BatchPlan& p) { p.group_maps[0].group.value = 9; },
      [](BatchPlan& p) { std::swap(p.group_maps, p.ahead_maps); },
      [](BatchPlan& p) { p.dropped[0].value = 9; },
      [](BatchPlan& p) { p.dropped.clear(); },
      [](BatchPlan& p) {
        p.tiers.stores.push_back({BlockId{2}, FrameId{3}});
      },
      [](BatchPlan& p) {
        p.tiers.stores.push_back({BlockId{3}, FrameId{2}});
      },
      [](BatchPlan& p) {
        p.tiers.loads.push_back({FrameId{2}, BlockId{3}});
      },
      [](BatchPlan& p) {
        p.tiers.loads.push_back({FrameId{3}, BlockId{2}});
      },
      [](BatchPlan& p) {
        p.tiers.writes.push_back({TransferId{1}, BlockId{2}, kNoFrame, {}});
      },
      [](BatchPlan& p) {
        p.tiers.writes.push_back({TransferId{1}, kNullBlock, FrameId{2}, {}});
      },
      [](BatchPlan& p) {
        p.tiers.writes.push_back({TransferId{2}, BlockId{2}, kNoFrame, {}});
      },
      [](BatchPlan& p) {
        p.tiers.reads.push_back({TransferId{1}, FrameId{2}, {}});
      },
      [](BatchPlan& p) {
        p.tiers.reads.push_back({TransferId{1}, FrameId{2}, {{}, "salt", 0, 0}});
      },
      [](BatchPlan& p) {
        p.tiers.reads.push_back({TransferId{1}, FrameId{2}, {{}, "", 0, 1}});
      },
      [](BatchPlan& p) { p.tiers.tokens.push_back(TokenId{1}); },
  };
  std::set<std::uint64_t> digests = {some_plan().digest()};
  for (const auto& change : changes) {
    BatchPlan plan = some_plan();
    change(plan);
    EXPECT_TRUE(digests.insert(plan.digest()).second);
  }
  EXPECT_EQ(some_plan().digest(), some_plan().digest());
  EXPECT_EQ(some_plan().digest(), 15419591216393558965u) << "the digest of this plan is the same on every machine";
}

TEST(BatchPlan, ClearEmptiesEverything) {
  BatchPlan plan = some_plan();
  plan.clear();
  EXPECT_EQ(plan.digest(), BatchPlan().digest());
}

}  // namespace
}  // namespace quire
