#include "quire/base/thread_pool.h"

#include <immintrin.h>

#include "quire/base/check.h"

namespace quire {
namespace {

constexpr std::uint32_t kDefaultMxcsr = 0x1F80;  // no flush to zero, no denormals-are-zero, round to nearest even
constexpr int kSpinsBetweenSteps = 20'000;       // about 50 us
constexpr int kSpinsInBarrier = 4'000;           // about 50 us; then sleep, in case the others wait for this core

/// Sets the default floating-point environment for a scope.
class FloatEnvironment {
 public:
  FloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(kDefaultMxcsr); }
  ~FloatEnvironment() { _mm_setcsr(saved_); }

 private:
  std::uint32_t saved_;
};

}  // namespace

int Worker::count() const { return pool_->num_threads(); }
void Worker::barrier() { barrier(Nothing{}); }
std::uint32_t Worker::arrive() { return pool_->arrive(index_); }
bool Worker::has_ended(std::uint32_t phase) const { return pool_->phase_.load(std::memory_order_acquire) != phase; }
void Worker::wait_for_end_of(std::uint32_t phase) { pool_->wait_for_end_of(phase); }
std::int64_t Worker::claim(std::int64_t grain) { return pool_->next_.fetch_add(grain, std::memory_order_relaxed); }
std::int64_t Worker::claim_of(int owner, std::int64_t grain) {
  // Relaxed: this phase began when this worker saw it begin, and lasts until it arrives.
  const std::uint32_t phase = pool_->phase_.load(std::memory_order_relaxed);
  return pool_->share_of(owner, phase).claimed.fetch_add(grain, std::memory_order_relaxed);
}

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads),
      oversubscribed_(num_threads > static_cast<int>(std::thread::hardware_concurrency())),
      shares_(new Share[2 * static_cast<std::size_t>(num_threads)]),
      placement_(num_threads) {
  QUIRE_CHECK(num_threads >= 1);
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { worker_main(i); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void ThreadPool::run(const std::function<void(Worker&)>& step) {
  placement_.settle(0);
  step_ = &step;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  run_step(0);
  step_ = nullptr;
}

void ThreadPool::run_step(int index) {
  FloatEnvironment environment;
  Worker worker(this, index);
  (*step_)(worker);
  worker.barrier();
}

void ThreadPool::worker_main(int index) {
  std::uint32_t seen = 0;
  while (true) {
    for (int spin = 0; spin < kSpinsBetweenSteps && !oversubscribed_; ++spin) {
      if (epoch_.load(std::memory_order_acquire) != seen) break;
      _mm_pause();
    }
    epoch_.wait(seen, std::memory_order_acquire);
    if (stopping_.load()) return;
    ++seen;
    placement_.settle(index);
    run_step(index);
  }
}

std::uint32_t ThreadPool::arrive(int index) {
  const std::uint32_t phase = phase_.load(std::memory_order_acquire);
  share_of(index, phase + 1).claimed.store(0, std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
    next_.store(0, std::memory_order_relaxed);
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();  // a system call only if somebody sleeps
  }
  return phase;
}

void ThreadPool::wait_for_end_of(std::uint32_t phase) {
  for (int spin = 0; spin < kSpinsInBarrier && !oversubscribed_; ++spin) {
    if (phase_.load(std::memory_order_acquire) != phase) return;
    _mm_pause();
  }
  // On a busy machine a sleeper is woken before a spinner gets its turn again.
  phase_.wait(phase, std::memory_order_acquire);
}

}  // namespace quire
