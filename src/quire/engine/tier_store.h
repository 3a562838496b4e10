#pragma once
// TierStore: the bytes of the KV tiers behind the pool: frames of RAM, and block files that a background thread writes
// and reads. What goes where is decided in kv/kv_tiers.h and comes with the plans; how transfers ended goes back as
// TransferEnds. A frame is only touched by the caller's thread: what the background thread reads lies in a buffer of
// its own until take_ended() puts it into its frame.
//
// Memory: the frames, taken and touched at open; and a buffer for each transfer in flight: at most kMaxWritesInFlight
// blocks, and as many more as frames are being read into.
//
// Thread-safety: none, but for on_end, which the background thread calls.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/attention/kv_store.h"
#include "quire/base/result.h"
#include "quire/blockfile/disk.h"
#include "quire/blockfile/transfer_thread.h"
#include "quire/kv/tier_changes.h"
#include "quire/tensor/aligned_buffer.h"

namespace quire::engine {

struct TierStoreOptions {
  std::int64_t num_frames = 0;   ///< >= 1
  std::string directory;         ///< of the block files; empty: none
  std::uint64_t file_bytes = 0;  ///< of all of them
  bool compress = false;         ///< files, with zstd
  BlockKey domain;
};

class TierStore {
 public:
  /// `store` outlives the object. `on_end`: a transfer has ended; from another thread, must not wait.
  static Result<std::unique_ptr<TierStore>> open(const TierStoreOptions& options, attention::KvStore& store,
                                                 std::function<void()> on_end);

  /// Blocks of which there were files at open.
  const std::vector<BlockKey>& found() const { return found_; }
  std::uint64_t frame_bytes() const { return frames_.size(); }
  std::uint64_t file_bytes() const { return thread_ ? thread_->bytes() : 0; }

  /// Between the last step's writes and the next one's.
  void start(const TierChanges& changes);
  /// Transfers that have ended since the last call; what was read is in its frame.
  std::vector<TransferEnd> take_ended();
  /// The reads in flight, as timed out; what they bring later is thrown away.
  std::vector<TransferEnd> give_up_reads();

  /// Time to copy one block to a frame and back.
  std::int64_t measure_copy_ns();

 private:
  TierStore(std::int64_t num_frames, attention::KvStore& store);
  std::span<std::byte> frame(FrameId frame);

  attention::KvStore& store_;
  const std::size_t block_bytes_;
  AlignedBuffer frames_;
  std::vector<BlockKey> found_;
  std::map<TransferId, FrameId> reads_;  ///< in flight
  std::unique_ptr<DirectoryDisk> disk_;
  std::unique_ptr<TransferThread> thread_;  ///< null: no files. Joined before the disk goes
};

}  // namespace quire::engine
