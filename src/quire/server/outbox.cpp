#include "quire/server/outbox.h"

#include <utility>

namespace quire::server {

void Outbox::push(Item item) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  items_.push_back(std::move(item));
  // Under the lock, so that close() means that no post comes after it.
  if (!std::exchange(posted_, true)) tasks_.post([self = shared_from_this()] { self->drain(); });
}

void Outbox::drain() {
  std::vector<Item> items;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    items.swap(items_);
    posted_ = false;
  }
  for (Item& item : items) deliver_(std::move(item));
}

void Outbox::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  items_.clear();
}

}  // namespace quire::server
