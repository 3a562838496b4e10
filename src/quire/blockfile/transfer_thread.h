#pragma once
// TransferThread: carries out the file tier's transfers in the background, one after the other, reads before writes.
//
// Thread-safety: submit and take_ended may be called from any thread. `on_end` is called on the background thread after
// each transfer and must not wait for anything.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "quire/blockfile/block_files.h"

namespace quire {

/// A write of `payload`, or a read into it. Everything it needs is its own.
struct Transfer {
  TransferId id;
  bool is_read = false;
  BlockKey key;
  std::string salt;
  std::vector<TokenId> tokens;
  std::vector<std::byte> payload;  ///< of a read: as large as what is wanted
};

struct EndedTransfer {
  TransferEnd end;
  bool is_read = false;
  std::vector<std::byte> payload;  ///< of a read
};

class TransferThread {
 public:
  /// `files` and its disk belong to the thread until it has been joined.
  TransferThread(BlockFiles files, std::function<void()> on_end);
  /// Finishes all that was submitted.
  ~TransferThread();

  void submit(Transfer transfer);
  /// In the order in which they ended.
  std::vector<EndedTransfer> take_ended();
  /// Bytes of all files, as of the last transfer.
  std::uint64_t bytes() const;

 private:
  void run();
  EndedTransfer carry_out(Transfer transfer);

  BlockFiles files_;  ///< the background thread's
  const std::function<void()> on_end_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Transfer> reads_, writes_;
  std::vector<EndedTransfer> ended_;
  std::uint64_t bytes_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace quire
