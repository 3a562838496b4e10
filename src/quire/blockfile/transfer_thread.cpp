#include "quire/blockfile/transfer_thread.h"

#include <utility>

namespace quire {

TransferThread::TransferThread(BlockFiles files, std::function<void()> on_end)
    : files_(std::move(files)), on_end_(std::move(on_end)), bytes_(files_.bytes()), thread_([this] { run(); }) {}

TransferThread::~TransferThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void TransferThread::submit(Transfer transfer) {
  {
    std::lock_guard lock(mutex_);
    (transfer.is_read ? reads_ : writes_).push_back(std::move(transfer));
  }
  wake_.notify_one();
}

std::vector<EndedTransfer> TransferThread::take_ended() {
  std::lock_guard lock(mutex_);
  return std::exchange(ended_, {});
}

std::uint64_t TransferThread::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

EndedTransfer TransferThread::carry_out(Transfer transfer) {
  const BlockIdentity identity{files_.domain(), transfer.key, transfer.salt, transfer.tokens};
  EndedTransfer ended{{transfer.id, {}, {}}, transfer.is_read, {}};
  if (transfer.is_read) {
    ended.end.outcome = files_.read(identity, transfer.payload);
    ended.payload = std::move(transfer.payload);
  } else {
    ended.end.outcome = files_.write(identity, transfer.payload, ended.end.removed);
  }
  return ended;
}

void TransferThread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !reads_.empty() || !writes_.empty(); });
    std::deque<Transfer>& queue = reads_.empty() ? writes_ : reads_;
    if (queue.empty()) return;
    Transfer transfer = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    EndedTransfer ended = carry_out(std::move(transfer));
    lock.lock();
    ended_.push_back(std::move(ended));
    bytes_ = files_.bytes();
    lock.unlock();
    on_end_();
    lock.lock();
  }
}

}  // namespace quire
