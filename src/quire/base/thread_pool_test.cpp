#include "quire/base/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace quire {
namespace {

TEST(ThreadPool, EachIndexRunsOnceWhateverTheThreads) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::vector<int> hits(1000);
      pool.run([&](Worker& worker) { worker.for_each(1000, 7, [&](std::int64_t i) { ++hits[i]; }); });
      EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), 1000);
      EXPECT_EQ(*std::max_element(hits.begin(), hits.end()), 1);
    }
  }
}

TEST(ThreadPool, APhaseSeesAllWritesOfThePhaseBefore) {
  ThreadPool pool(4);
  std::vector<int> first(512), second(512);
  pool.run([&](Worker& worker) {
    for (int round = 0; round < 20; ++round) {
      worker.for_each(512, 3, [&](std::int64_t i) { first[i] = round + static_cast<int>(i); });
      worker.for_each(512, 5, [&](std::int64_t i) { second[i] = first[511 - i]; });
      worker.for_each(512, 1, [&](std::int64_t i) { EXPECT_EQ(second[i], round + 511 - i); });
    }
  });
}

}  // namespace
}  // namespace quire
