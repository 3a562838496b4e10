#pragma once
// CorePlacement: keeps the threads of a team on cores of their own. A system that wakes a thread may put it on the core
// of another one of the team, and takes milliseconds to notice; until then one of them waits for a barrier on the core
// that the other needs to get there. No thread is bound: what it may run on stays as it was.
//
// Thread-safety: each thread calls for its own index.

#include <atomic>
#include <memory>

namespace quire {

class CorePlacement {
 public:
  explicit CorePlacement(int num_threads);

  /// Called by thread `index` as it begins to work. If a thread of a lower index was seen on the same core, this one
  /// moves to a core that it may use and no other of the team was seen on; without one it stays. Returns its core.
  int settle(int index);

 private:
  struct alignas(64) Place {
    std::atomic<int> core{-1};  ///< where the thread was seen last; -1: not yet
  };
  enum class Others { lower, all };  ///< of the team: with lower indices than a thread, or all but the thread
  bool is_taken(int core, int index, Others others) const;

  const int num_threads_;
  const std::unique_ptr<Place[]> places_;
};

}  // namespace quire
