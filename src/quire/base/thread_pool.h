#pragma once
// ThreadPool: one persistent team of threads that runs a step together (single program, multiple data). The calling
// thread is worker 0. Each step begins with the threads on cores of their own, as far as there are any
// (core_placement.h). Workers that wait, at a barrier or for the next step, spin for about 50 us, then sleep. Results
// never depend on the number of threads: for_each hands out work by index, and each index writes only its own output.
//
// Thread-safety: run() is called by one thread at a time. A Worker belongs to its thread.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "quire/base/core_placement.h"

namespace quire {

class ThreadPool;

/// One thread's view of a running step.
class Worker {
  struct Nothing {
    bool operator()() const { return false; }
  };

 public:
  int index() const { return index_; }
  int count() const;

  /// Returns once all workers have arrived. Every worker must call it the same number of times.
  void barrier();

  /// The same. A worker that waits calls meanwhile() again and again, which does some small thing that changes no
  /// result and returns false when there is nothing left to do.
  template <class Meanwhile>
  void barrier(Meanwhile&& meanwhile) {
    const std::uint32_t phase = arrive();
    while (!has_ended(phase) && meanwhile()) {
    }
    wait_for_end_of(phase);
  }

  /// Runs body(i) for each i in [0, n), once each, spread over the workers in chunks of `grain`; every worker calls
  /// this with the same n. Ends with a barrier: all of it is done and visible when it returns.
  template <class Body, class Meanwhile = Nothing>
  void for_each(std::int64_t n, std::int64_t grain, Body&& body, Meanwhile&& meanwhile = {}) {
    for (std::int64_t begin; (begin = claim(grain)) < n;) {
      std::int64_t end = begin + grain < n ? begin + grain : n;
      for (std::int64_t i = begin; i < end; ++i) body(i);
    }
    barrier(meanwhile);
  }

  /// The same for work that streams through memory, or that finds in a core's cache what it wrote before: a worker goes
  /// through a share of its own in order, which is the same for the same n, and then helps the others.
  template <class Body, class Meanwhile = Nothing>
  void for_each_in_shares(std::int64_t n, std::int64_t grain, Body&& body, Meanwhile&& meanwhile = {}) {
    for (int k = 0; k < count(); ++k) {
      const int owner = (index_ + k) % count();
      const std::int64_t first = share_begin(n, owner), last = share_begin(n, owner + 1);
      for (std::int64_t begin; (begin = first + claim_of(owner, grain)) < last;) {
        const std::int64_t end = begin + grain < last ? begin + grain : last;
        for (std::int64_t i = begin; i < end; ++i) body(i);
      }
    }
    barrier(meanwhile);
  }

  /// Where the share of worker `owner` of n indices begins; that of the next worker follows.
  std::int64_t share_begin(std::int64_t n, int owner) const { return n * owner / count(); }

  /// As for_each, one index at a time, as body(i, next): `next` is the index that this worker gets after i, so that its
  /// memory can be fetched meanwhile, or n if that is not known yet. It is not towards the end, where who is free first
  /// takes what is left.
  template <class Body>
  void for_each_ahead(std::int64_t n, Body&& body) {
    for (std::int64_t i = claim(1); i < n;) {
      const bool looks_ahead = i + 2 * count() < n;
      const std::int64_t next = looks_ahead ? claim(1) : n;
      body(i, next < n ? next : n);
      i = looks_ahead ? next : claim(1);
    }
    barrier();
  }

 private:
  friend class ThreadPool;
  Worker(ThreadPool* pool, int index) : pool_(pool), index_(index) {}
  std::int64_t claim(std::int64_t grain);
  std::int64_t claim_of(int owner, std::int64_t grain);
  std::uint32_t arrive();
  bool has_ended(std::uint32_t phase) const;
  void wait_for_end_of(std::uint32_t phase);

  ThreadPool* pool_;
  int index_;
};

class ThreadPool {
 public:
  /// Starts num_threads - 1 threads; num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  /// Runs step(worker) on every thread of the team and returns when all have returned. While it runs, each thread's
  /// floating-point environment is the default one: round to nearest even, subnormals kept.
  void run(const std::function<void(Worker&)>& step);

 private:
  friend class Worker;
  void worker_main(int index);
  void run_step(int index);
  std::uint32_t arrive(int index);  ///< returns the phase that this worker has done its part of
  void wait_for_end_of(std::uint32_t phase);

  /// How much of a worker's share has been claimed.
  struct alignas(64) Share {
    std::atomic<std::int64_t> claimed{0};
  };
  /// There are two for each worker, used in turn, phase by phase: its owner resets one while nobody looks at it.
  Share& share_of(int owner, std::uint32_t phase) {
    return shares_[static_cast<std::size_t>((phase & 1) * static_cast<std::uint32_t>(num_threads_)) +
                   static_cast<std::size_t>(owner)];
  }

  const int num_threads_;
  const bool oversubscribed_;  ///< more threads than cores: nobody spins
  const std::function<void(Worker&)>* step_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  ///< one more for each step; workers wait for it to change
  alignas(64) std::atomic<std::int64_t> next_{0};    ///< next unclaimed index of the current for_each
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> phase_{0};  ///< one more for each barrier passed
  std::atomic<bool> stopping_{false};
  const std::unique_ptr<Share[]> shares_;
  CorePlacement placement_;
  std::vector<std::thread> threads_;
};

}  // namespace quire
