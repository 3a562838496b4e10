#pragma once
// WorkQueue: a few threads that run tasks in the order given. stop() drops what has not begun. Its length is bounded by
// the caller: at most one task per connection.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quire::server {

class WorkQueue {
 public:
  explicit WorkQueue(int num_threads);
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void add(std::function<void()> task);
  /// Waits for the tasks that run; the rest never run.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire::server
