#pragma once
// BlockPool: the ids of a fixed number of KV blocks, who is free and how many references each one in use has. Ids only:
// the bytes live in the physical KV store, which must have room for num_blocks() + 1 blocks, because block 0 is the
// null block: it exists in every store, belongs to nobody and is never given out.
//
// allocate, share and release are O(1): free blocks form an intrusive list (last freed, first given).
//
// Invariants (validate):
//  P1  every block of 1..num_blocks() is either free (reference count 0, on the free list once) or in use (count > 0,
//      not on the list); num_free() + num_used() = num_blocks()
//  P2  the free list is acyclic, ends, and has num_free() entries
//  P3  the null block has no references and is not on the free list
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
  still_held,  ///< others hold the block
  not_held,    ///< nobody held it (or it is no block of this pool): nothing was done
};

class BlockPool {
 public:
  /// Blocks 1..num_blocks, all free; given out in rising order at first. num_blocks >= 1.
  explicit BlockPool(std::int32_t num_blocks);

  std::int32_t num_blocks() const { return num_blocks_; }
  std::int32_t num_free() const { return num_free_; }
  std::int32_t num_used() const { return num_blocks_ - num_free_; }

  /// True for 1..num_blocks().
  bool contains(BlockId block) const { return block.value - 1 < static_cast<std::uint32_t>(num_blocks_); }

  /// A free block, now with one reference; kNullBlock if none is free.
  BlockId allocate();

  /// One more reference to a block in use.
  void share(BlockId block);

  /// One reference less; the last one frees the block.
  [[nodiscard]] ReleaseOutcome release(BlockId block);

  /// References to the block; 0 if it is free.
  std::int32_t ref_count(BlockId block) const;

  /// The first violation of P1..P3, or nullopt. O(num_blocks).
  std::optional<std::string> validate() const;

 private:
  std::int32_t num_blocks_;
  std::int32_t num_free_;
  BlockId first_free_;                   ///< kNullBlock: none
  std::vector<std::int32_t> ref_count_;  ///< [num_blocks + 1]
  std::vector<BlockId> next_free_;       ///< [num_blocks + 1]; kNullBlock: the last; meaningful for free blocks only
};

}  // namespace quire
