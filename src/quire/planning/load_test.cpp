#include "quire/planning/load.h"

#include <gtest/gtest.h>

#include <set>

#include "quire/base/cat.h"

namespace quire::planning {
namespace {

TEST(Load, NamedOnesAreEmbedded) {
  for (const char* name : {"chat", "conversation", "code", "batch"}) {
    const auto load = open_load(name, 1);
    ASSERT_TRUE(load.ok()) << load.error().message;
    EXPECT_EQ(load->name, name);
    EXPECT_GT(load->requests.size(), 1000u);
    EXPECT_FALSE(load->description.empty());
    EXPECT_FALSE(load->default_limits.empty());
  }
}

TEST(Load, IsDecidedByItsSeed) {
  EXPECT_EQ(open_load("chat", 1)->requests, open_load("chat", 1)->requests);
  EXPECT_NE(open_load("chat", 1)->requests, open_load("chat", 2)->requests);
}

TEST(Load, KeepsTheOrderOfWhatSharesPrefixes) {
  EXPECT_EQ(open_load("conversation", 1)->requests, open_load("conversation", 2)->requests);
}

TEST(Load, TwoDistributionsMakeOne) {
  const auto load = open_load("uniform:50,60/fixed:7", 1);
  ASSERT_TRUE(load.ok()) << load.error().message;
  for (const RequestSpec& request : load->requests) {
    EXPECT_GE(request.prompt_tokens, 50);
    EXPECT_LE(request.prompt_tokens, 60);
    EXPECT_EQ(request.output_tokens, 7);
  }
}

TEST(Load, AnUnknownNameIsRefusedWithAllThatThereAre) {
  const auto load = open_load("chatter", 1);
  ASSERT_FALSE(load.ok());
  for (const char* word : {"chatter", "conversation", "code", "batch", "trace file"})
    EXPECT_NE(load.error().message.find(word), std::string::npos) << load.error().message;
  EXPECT_NE(open_load("no/such.csv", 1).error().message.find("no/such.csv"), std::string::npos);
  EXPECT_NE(open_load("normal:1,2/fixed:3", 1).error().message.find("normal"), std::string::npos);
}

TEST(Load, DropsWhatIsTooLongAndSaysHowMany) {
  Load load{.name = "three", .description = "", .requests = {}, .default_limits = ""};
  for (std::int32_t n : {10, 20, 30}) load.requests.push_back({.prompt_tokens = n, .output_tokens = 5});
  ASSERT_TRUE(drop_longer(load, 25).ok());
  EXPECT_EQ(load.requests.size(), 2u);
  EXPECT_EQ(load.num_left_out, 1u);
  const auto none = drop_longer(load, 14);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("the shortest needs 15"), std::string::npos) << none.error().message;
}

TEST(Load, SharedPrefixIsInFrontOfEveryPrompt) {
  Load load = *open_load("fixed:100/fixed:5", 1);
  ASSERT_TRUE(add_shared_prefix(load, 64).ok());
  EXPECT_EQ(load.requests[0].prompt_tokens, 164);
  EXPECT_EQ(load.requests[0].prefix_blocks, (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(load.requests[0].prefix_blocks, load.requests[1].prefix_blocks);
  Load shared = *open_load("conversation", 1);
  EXPECT_FALSE(add_shared_prefix(shared, 64).ok());
}

TEST(LoadSource, ARoundSharesNothingWithTheOneBefore) {
  Load load{.name = "two", .description = "", .requests = {}, .default_limits = ""};
  load.requests = {{.prompt_tokens = 16, .session = 5, .prefix_block_tokens = 16, .prefix_blocks = {1}},
                   {.prompt_tokens = 32, .session = 6, .prefix_block_tokens = 16, .prefix_blocks = {1, 2}}};
  LoadSource source(load, 6, ArrivalProcess::poisson(10), 1);
  std::set<std::uint64_t> first_names, sessions;
  std::uint64_t before = 0;
  for (int i = 0; i < 6; ++i) {
    const auto request = source.next();
    ASSERT_TRUE(request);
    EXPECT_GE(request->arrival_ns, before);
    before = request->arrival_ns;
    first_names.insert(request->prefix_blocks.front());
    sessions.insert(request->session);
  }
  EXPECT_FALSE(source.next());
  EXPECT_EQ(first_names.size(), 3u);  // the requests of a round share one
  EXPECT_EQ(sessions.size(), 6u);
}

}  // namespace
}  // namespace quire::planning
