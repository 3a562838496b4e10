#pragma once
// DeltaQueue: deltas from the engine's thread to the command's. push() from any thread, pop() from one.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "quire/engine/request.h"

namespace quire::cli {

class DeltaQueue {
 public:
  struct Item {
    std::size_t tag;  ///< which of the command's requests it belongs to
    engine::Delta delta;
  };

  void push(std::size_t tag, engine::Delta delta) {
    {
      std::lock_guard lock(mutex_);
      items_.push_back({tag, std::move(delta)});
    }
    filled_.notify_one();
  }

  Item pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return !items_.empty(); });
    return take();
  }

  /// As pop(), but nothing after `patience` without an item: for callers that also watch for an interrupt.
  std::optional<Item> pop_within(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!filled_.wait_for(lock, patience, [this] { return !items_.empty(); })) return std::nullopt;
    return take();
  }

 private:
  Item take() {
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Item> items_;
};

}  // namespace quire::cli
