// Random loads over tiny pools with everything that can happen to a request, many seeds; see shadow_run_test.h for what
// is checked. A seed that ever failed goes into kKeptSeeds.

#include <gtest/gtest.h>

#include "quire/base/rng.h"
#include "quire/core/shadow_run_test.h"
#include "quire/kv/cache_checker_test.h"
#include "quire/sched/policy.h"

namespace quire {
namespace {

constexpr std::uint64_t kKeptSeeds[] = {1};

/// What a seed switches on.
struct Swarm {
  bool cancels, finishes, failures, stop_tokens, prompt_logits, open_ended, bursts;
  bool cache, shared_prefixes, salts, collisions, priorities;
  bool branches, beams;
  explicit Swarm(Rng& rng)
      : cancels(rng.chance(0.5)),
        finishes(rng.chance(0.3)),
        failures(rng.chance(0.3)),
        stop_tokens(rng.chance(0.5)),
        prompt_logits(rng.chance(0.3)),
        open_ended(rng.chance(0.3)),
        bursts(rng.chance(0.5)),
        cache(rng.chance(0.75)),
        shared_prefixes(rng.chance(0.8)),
        salts(rng.chance(0.3)),
        collisions(rng.chance(0.15)),
        priorities(rng.chance(0.5)),
        branches(rng.chance(0.5)),
        beams(rng.chance(0.4)) {}
};

std::string_view any_of(Rng& rng, std::span<const std::string_view> names) {
  return names[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(names.size()) - 1))];
}

CoreOptions random_options(Rng& rng) {
  constexpr std::int32_t kBlockSizes[] = {8, 8, 8, 16, 16, 32, 64, 128};
  CoreOptions options;
  options.block_size = kBlockSizes[rng.between(0, 7)];
  options.num_blocks = static_cast<std::int32_t>(rng.between(3, options.block_size > 32 ? 6 : 40));
  options.context_tokens = static_cast<std::int32_t>(
      rng.chance(0.5) ? options.pool_tokens() : rng.between(options.block_size, 2 * options.pool_tokens()));
  options.token_budget = static_cast<std::int32_t>(rng.chance(0.3) ? rng.between(1, 8) : rng.between(4, 96));
  options.max_rows = static_cast<std::int32_t>(rng.chance(0.5) ? rng.between(1, 4) : rng.between(4, 24));
  options.watermark_blocks = static_cast<std::int32_t>(rng.between(-1, 3));
  options.ageing_steps = static_cast<std::int32_t>(rng.chance(0.5) ? rng.between(1, 60) : 1024);
  options.queue_policy = any_of(rng, queue_policy_names());
  options.victim_policy = any_of(rng, victim_policy_names());
  return options;
}

/// Near block boundaries as often as not.
std::int32_t random_length(Rng& rng, const CoreOptions& options, std::int64_t limit) {
  std::int64_t length = rng.between(1, limit);
  if (rng.chance(0.5)) length = length / options.block_size * options.block_size + rng.between(-1, 1);
  return static_cast<std::int32_t>(std::min(std::max<std::int64_t>(length, 1), limit));
}

void make_search(Rng& rng, CoreRequest& request) {
  constexpr double kPenalties[] = {1, 1, 0, 0.5, 2, -1};
  BeamParams& beams = request.beams.emplace();
  beams.width = static_cast<std::int32_t>(rng.between(1, 5));
  beams.num_returned = static_cast<std::int32_t>(rng.between(1, beams.width));
  beams.length_penalty = kPenalties[rng.between(0, 5)];
  beams.early_stopping = static_cast<EarlyStopping>(rng.between(0, 2));
  request.num_branches = 1;
  if (request.max_tokens.value_or(1) == 0) request.max_tokens = 1;
  if (request.max_tokens && rng.chance(0.8)) request.max_tokens = std::min(*request.max_tokens, 20);
}

CoreRequest random_request(Rng& rng, const Swarm& swarm, const CoreOptions& options, std::uint64_t id,
                           std::int32_t vocabulary) {
  const std::int64_t room = std::min<std::int64_t>(options.context_tokens, options.pool_tokens());
  const std::int64_t limit = rng.chance(0.2) ? room : std::max<std::int64_t>(1, room / rng.between(2, 6));
  CoreRequest request;
  request.id = RequestId{id};
  request.prompt = make_prompt(request.id, random_length(rng, options, limit), vocabulary);
  if (!swarm.open_ended || rng.chance(0.8))
    request.max_tokens = rng.chance(0.1) ? 0 : random_length(rng, options, std::min<std::int64_t>(limit, 60));
  if (swarm.stop_tokens && rng.chance(0.7)) {
    for (std::int64_t i = rng.between(1, 3); i > 0; --i)
      request.stop_tokens.push_back(TokenId{static_cast<std::int32_t>(rng.between(0, vocabulary - 1))});
    if (rng.chance(0.3)) request.min_tokens = static_cast<std::int32_t>(rng.between(0, 12));
  }
  if (swarm.prompt_logits && rng.chance(0.5))
    request.logits_from =
        static_cast<std::int32_t>(rng.between(0, static_cast<std::int64_t>(request.prompt.size()) - 1));
  if (swarm.branches && rng.chance(0.5)) request.num_branches = static_cast<std::int32_t>(rng.between(2, 5));
  if (swarm.beams && rng.chance(0.4)) make_search(rng, request);
  return request;
}

/// A beginning that other requests have too: of a document, or of an earlier request with its answer (a conversation).
void share_prefix(Rng& rng, const ShadowRun& run, std::int32_t vocabulary, CoreRequest& request) {
  const auto length = static_cast<std::int32_t>(request.prompt.size());
  std::vector<TokenId> shared =
      make_prompt(RequestId{static_cast<std::uint64_t>(1000 + rng.between(0, 2))}, length, vocabulary);
  if (!run.answers().empty() && rng.chance(0.4)) {
    auto earlier = run.answers().begin();
    std::advance(earlier, rng.between(0, static_cast<std::int64_t>(run.answers().size()) - 1));
    shared = earlier->second.request.prompt;
    shared.insert(shared.end(), earlier->second.tokens.begin(), earlier->second.tokens.end());
  }
  const std::int64_t limit = std::min<std::int64_t>(length, static_cast<std::int64_t>(shared.size()));
  const std::int64_t count = rng.chance(0.3) ? limit : rng.between(0, limit);
  std::copy(shared.begin(), shared.begin() + count, request.prompt.begin());
}

void inject(Rng& rng, const Swarm& swarm, ShadowRun& run, std::uint64_t num_submitted) {
  const RequestId target{static_cast<std::uint64_t>(rng.between(1, static_cast<std::int64_t>(num_submitted) + 2))};
  if (swarm.cancels && rng.chance(0.08)) {
    run.cancel(target);
    if (rng.chance(0.3)) {
      EXPECT_FALSE(run.cancel(target)) << "a double cancel ended a request twice";
    }
  }
  if (swarm.finishes && rng.chance(0.05)) run.finish(target, static_cast<std::int32_t>(rng.between(0, 3)));
  if (swarm.failures && rng.chance(0.05)) run.fail_next_row(target, static_cast<std::int32_t>(rng.between(0, 3)));
}

struct Totals {
  std::uint64_t preemptions = 0, refused = 0, exempt = 0, hits = 0, evictions = 0, collisions = 0, aged = 0;
};

struct Policies {
  std::string_view queue, victim;
};

/// Of the seed's choice unless given.
void run_seed(std::uint64_t seed, Totals& totals, std::optional<Policies> policies = std::nullopt) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  const Swarm swarm(rng);
  CoreOptions options = random_options(rng);
  options.prefix_cache = swarm.cache;
  if (policies) {
    options.queue_policy = policies->queue;
    options.victim_policy = policies->victim;
  }
  constexpr std::int32_t kVocabulary = 40;
  const CollidingHasher colliding;
  ShadowRun run(options, kVocabulary, swarm.collisions ? &colliding : nullptr);
  const std::int64_t num_requests = rng.between(1, 24);
  std::uint64_t num_submitted = 0;
  while (num_submitted < static_cast<std::uint64_t>(num_requests) && !run.problem()) {
    for (std::int64_t burst = swarm.bursts ? rng.between(0, 8) : rng.chance(0.3); burst > 0; --burst) {
      CoreRequest request = random_request(rng, swarm, options, ++num_submitted, kVocabulary);
      if (swarm.shared_prefixes) share_prefix(rng, run, kVocabulary, request);
      if (swarm.priorities) request.priority = static_cast<std::int32_t>(rng.between(-2, 2));
      if (swarm.salts && rng.chance(0.5)) request.salt = rng.chance(0.5) ? "a" : "b";
      static_cast<void>(run.submit(request));
      if (rng.chance(0.1)) {
        EXPECT_TRUE(run.submit(request).has_value()) << "a duplicate id was accepted";
      }
    }
    inject(rng, swarm, run, num_submitted);
    if (run.core().has_work()) run.step();
  }
  for (int i = 0; i < 20 && run.core().has_work() && !run.problem(); ++i) {
    inject(rng, swarm, run, num_submitted);
    if (run.core().has_work()) run.step();
  }
  run.run_to_end();  // no more faults: everything ends within the bound
  if (!run.problem()) run.check_end();
  ASSERT_EQ(run.problem(), std::nullopt);
  totals.preemptions += run.core().counters().preemptions;
  totals.refused += run.core().counters().refused;
  totals.hits += run.core().counters().prefix_hits;
  totals.evictions += run.core().kv().cache_counters().evicted_blocks;
  totals.collisions += run.core().kv().cache_counters().collisions;
  for (const auto& [id, answer] : run.answers()) {
    totals.exempt += answer.num_preemptions == 3;
    totals.aged += answer.start_due_at.has_value();
  }
}

void run_seeds(std::uint64_t first, std::uint64_t count) {
  Totals totals;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    run_seed(seed, totals);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(totals.preemptions, count / 10) << "the loads are too light to mean anything";
  EXPECT_GT(totals.exempt, 0u) << "no request ever became exempt";
  EXPECT_GT(totals.aged, count / 10) << "hardly anybody waited long enough to age";
  EXPECT_GT(totals.refused, 0u);
  EXPECT_GT(totals.hits, 10 * count);
  EXPECT_GT(totals.evictions, count);
  EXPECT_GT(totals.collisions, 0u);
}

TEST(ShadowKv, EveryRequestGetsTheTokensItGetsAloneOverThousandsOfSeeds) { run_seeds(1000, 3000); }

TEST(ShadowKv, SoItIsUnderEveryCombinationOfPolicies) {
  for (std::string_view queue : queue_policy_names())
    for (std::string_view victim : victim_policy_names()) {
      SCOPED_TRACE(testing::Message() << queue << ", " << victim);
      Totals totals;
      for (std::uint64_t seed = 1; seed <= 25; ++seed) {
        run_seed(seed, totals, Policies{queue, victim});
        if (testing::Test::HasFatalFailure()) return;
      }
      EXPECT_GT(totals.preemptions, 0u);
      EXPECT_GT(totals.aged, 0u);
    }
}

TEST(ShadowKv, SeedsThatOnceFailedPass) {
  Totals totals;
  for (std::uint64_t seed : kKeptSeeds) run_seed(seed, totals);
}

}  // namespace
}  // namespace quire
