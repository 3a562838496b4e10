#pragma once
// Outbox: the way of deltas from the engine's thread to the I/O thread. The engine's thread only appends to a list; the
// I/O thread is woken once for all that is there when it comes, not once per token.
//
// Thread-safety: push() from any thread, the rest from the I/O thread.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "quire/engine/request.h"
#include "quire/server/http_message.h"

namespace quire::server {

class Outbox : public std::enable_shared_from_this<Outbox> {
 public:
  struct Item {
    std::uint64_t call = 0;
    std::size_t choice = 0;
    engine::Delta delta;
    std::chrono::steady_clock::time_point at;
  };
  using Deliver = std::function<void(Item)>;

  /// Shared with the engine's callbacks, which may outlive the API. `tasks` must outlive close().
  static std::shared_ptr<Outbox> create(Tasks& tasks, Deliver deliver) {
    return std::shared_ptr<Outbox>(new Outbox(tasks, std::move(deliver)));
  }

  void push(Item item);
  /// Nothing is delivered or posted any more.
  void close();

 private:
  Outbox(Tasks& tasks, Deliver deliver) : tasks_(tasks), deliver_(std::move(deliver)) {}
  void drain();

  Tasks& tasks_;
  Deliver deliver_;
  std::mutex mutex_;
  std::vector<Item> items_;
  bool posted_ = false, closed_ = false;
};

}  // namespace quire::server
