#pragma once
// FileTier: which block files are believed to exist, and which transfers to and from them are in flight. Belief is
// enough: a file that is gone or damaged is a read that fails, and a miss. Who removes files to stay within a budget is
// whoever has the files; it is told here when a write ends.
//
// Writing is behind: every published block is noted, and written when a plan is committed, at most kMaxWritesInFlight
// at a time, the oldest first. A block whose content has left pool and RAM by then is not written. The source of a
// write is copied when the plan is carried out, so it pins nothing; the frame a read goes to is private until the read
// has ended.
//
// Invariants (validate):
//  F1  every read in flight has a private frame of its own
//  F2  no key is in flight twice in one direction
//
// Thread-safety: none.

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "quire/kv/ram_tier.h"

namespace quire {

inline constexpr std::int32_t kMaxWritesInFlight = 32;

/// The tokens of a sequence as they were when some of its blocks were published; shared by these.
using SharedTokens = std::shared_ptr<const std::vector<TokenId>>;

class FileTier {
 public:
  /// At most max_waiting blocks wait to be written; the oldest is given up for one more.
  explicit FileTier(std::size_t max_waiting) : max_waiting_(max_waiting) {}

  void note_found(std::span<const BlockKey> keys) { known_.insert(keys.begin(), keys.end()); }
  bool has(const BlockKey& key) const { return known_.count(key) > 0; }
  std::int64_t num_known() const { return static_cast<std::int64_t>(known_.size()); }

  // -- writes --

  struct Waiting {
    BlockId block;         ///< where the content was published
    std::uint64_t number;  ///< of the content
    BlockKey key;          ///< with its layer group
    std::string salt;
    SharedTokens tokens;
    std::int32_t num_tokens;  ///< of `tokens`: the prefix that ends with the block
  };
  /// Noted unless a file has the key, or one is being written.
  void note_published(Waiting block);
  bool can_start_write() const { return !waiting_.empty() && num_writes() < kMaxWritesInFlight; }
  Waiting take_waiting();
  /// `block` or `frame`: where the content is.
  void start_write(const Waiting& content, BlockId block, FrameId frame, TierChanges& changes);
  std::int32_t num_writes() const { return static_cast<std::int32_t>(writes_.size()); }
  std::int64_t num_waiting() const { return static_cast<std::int64_t>(waiting_.size()); }

  // -- reads --

  struct Read {
    FrameId frame;
    NumberedContent content;
  };
  /// `prefix`: all tokens up to the block's end.
  void start_read(FrameId frame, NumberedContent content, std::span<const TokenId> prefix, TierChanges& changes);
  /// What is being read under this key; nullptr: nothing.
  const NumberedContent* find_read(const BlockKey& key) const;
  std::int32_t num_reads() const { return static_cast<std::int32_t>(reads_.size()); }

  struct Ended {
    bool is_known = false;     ///< false: no such transfer is in flight
    std::optional<Read> read;  ///< if it was one
  };
  /// The transfer is in flight no more. After a write that is done its key is known; after a read that is not, its key
  /// is forgotten.
  Ended end(const TransferEnd& end);

  std::uint64_t num_given_up() const { return num_given_up_; }

  /// The first violation of F1, F2, or nullopt.
  std::optional<std::string> validate(const RamTier& ram) const;

 private:
  static void append_content(const BlockKey& key, const std::string& salt, std::span<const TokenId> prefix,
                             TierChanges& changes, FileContent& content);

  const std::size_t max_waiting_;
  std::unordered_set<BlockKey, BlockKeyHash> known_;                        ///< looked up, never walked
  std::unordered_set<BlockKey, BlockKeyHash> keys_written_, keys_waiting_;  ///< likewise
  std::unordered_map<BlockKey, TransferId, BlockKeyHash> read_of_;          ///< likewise; a key's read in flight
  std::deque<Waiting> waiting_;
  std::map<TransferId, BlockKey> writes_;
  std::map<TransferId, Read> reads_;
  std::uint64_t next_transfer_ = 1;
  std::uint64_t num_given_up_ = 0;  ///< blocks that were never written: too many waited
};

}  // namespace quire
