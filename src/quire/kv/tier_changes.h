#pragma once
// TierChanges: what a committed plan moves between the pool and the KV tiers behind it: frames of RAM, and block files.
// Plain data; part of KvChanges. A frame is a place for the content of one block in the RAM tier.
//
// Done before the step's copies and writes, in this order, each list in its own:
//   1. writes   the source's content is taken now and written to a file in the background
//   2. stores   block -> frame
//   3. loads    frame -> block
//   4. reads    file -> frame, in the background: the frame is nobody else's until the transfer has ended
// Each write and read has a number, and its end comes back as a TransferEnd.
//
// A file is named by its block's key, but the key is not trusted: salt and tokens of the whole prefix, from position 0
// to the end of the block, are written into it and compared when it is read.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/hash.h"
#include "quire/base/ids.h"
#include "quire/kv/block_key.h"

namespace quire {

/// A place in the RAM tier; 0 is none.
using FrameId = StrongId<struct FrameTag, std::uint32_t>;
inline constexpr FrameId kNoFrame{0};

/// A transfer between a tier and its files; 1, 2, 3, ...
using TransferId = StrongId<struct TransferTag, std::uint64_t>;

struct FrameStore {
  BlockId from;
  FrameId to;
  friend bool operator==(const FrameStore&, const FrameStore&) = default;
};

struct FrameLoad {
  FrameId from;
  BlockId to;
  friend bool operator==(const FrameLoad&, const FrameLoad&) = default;
};

/// What a file holds: its name, and all that is compared.
struct FileContent {
  BlockKey key;
  std::string salt;
  std::int32_t tokens_offset = 0;  ///< into TierChanges::tokens
  std::int32_t num_tokens = 0;     ///< of the prefix that ends with the block
  friend bool operator==(const FileContent&, const FileContent&) = default;
};

struct FileWrite {
  TransferId transfer;
  BlockId block;  ///< the source; kNullBlock: the frame is
  FrameId frame;
  FileContent content;
  friend bool operator==(const FileWrite&, const FileWrite&) = default;
};

struct FileRead {
  TransferId transfer;
  FrameId to;
  FileContent content;
  friend bool operator==(const FileRead&, const FileRead&) = default;
};

struct TierChanges {
  std::vector<FileWrite> writes;
  std::vector<FrameStore> stores;
  std::vector<FrameLoad> loads;
  std::vector<FileRead> reads;
  std::vector<TokenId> tokens;  ///< of writes and reads; several may share a stretch

  std::size_t last_stretch = 0;  ///< where the last one begins

  /// Where these tokens begin in `tokens`, after adding what is not there.
  std::int32_t add_tokens(std::span<const TokenId> prefix);
  bool empty() const { return writes.empty() && stores.empty() && loads.empty() && reads.empty(); }
  void clear();
  void add_to(Digest& digest) const;
};

enum class TransferOutcome : std::uint8_t {
  done,
  missing,    ///< no such file
  io_error,   ///< the system could not read or write
  damaged,    ///< cut, or a checksum is wrong
  mismatch,   ///< another domain, key, salt or tokens
  no_space,   ///< the disk or the directory is full, or was a moment ago
  timed_out,  ///< did not end in time
};
inline constexpr std::size_t kNumTransferOutcomes = 7;
std::string_view to_string(TransferOutcome outcome);

struct TransferEnd {
  TransferId transfer;
  TransferOutcome outcome = TransferOutcome::done;
  std::vector<BlockKey> removed;  ///< files that made room for a written one
  friend bool operator==(const TransferEnd&, const TransferEnd&) = default;
};

}  // namespace quire
