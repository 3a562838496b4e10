#pragma once
// BlockFiles: the block files of one directory: one file a block, named by its key in hexadecimal. There is no index:
// the name is the key, and the header says the rest. Files of other domains lie beside ours and go like ours.
//
// Budget: a write that would exceed it first removes the least recently written or read files, and a sixteenth of the
// budget more, so that not every write has to. When the disk is full, the next kWritesSkippedWhenFull writes are
// refused without trying: for that while the tier only reads.
//
// A damaged file is removed. Every failure is an outcome, none is an error.
//
// Thread-safety: none; used by one thread.

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "quire/blockfile/block_file.h"
#include "quire/blockfile/disk.h"

namespace quire {

inline constexpr int kWritesSkippedWhenFull = 64;

struct BlockFilesOptions {
  BlockKey domain;
  std::uint64_t budget_bytes = 0;  ///< of all files together
  Compression compression = Compression::none;
};

/// 64 hexadecimal digits and ".kv".
std::string block_file_name(const BlockKey& key);
std::optional<BlockKey> parse_block_file_name(std::string_view name);

class BlockFiles {
 public:
  /// Looks at what is there, and removes what exceeds the budget. `disk` outlives the object.
  static Result<BlockFiles> open(Disk& disk, const BlockFilesOptions& options);

  /// Of the files there are, the least recently written first.
  std::vector<BlockKey> keys() const;
  std::uint64_t bytes() const { return bytes_; }

  /// `removed` gets the keys of the files that made room.
  TransferOutcome write(const BlockIdentity& identity, std::span<const std::byte> payload,
                        std::vector<BlockKey>& removed);
  /// Fills `payload` if the outcome is done.
  TransferOutcome read(const BlockIdentity& identity, std::span<std::byte> payload);

  const BlockKey& domain() const { return options_.domain; }

 private:
  struct File {
    std::uint64_t bytes;
    std::uint64_t used_at;  ///< in by_use_
  };
  BlockFiles(Disk& disk, const BlockFilesOptions& options) : disk_(&disk), options_(options) {}
  void add(const BlockKey& key, std::uint64_t bytes);
  void forget(const BlockKey& key);
  void make_room(std::uint64_t bytes, std::vector<BlockKey>& removed);

  Disk* disk_;
  BlockFilesOptions options_;
  std::uint64_t bytes_ = 0;
  std::unordered_map<BlockKey, File, BlockKeyHash> files_;
  std::map<std::uint64_t, BlockKey> by_use_;  ///< the least recently used first
  std::uint64_t next_use_ = 1;
  int num_skipped_ = 0;  ///< writes still to be refused
  std::vector<std::byte> buffer_;
};

}  // namespace quire
