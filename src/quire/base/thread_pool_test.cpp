#include "quire/base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

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

TEST(ThreadPool, EachIndexOfSharesRunsOnceWhateverTheThreads) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::vector<int> hits(1000), few(2);
      pool.run([&](Worker& worker) {
        worker.for_each_in_shares(1000, 7, [&](std::int64_t i) { ++hits[i]; });
        worker.for_each_in_shares(2, 1, [&](std::int64_t i) { ++few[i]; });
        worker.for_each_in_shares(0, 1, [&](std::int64_t) { ++few[0]; });
        worker.for_each_in_shares(1000, 3, [&](std::int64_t i) { ++hits[i]; });
      });
      EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), 2000);
      EXPECT_EQ(*std::max_element(hits.begin(), hits.end()), 2);
      EXPECT_EQ(few, (std::vector<int>{1, 1}));
    }
  }
}

/// Whoever gets the first item holds it until all others are done.
TEST(ThreadPool, AWorkerThatIsHeldUpLosesItsShareToTheOthers) {
  ThreadPool pool(2);
  std::vector<int> by(8, -1);
  std::atomic<int> left{8};
  pool.run([&](Worker& worker) {
    worker.for_each_in_shares(8, 1, [&](std::int64_t i) {
      by[static_cast<std::size_t>(i)] = worker.index();
      if (left.fetch_sub(1) == 8) {
        while (left.load() > 0) std::this_thread::yield();
      }
    });
  });
  EXPECT_EQ(std::min(std::count(by.begin(), by.end(), 0), std::count(by.begin(), by.end(), 1)), 1);
}

/// The worker that has the only item goes on only after another one did something meanwhile.
TEST(ThreadPool, AWorkerThatWaitsDoesSomethingMeanwhileUntilNothingIsLeft) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> pieces{0};
    pool.run([&](Worker& worker) {
      auto meanwhile = [&] { return pieces.fetch_add(1) + 1 < 3; };
      auto body = [&](std::int64_t) {
        while (pieces.load() < 3) std::this_thread::yield();
      };
      worker.for_each(1, 1, body, meanwhile);
      EXPECT_EQ(pieces.load(), 3);
    });
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
