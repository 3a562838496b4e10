#pragma once
// ShadowTiers: the RAM tier and the block files of the shadow executor: frames and files that hold shadow slots, and
// transfers that end when, and how, a test says. A frame that a transfer writes to is nobody else's until it has ended;
// whoever uses it is noted.
//
// For tests and the simulator. Thread-safety: none.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "quire/kv/tier_changes.h"

namespace quire {

/// What a slot holds where a model has K and V.
struct ShadowSlot {
  std::uint64_t tenant = 0;
  std::size_t group = 0;  ///< layer group
  std::int32_t position = -1;
  TokenId token{-1};
  std::uint64_t chain = 0;  ///< digest of this slot's content and the chain of the slot before
  std::uint64_t written_in_step = 0;
};
using ShadowBlock = std::vector<ShadowSlot>;

struct ShadowFile {
  std::string salt;
  std::vector<TokenId> tokens;
  ShadowBlock block;
  bool is_damaged = false;  ///< its reader notices
  std::uint64_t age = 0;    ///< smaller is older
};
using ShadowFiles = std::map<BlockKey, ShadowFile>;

/// What goes wrong with a transfer.
enum class ShadowFault : std::uint8_t {
  none,
  io_error,
  no_space,
  lost,       ///< a write that is said to be done, and left nothing
  torn,       ///< a write that is said to be done, and left half; a read that finds half
  deleted,    ///< somebody else deletes the file first
  timed_out,  ///< given up; what it brings later is ignored
};

class ShadowTiers {
 public:
  explicit ShadowTiers(std::int32_t num_frames) : frames_(static_cast<std::size_t>(num_frames) + 1) {}

  /// Does what the plan says, in the order of kv/tier_changes.h.
  void start(const TierChanges& changes, std::vector<ShadowBlock>& blocks);

  std::size_t num_in_flight() const { return in_flight_.size(); }
  /// Ends one of those in flight, in the order in which they were started.
  TransferEnd end(std::size_t index, ShadowFault fault = ShadowFault::none);

  ShadowFiles& files() { return files_; }
  /// A write that leaves more files than these removes the oldest; 0: no limit.
  void set_max_files(std::size_t max_files) { max_files_ = max_files; }

  const std::optional<std::string>& violation() const { return violation_; }

 private:
  struct Transfer {
    TransferId id;
    FrameId to;  ///< kNoFrame: a write
    BlockKey key;
    ShadowFile file;  ///< to be written, or to be compared with what is read
  };
  ShadowBlock& frame(FrameId frame);
  ShadowFile file_of(const FileContent& content, const TierChanges& changes) const;
  TransferOutcome read(const Transfer& transfer, ShadowFault fault);
  TransferOutcome write(Transfer& transfer, ShadowFault fault);
  void remove_oldest(const BlockKey& kept, TransferEnd& end);

  std::vector<ShadowBlock> frames_;  ///< [num_frames + 1]
  ShadowFiles files_;
  std::vector<Transfer> in_flight_;
  std::size_t max_files_ = 0;
  std::uint64_t next_age_ = 1;
  std::optional<std::string> violation_;
};

}  // namespace quire
