#include "quire/kv/vattention_kv_manager.h"

#include <gtest/gtest.h>

#include "quire/kv/vattention_checker_test.h"

namespace quire {
namespace {

SequenceId seq(std::uint64_t id) { return SequenceId{id}; }

/// A tile is three groups and a half.
VAttentionOptions options_of(std::int32_t num_groups, std::int32_t num_places = 8) {
  VAttentionOptions options;
  options.geometry = {7, 2, 1};
  options.num_groups = num_groups;
  options.num_places = num_places;
  options.context_tokens = 4096;
  return options;
}

/// A tile is a group.
VAttentionOptions simple_options(std::int32_t num_groups, std::int32_t num_places = 8) {
  VAttentionOptions options = options_of(num_groups, num_places);
  options.geometry = {1, 1, 1};
  return options;
}

void expect_fine(const VAttentionChecker& checker) { EXPECT_EQ(checker.difference().value_or(""), ""); }

// -- the tables of the paper --

struct Model {
  const char* name;
  std::int64_t layers, heads, head_dim;
};
constexpr Model kYi6B{"Yi-6B", 32, 4, 128}, kLlama8B{"Llama-3-8B", 32, 8, 128}, kYi34B{"Yi-34B", 60, 8, 128};
constexpr std::int64_t kKiB = 1024, kMiB = 1024 * 1024;

/// One tensor for each of K and V of each layer, f16, split over so many workers.
PageGroupGeometry per_layer(const Model& model, std::int64_t group_bytes, std::int64_t workers) {
  return {kKvTileTokens * model.heads / workers * model.head_dim * 2, group_bytes, 2 * model.layers};
}
PageGroupGeometry sliced(const Model& model, std::int64_t group_bytes, std::int64_t workers) {
  // One of K and one of V, as in the paper.
  return {kKvTileTokens * model.layers * (model.heads / workers) * model.head_dim * 2, group_bytes, 2};
}

TEST(PageGroups, TokensAPageGroupAreThoseOfThePaper) {
  const std::int64_t sizes[] = {64 * kKiB, 128 * kKiB, 256 * kKiB, 2 * kMiB};
  const auto expect = [&](const Model& model, std::int64_t workers, std::vector<std::int64_t> tokens) {
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(per_layer(model, sizes[i], workers).tokens_per_group(), tokens[i]) << model.name;
  };
  expect(kYi6B, 1, {64, 128, 256, 2048});
  expect(kYi6B, 2, {128, 256, 512, 4096});
  expect(kLlama8B, 1, {32, 64, 128, 1024});
  expect(kLlama8B, 2, {64, 128, 256, 2048});
  expect(kYi34B, 1, {32, 64, 128, 1024});
  expect(kYi34B, 2, {64, 128, 256, 2048});
}

TEST(PageGroups, TheWasteOfARequestOverAllWorkersIsThatOfThePaper) {
  const std::int64_t sizes[] = {64 * kKiB, 128 * kKiB, 256 * kKiB, 2 * kMiB};
  const auto expect = [&](const Model& model, std::int64_t workers, std::vector<double> megabytes) {
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(static_cast<double>(workers * per_layer(model, sizes[i], workers).growth_bytes()) / kMiB, megabytes[i])
          << model.name;
  };
  for (const Model& model : {kYi6B, kLlama8B}) {
    expect(model, 1, {4, 8, 16, 128});
    expect(model, 2, {8, 16, 32, 256});
  }
  expect(kYi34B, 1, {7.5, 15, 30, 240});
  expect(kYi34B, 2, {15, 30, 60, 480});
}

TEST(PageGroups, TensorSlicingHoldsTheTokensOfThePaperInTwoMegabytes) {
  const auto tokens = [](const Model& model, std::int64_t workers) {
    return sliced(model, 2 * kMiB, workers).tokens_per_group();
  };
  EXPECT_EQ(tokens(kYi6B, 1), 64);
  EXPECT_EQ(tokens(kYi6B, 2), 128);
  EXPECT_EQ(tokens(kLlama8B, 1), 32);
  EXPECT_EQ(tokens(kLlama8B, 2), 64);
  EXPECT_EQ(tokens(kYi34B, 1), 17);
  EXPECT_EQ(tokens(kYi34B, 2), 34);
}

TEST(PageGroups, GroupsNeedNotDivideByTokens) {
  const PageGroupGeometry smol{64 * 3 * 64 * 2, 64 * kKiB, 60};  // SmolLM2: three heads of 64
  EXPECT_EQ(smol.tokens_per_group(), 170);
  EXPECT_EQ(smol.groups_for(1), 1);
  EXPECT_EQ(smol.groups_for(128), 1);
  EXPECT_EQ(smol.groups_for(129), 2) << "the third tile straddles";
  EXPECT_EQ(smol.tiles_in(1), 2);
  EXPECT_EQ(smol.first_written(128), 0);
  EXPECT_EQ(smol.first_written(192), 1);
}

// -- growing --

TEST(VAttention, ASequenceGrowsByTilesAndTakesNeighboursInThePool) {
  VAttentionChecker checker(options_of(40), false);
  checker.run_plan({{seq(1), 10}});
  EXPECT_EQ(checker.manager().capacity().used_blocks(), 4);
  checker.run_plan({{seq(1), 54}});
  EXPECT_EQ(checker.manager().capacity().used_blocks(), 4);
  checker.run_plan({{seq(1), 1}});
  EXPECT_EQ(checker.manager().capacity().used_blocks(), 7);
  EXPECT_EQ(checker.manager().table().num_runs(), 1) << "one mapping for the kernel";
  expect_fine(checker);
}

TEST(VAttention, DecodesAreMappedAheadOfNeedAndThatMemoryStillCountsAsFree) {
  VAttentionChecker checker(simple_options(20), false);
  checker.run_plan({{seq(1), 50}});
  EXPECT_TRUE(checker.changes().ahead_maps.empty()) << "14 tokens are left";
  checker.run_plan({{seq(1), 5}});
  ASSERT_EQ(checker.changes().ahead_maps.size(), 1u) << "9 tokens are left";
  EXPECT_EQ(checker.manager().capacity().used_blocks(), 1);
  EXPECT_EQ(checker.manager().group_usage().spare, 1);
  checker.run_plan({{seq(1), 10}});
  EXPECT_TRUE(checker.changes().group_maps.empty()) << "it was there";
  EXPECT_EQ(checker.manager().capacity().used_blocks(), 2);
  expect_fine(checker);
}

TEST(VAttention, AtMostTwoSequencesAStepAreMappedAhead) {
  VAttentionChecker checker(simple_options(40), false);
  std::vector<VAttentionChecker::Operation> operations;
  for (std::uint64_t i = 1; i <= 5; ++i) operations.push_back({seq(i), 60});
  checker.run_plan(operations);
  EXPECT_EQ(checker.changes().ahead_maps.size(), 2u);
  expect_fine(checker);
}

TEST(VAttention, NothingIsMappedAheadOutOfMemoryThatEndedSequencesLeft) {
  VAttentionChecker checker(simple_options(3), false);
  checker.run_plan({{seq(1), 100}});
  checker.release(seq(1));
  checker.run_plan({{seq(2), 60}});  // takes the place with two groups
  checker.run_plan({{seq(3), 60}});  // the last free group
  EXPECT_TRUE(checker.changes().ahead_maps.empty());
  expect_fine(checker);
}

TEST(VAttention, MemoryMappedAheadIsGivenToWhoeverNeedsIt) {
  VAttentionChecker checker(simple_options(2), false);
  checker.run_plan({{seq(1), 60}});
  EXPECT_EQ(checker.manager().group_usage().spare, 1);
  checker.run_plan({{seq(2), 60}});
  EXPECT_TRUE(checker.has(seq(2)));
  EXPECT_EQ(checker.manager().capacity().free_blocks, 0);
  checker.run_plan({{seq(1), 10}});
  EXPECT_EQ(checker.num_tokens(seq(1)), 60) << "there is no room";
  expect_fine(checker);
}

// -- deferred reclamation --

TEST(VAttention, ANewSequenceFindsItsMemoryMappedWhereAnotherHasEnded) {
  VAttentionChecker checker(simple_options(20), false);
  checker.run_plan({{seq(1), 300}});
  checker.release(seq(1));
  EXPECT_EQ(checker.manager().capacity().used_blocks(), 0);
  EXPECT_EQ(checker.manager().group_usage().spare, 5);
  checker.run_plan({{seq(2), 200}});
  EXPECT_TRUE(checker.changes().group_maps.empty());
  expect_fine(checker);
}

/// Ended sequences of 5, 2, 9 and 3 groups, in this order of places; then one of so many tokens. The place it gets.
std::int32_t place_taken(std::int64_t num_tokens) {
  VAttentionChecker checker(simple_options(40, 4), false);
  checker.run_plan({{seq(1), 5 * 64 - 20}, {seq(2), 2 * 64 - 20}, {seq(3), 9 * 64 - 20}, {seq(4), 3 * 64 - 20}});
  std::vector<std::int32_t> places;
  for (std::uint64_t i = 1; i <= 4; ++i) places.push_back(checker.manager().place_of(seq(i)));
  EXPECT_EQ(places, (std::vector<std::int32_t>{0, 1, 2, 3}));
  for (std::uint64_t i = 1; i <= 4; ++i) checker.release(seq(i));
  checker.run_plan({{seq(5), num_tokens}});
  expect_fine(checker);
  return checker.manager().place_of(seq(5));
}

TEST(VAttention, TheBestFitIsTheSmallestThatIsLargeEnoughWhereverItStands) {
  EXPECT_EQ(place_taken(1 * 64), 1);
  EXPECT_EQ(place_taken(2 * 64), 1) << "the first is large enough, a later one fits better";
  EXPECT_EQ(place_taken(3 * 64), 3);
  EXPECT_EQ(place_taken(4 * 64), 0);
  EXPECT_EQ(place_taken(6 * 64), 2) << "a first one that is too small does not keep a later one away";
}

TEST(VAttention, IfNoneIsLargeEnoughTheLargestIsTaken) { EXPECT_EQ(place_taken(12 * 64), 2); }

TEST(VAttention, MemoryIsReclaimedOnlyWhenThePoolRunsShortAndFromTheLongestEnded) {
  VAttentionChecker checker(simple_options(10), false);
  checker.run_plan({{seq(1), 3 * 64 - 20}, {seq(2), 3 * 64 - 20}, {seq(3), 20}});
  const std::int32_t first = checker.manager().place_of(seq(1)), second = checker.manager().place_of(seq(2));
  checker.release(seq(2));
  checker.release(seq(1));
  checker.run_plan({{seq(3), 3 * 64}});  // three are free
  EXPECT_EQ(checker.manager().table().size(second), 3);
  checker.run_plan({{seq(3), 64}});
  EXPECT_EQ(checker.manager().table().size(second), 2) << "from its end";
  EXPECT_EQ(checker.manager().table().size(first), 3);
  expect_fine(checker);
}

// -- sharing --

TEST(VAttention, AForkTakesNoMemoryAndTheFirstToWriteGetsACopyOfTheGroupsItWritesTo) {
  VAttentionChecker checker(options_of(40), false);
  checker.run_plan({{seq(1), 100}});  // seven groups: the second tile begins in the middle of the fourth
  checker.fork(seq(1), seq(2), 100);
  EXPECT_EQ(checker.manager().capacity().used_blocks(), 7);
  checker.run_plan({{seq(2), 1}});
  EXPECT_EQ(checker.changes().copies.size(), 4u);
  EXPECT_EQ(checker.manager().capacity().used_blocks(), 11);
  checker.run_plan({{seq(1), 1}});
  EXPECT_TRUE(checker.changes().copies.empty()) << "the last one left writes where it is";
  expect_fine(checker);
}

TEST(VAttention, AForkAtATileThatEndsWithAGroupCopiesNothing) {
  VAttentionChecker checker(options_of(40), false);
  checker.run_plan({{seq(1), 128}});
  checker.fork(seq(1), seq(2), 128);
  checker.run_plan({{seq(1), 1}, {seq(2), 1}});
  EXPECT_TRUE(checker.changes().copies.empty());
  expect_fine(checker);
}

TEST(VAttention, AHitAliasesWholeGroupsAndCopiesTheOneThatIsPartlyShared) {
  VAttentionChecker checker(options_of(60), true);
  checker.run_plan({{seq(1), 200}});
  checker.run_plan({{seq(2), 200, seq(1), 70}});  // one tile: three groups and a half
  EXPECT_EQ(checker.num_cached(), 64);
  EXPECT_EQ(checker.changes().copies.size(), 1u);
  const auto first = checker.manager().table().groups(checker.manager().place_of(seq(1)));
  const auto second = checker.manager().table().groups(checker.manager().place_of(seq(2)));
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 3, second.begin()));
  EXPECT_NE(first[3], second[3]);
  EXPECT_EQ(checker.manager().usage().table_entries - checker.manager().usage().used_blocks, 3) << "saved";
  expect_fine(checker);
}

TEST(VAttention, ASequenceThatGoesOnWhereAnotherHasEndedTakesItsPlaceAndMovesNothing) {
  VAttentionChecker checker(options_of(60), true);
  checker.run_plan({{seq(1), 200}});
  const std::int32_t place = checker.manager().place_of(seq(1));
  checker.release(seq(1));
  checker.run_plan({{seq(2), 210, seq(1), 200}});
  EXPECT_EQ(checker.num_cached(), 192);
  EXPECT_EQ(checker.manager().place_of(seq(2)), place);
  EXPECT_TRUE(checker.changes().copies.empty());
  EXPECT_TRUE(checker.changes().group_maps.empty());
  expect_fine(checker);
}

TEST(VAttention, TwoThatShareOnePrefixOfAnEndedSequenceInOnePlanBothReadIt) {
  VAttentionChecker checker(options_of(60), true);
  checker.run_plan({{seq(1), 140}});
  checker.release(seq(1));
  checker.run_plan({{seq(2), 150, seq(1), 140}, {seq(3), 150, seq(1), 140}});
  EXPECT_EQ(checker.num_cached(), 256);
  expect_fine(checker);
}

TEST(VAttention, WhatAStartTakesOverTheNextOneOfThePlanDoesNotShare) {
  VAttentionChecker checker(options_of(40), true);
  checker.run_plan({{seq(1), 128}});  // tokens 0 to 127: two tiles, the fourth group in both
  checker.release(seq(1));
  std::vector<TokenId> longer, other;
  for (int i = 0; i < 129; ++i) longer.push_back(TokenId{i});
  for (int i = 0; i < 70; ++i) other.push_back(TokenId{i < 64 ? i : 1000 + i});
  VAttentionKvManager& manager = checker.manager();
  const auto starts_behind = [&](bool takes_over) {
    KeyChain chain, second_chain;
    manager.begin_plan();
    PrefixHit hit = manager.match(chain, other, 69);
    EXPECT_EQ(hit.num_tokens, 64);
    EXPECT_EQ(hit.copy_from.size(), 1u);
    if (takes_over) hit.take_less(kKvTileTokens);
    EXPECT_TRUE(manager.plan_start(seq(2), hit, 70));
    const PrefixHit second = manager.match(second_chain, longer, 128);
    EXPECT_EQ(second.num_tokens, 128);
    const bool fits = manager.plan_start(seq(3), second, 129);
    manager.begin_plan();
    return fits;
  };
  EXPECT_TRUE(starts_behind(false));
  EXPECT_FALSE(starts_behind(true)) << "the fourth group will be written";
  expect_fine(checker);
}

TEST(VAttention, WhereMemoryIsShortAPartlySharedGroupIsTakenOverAndNobodyElseHasItAnyMore) {
  VAttentionChecker checker(options_of(7), true);
  checker.run_plan({{seq(1), 128}});
  const std::int32_t before = checker.manager().place_of(seq(1));
  checker.release(seq(1));
  checker.run_plan({{seq(2), 70, seq(1), 64}});  // three groups to share, four of its own, and no fifth to copy to
  EXPECT_EQ(checker.num_cached(), 64);
  EXPECT_TRUE(checker.changes().copies.empty());
  EXPECT_NE(checker.manager().place_of(seq(2)), before) << "more than its content was found there";
  EXPECT_EQ(checker.manager().table().size(before), 3);
  expect_fine(checker);
}

TEST(VAttention, ContentStaysFindableWhileThereAreOtherPlaces) {
  VAttentionChecker checker(options_of(60), true);
  checker.run_plan({{seq(1), 140}});
  checker.release(seq(1));
  checker.run_plan({{seq(2), 140}});  // foreign, of the same size: takes an empty place
  checker.run_plan({{seq(3), 140, seq(1), 140}});
  EXPECT_EQ(checker.num_cached(), 128);
  expect_fine(checker);
}

TEST(VAttention, ContentIsGivenUpFromItsEndWhenMemoryRunsShort) {
  VAttentionChecker checker(simple_options(6), true);
  checker.run_plan({{seq(1), 3 * 64}});
  checker.release(seq(1));
  checker.run_plan({{seq(2), 4 * 64}});
  checker.release(seq(2));
  EXPECT_GT(checker.manager().cache_counters().evicted_blocks, 0u);
  checker.run_plan({{seq(3), 3 * 64, seq(1), 3 * 64}});
  EXPECT_EQ(checker.num_cached(), 2 * 64) << "the third tile was given up";
  expect_fine(checker);
}

TEST(VAttention, OtherSaltsAndOtherTokensFindNothing) {
  VAttentionKvManager manager(options_of(20), CacheIdentity{});
  std::vector<TokenId> tokens;
  for (int i = 0; i < 130; ++i) tokens.push_back(TokenId{i});
  KvChanges changes;
  std::vector<KvReservation> reservations;
  ASSERT_TRUE(manager.plan_reserve(seq(1), 130));
  manager.commit_plan(changes, reservations);
  KeyChain chain;
  manager.publish(seq(1), chain, tokens);
  KeyChain same, salted{.salt = "other", .root = {}, .has_root = false, .keys = {}}, changed;
  EXPECT_EQ(manager.match(same, tokens, 129).num_tokens, 128);
  EXPECT_EQ(manager.match(same, tokens, 127).num_tokens, 64) << "whole tiles within the limit";
  EXPECT_EQ(manager.match(salted, tokens, 129).num_tokens, 0);
  tokens[3].value = 1000;
  EXPECT_EQ(manager.match(changed, tokens, 129).num_tokens, 0);
}

/// Every message has one hash.
class CollidingHasher final : public BlockHasher {
 public:
  BlockKey hash(std::span<const std::byte>) const override { return {}; }
};

TEST(VAttention, AHashThatAlwaysCollidesCostsHitsAndNeverTruth) {
  const CollidingHasher hasher;
  VAttentionKvManager manager(options_of(60), CacheIdentity{&hasher, {}});
  std::vector<TokenId> first(200, TokenId{1}), second(200, TokenId{2});
  for (std::uint64_t i = 1; i <= 2; ++i) {
    KvChanges changes;
    std::vector<KvReservation> reservations;
    ASSERT_TRUE(manager.plan_reserve(seq(i), 200));
    manager.commit_plan(changes, reservations);
    KeyChain chain;
    manager.publish(seq(i), chain, i == 1 ? first : second);
  }
  KeyChain chain;
  const PrefixHit hit = manager.match(chain, second, 199);
  EXPECT_EQ(hit.num_tokens, 192);
  EXPECT_EQ(hit.place, manager.place_of(seq(2)));
  KeyChain salted{.salt = "other", .root = {}, .has_root = false, .keys = {}};
  EXPECT_EQ(manager.match(salted, second, 199).num_tokens, 0);
  EXPECT_EQ(manager.validate(), std::nullopt);
}

// -- the limit on mappings --

TEST(VAttention, ThePoolIsBoundedByTheMappingsItMayTake) {
  VAttentionOptions options = options_of(1);
  options.max_mappings = 100;
  EXPECT_EQ(most_groups(options), 100 - 8 - 1);
  options.geometry.num_tensors = 4;
  EXPECT_EQ(most_groups(options), 25 - 8 - 1);
}

TEST(VAttention, BesideAliasesAReservationMayRunShortOfMappingsBeforeGroups) {
  VAttentionOptions options = simple_options(12, 4);
  options.max_mappings = 12 + 4 + 1;
  VAttentionChecker checker(options, true);
  VAttentionKvManager& manager = checker.manager();
  checker.run_plan({{seq(1), 4 * 64}});
  checker.run_plan({{seq(2), 4 * 64, seq(1), 4 * 64}});
  ASSERT_EQ(checker.num_cached(), 3 * 64);
  manager.begin_plan();
  EXPECT_TRUE(manager.plan_reserve(seq(1), 8 * 64));
  EXPECT_EQ(manager.plan_free_blocks(), 3);
  EXPECT_FALSE(manager.plan_reserve(seq(2), 5 * 64)) << "with it the two would have 13 entries";
  checker.run_plan({{seq(1), 4 * 64}, {seq(2), 64}});
  EXPECT_EQ(checker.num_tokens(seq(1)), 8 * 64);
  EXPECT_EQ(checker.num_tokens(seq(2)), 4 * 64);
  expect_fine(checker);
  checker.release(seq(1));
  checker.run_plan({{seq(2), 64}});
  EXPECT_EQ(checker.num_tokens(seq(2)), 5 * 64);
  expect_fine(checker);
}

TEST(VAttention, SharingIsRefusedWhereItWouldTakeTooManyMappings) {
  VAttentionOptions options = simple_options(12, 4);
  options.max_mappings = 12 + 4 + 1;
  VAttentionChecker checker(options, true);
  // Two that grow in turn, without room between them: no two groups of one are neighbours.
  checker.run_plan({{seq(1), 64}, {seq(2), 64}});
  for (int i = 0; i < 4; ++i) checker.run_plan({{seq(1), 64}, {seq(2), 64}});
  EXPECT_LE(checker.manager().group_usage().mappings, options.max_mappings);
  checker.run_plan({{seq(3), 5 * 64, seq(1), 5 * 64}});
  checker.run_plan({{seq(4), 5 * 64, seq(1), 5 * 64}});
  EXPECT_LE(checker.manager().group_usage().mappings, options.max_mappings);
  expect_fine(checker);
}

}  // namespace
}  // namespace quire
