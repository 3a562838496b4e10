#include "quire/sim/prefix_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <vector>

#include "quire/base/rng.h"

namespace quire {
namespace {

/// A list of names, the least recently used first: each request touches its blocks from the last to the first.
std::uint64_t naive_found_blocks(const std::vector<RequestSpec>& requests, std::size_t capacity) {
  std::list<std::uint64_t> order;
  std::uint64_t found = 0;
  for (const RequestSpec& request : requests) {
    for (std::uint64_t name : request.prefix_blocks) {
      if (std::find(order.begin(), order.end(), name) == order.end()) break;
      ++found;
    }
    for (std::size_t i = request.prefix_blocks.size(); i-- > 0;) {
      order.remove(request.prefix_blocks[i]);
      order.push_back(request.prefix_blocks[i]);
    }
    while (order.size() > capacity) order.pop_front();
  }
  return found;
}

/// Prompts on a random tree of blocks: a name stands for its whole prefix.
std::vector<RequestSpec> random_requests(std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::vector<std::uint64_t>> paths = {{}};
  std::vector<RequestSpec> requests;
  std::uint64_t next_name = 0;
  for (int i = 0; i < 300; ++i) {
    auto path = paths[static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(paths.size()) - 1))];
    path.resize(static_cast<std::size_t>(rng.between(0, static_cast<std::int64_t>(path.size()))));
    for (std::int64_t n = rng.between(path.empty() ? 1 : 0, 4); n > 0 && path.size() < 12; --n)
      path.push_back(next_name++);
    paths.push_back(path);
    RequestSpec request;
    request.prefix_block_tokens = 10;
    request.prompt_tokens = static_cast<std::int32_t>(path.size()) * 10 - 3;
    request.prefix_blocks = path;
    if (!path.empty()) requests.push_back(request);
  }
  return requests;
}

TEST(PrefixReplay, FindsWhatAListInOrderOfUseFinds) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto requests = random_requests(seed);
    for (std::int32_t capacity : {12, 13, 20, 50, 100})
      EXPECT_EQ(replay_prefixes(requests, capacity).found_blocks,
                naive_found_blocks(requests, static_cast<std::size_t>(capacity)))
          << seed << " " << capacity;
    EXPECT_EQ(replay_prefixes(requests, 0).found_blocks, naive_found_blocks(requests, 1'000'000));
  }
}

TEST(PrefixReplay, CountsTokensOfAPartlyFilledLastBlock) {
  RequestSpec request;
  request.prompt_tokens = 25;
  request.prefix_block_tokens = 10;
  request.prefix_blocks = {1, 2, 3};
  const std::vector<RequestSpec> twice = {request, request};
  const PrefixReplay result = replay_prefixes(twice, 0);
  EXPECT_EQ(result.found_tokens, 25u);
  EXPECT_EQ(result.prompt_tokens, 50u);
  EXPECT_EQ(replay_prefixes(twice, 2).uncached_requests, 2u);
}

TEST(PrefixReplay, KeepsSessionsApart) {
  RequestSpec request;
  request.prompt_tokens = 10;
  request.prefix_block_tokens = 10;
  request.prefix_blocks = {1};
  request.session = 1;
  RequestSpec other = request;
  other.session = 2;
  const std::vector<RequestSpec> both = {request, other, request};
  EXPECT_EQ(replay_prefixes(both, 0).found_blocks, 1u);
  EXPECT_EQ(replay_prefixes({}, 5).token_rate(), 0);
}

}  // namespace
}  // namespace quire
