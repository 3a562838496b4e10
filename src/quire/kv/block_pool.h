#pragma once
// BlockPool: the ids of a fixed number of KV blocks, who is free and how many references each one in use has. Ids only:
// the bytes live in the physical KV store, which must have room for num_blocks() + 1 blocks, because block 0 is the
// null block: it exists in every store, belongs to nobody and is never given out.
//
// A block whose content has a name (kv/prefix_index.h) is keyed. A keyed block that loses its last reference keeps its
// content: it is idle, not free, until somebody shares it again or it is evicted. The idle ones form a list, the first
// to become idle first: that is the order of eviction.
//
//     free --allocate--> in use --release--> free
//                          |  ^--share--.
//                          `--release, keyed--> idle --set_keyed(false)--> free
//
// All operations are O(1): both lists are intrusive (free blocks: last freed, first given).
//
// Invariants (validate):
//  P1  (I1) every block of 1..num_blocks() is exactly one of: free (no reference, not keyed), idle (no reference,
//  keyed), in
//      use (references > 0); num_free() + num_idle() + num_used() = num_blocks()
//  P2  (I6) the free list is acyclic, ends, and holds the free blocks, num_free() of them
//  P3  (I2) the null block has no references, no key, and is on no list
//  P4  (I6) the idle list is acyclic, linked both ways, and holds the idle blocks, num_idle() of them
//
// Thread-safety: none; one thread at a time.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

enum class ReleaseOutcome {
  freed,       ///< that was the last reference
  idle,        ///< that was the last reference to a keyed block
  still_held,  ///< others hold the block
  not_held,    ///< nobody held it (or it is no block of this pool): nothing was done
};

class BlockPool {
 public:
  /// Blocks 1..num_blocks, all free; given out in rising order at first. num_blocks >= 1.
  explicit BlockPool(std::int32_t num_blocks);

  std::int32_t num_blocks() const { return num_blocks_; }
  std::int32_t num_free() const { return num_free_; }
  std::int32_t num_idle() const { return num_idle_; }
  /// Blocks that can be had: free ones, and idle ones once their key is given up.
  std::int32_t num_available() const { return num_free_ + num_idle_; }
  std::int32_t num_used() const { return num_blocks_ - num_available(); }

  /// True for 1..num_blocks().
  bool contains(BlockId block) const { return block.value - 1 < static_cast<std::uint32_t>(num_blocks_); }

  /// A free block, now with one reference; kNullBlock if none is free, even if some are idle.
  BlockId allocate();

  /// One more reference to a block in use, or the first to an idle one.
  void share(BlockId block);

  /// One reference less; the last one frees the block, or makes it idle if it is keyed.
  [[nodiscard]] ReleaseOutcome release(BlockId block);

  /// Its content has a name now (the block is in use), or has none any more (an idle block becomes free).
  void set_keyed(BlockId block, bool keyed);
  bool is_keyed(BlockId block) const { return contains(block) && is_keyed_[block.value] != 0; }

  /// The block that has been idle for longest; kNullBlock if none is.
  BlockId oldest_idle() const { return first_idle_; }

  /// References to the block; 0 if it is free or idle.
  std::int32_t ref_count(BlockId block) const;

  /// Entries of blocks that all operations so far have looked at or changed, those of neighbours in a list included.
  std::uint64_t num_visited() const { return num_visited_; }

  /// The first violation of P1..P4, or nullopt. O(num_blocks).
  std::optional<std::string> validate() const;

 private:
  void push_free(BlockId block);
  void push_idle(BlockId block);
  void remove_idle(BlockId block);
  std::optional<std::string> validate_idle(std::vector<bool>& is_idle) const;

  std::int32_t num_blocks_;
  std::int32_t num_free_;
  std::int32_t num_idle_ = 0;
  std::uint64_t num_visited_ = 0;
  BlockId first_free_;  ///< kNullBlock: none
  BlockId first_idle_, last_idle_;
  std::vector<std::int32_t> ref_count_;  ///< [num_blocks + 1]
  std::vector<std::uint8_t> is_keyed_;   ///< [num_blocks + 1]
  std::vector<BlockId> next_;            ///< [num_blocks + 1], in the block's list; kNullBlock: the last
  std::vector<BlockId> previous_;        ///< [num_blocks + 1], in the idle list; kNullBlock: the first
};

}  // namespace quire
