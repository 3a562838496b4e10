#pragma once
// PrefixIndex: which block holds the content with a given key, and which blocks continue a given prefix. Bookkeeping
// only: who holds a block and whether it may be evicted is the pool's business (kv/block_pool.h).
//
// A prefix is identified without trusting the hash. Every keyed block gets a number that is never used again, and
// remembers its tokens and the number of the block before it. A lookup goes from the root block by block and accepts a
// block only if its tokens, its parent's number and (for a first block) its salt are those that are asked for. So an
// accepted chain has exactly the asked tokens at the asked positions, and a colliding hash costs hits, never truth.
//
// With several layer groups that is said of the first group's blocks. Each of them has at most one companion in every
// other group: the block that holds the same tokens of that group's layers. A companion is keyed as well, and is named
// by its first block's key and its group (in_group()); it needs no tokens of its own, has its first block's number, and
// loses its key with its first block.
//
// find, publish and forget are O(1) lookups plus the comparison of one block's tokens; forget also takes O(groups).
//
// Invariants (validate):
//  X1  (I4) the map names a block under a key if and only if the block is keyed with it; a keyed block is either that
//      or a companion; index and pool agree on who is keyed
//  X2  (I4) the stored key is the key of the stored tokens, parent key and salt
//  X3  the candidates of a parent are keyed blocks with that parent key, no block twice, no list empty
//  X4  a companion and its first block name each other, and the first block is in the map
//
// Thread-safety: none.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quire/kv/block_key.h"
#include "quire/kv/block_pool.h"

namespace quire {

/// A known prefix, by the keyed block it ends with; the default is the empty prefix.
struct PrefixEnd {
  std::uint64_t number = 0;  ///< of that block's content
  BlockId block = kNullBlock;
};

/// What is asked for: these tokens, after this prefix.
struct BlockContent {
  const BlockKey& key;
  const BlockKey& parent_key;
  PrefixEnd parent;
  std::string_view salt;
  std::span<const TokenId> tokens;  ///< [block_size]
};

/// A keyed block's content, wherever it lies, by all that identifies it. In another layer group than the first one the
/// key is that of the group, all else is what it is in the first.
struct NumberedContent {
  BlockKey key, parent_key;
  std::uint64_t number = 0;         ///< see PrefixEnd
  std::uint64_t parent_number = 0;  ///< 0: it is a first block
  std::string salt;
  std::vector<TokenId> tokens;  ///< [block_size]
};

/// Whether the content, under a key that is the asked one (in some group), is what is asked for.
bool is_same(const NumberedContent& held, const BlockContent& asked);

class PrefixIndex {
 public:
  PrefixIndex(std::int32_t num_blocks, std::int32_t block_size, const CacheIdentity& identity,
              std::size_t num_groups = 1);

  /// Fills in the keys of the full blocks of `tokens` that the chain lacks.
  void extend(KeyChain& chain, std::span<const TokenId> tokens) const;

  /// The block with this content; kNullBlock if there is none, also if another content has the key.
  BlockId find(const BlockContent& content) const;

  struct Partial {
    BlockId block = kNullBlock;
    std::int32_t num_tokens = 0;
  };
  /// Of the last few blocks that continue `parent` and have all their companions: the one that agrees with the longest
  /// part of `tokens`, at least one and at most block_size. The latest of equal ones.
  Partial find_partial(const BlockKey& parent_key, PrefixEnd parent, std::string_view salt,
                       std::span<const TokenId> tokens) const;

  /// The prefix that ends with this keyed block.
  PrefixEnd end_at(BlockId block) const { return {entries_[block.value].number, block}; }
  /// False if the block has lost its key since.
  bool is_alive(PrefixEnd end) const { return end.number == 0 || entries_[end.block.value].number == end.number; }

  enum class Outcome {
    added,      ///< the block is keyed now
    known,      ///< another block (or this one) has this content: see `holder`
    displaced,  ///< `holder` had the key, but nobody could find it any more (its parent is gone): it must be forgotten,
                ///< then the block can be published
    collision,  ///< `holder` has the key for another content: this block stays without
  };
  struct Published {
    Outcome outcome;
    BlockId holder;
  };
  /// `block`, full and computed, has this content. `number`: the one that the content has elsewhere; 0: a new one.
  Published publish(BlockId block, const BlockContent& content, std::uint64_t number = 0);

  /// Of a keyed block, a companion too.
  NumberedContent content_of(BlockId block) const;
  /// The block is keyed, or a companion, and holds the content with this key and number.
  bool has_content(BlockId block, const BlockKey& key, std::uint64_t number) const;
  /// For content that is keyed elsewhere first.
  std::uint64_t new_number() { return next_number_++; }

  /// The companion of a keyed block of the first group in `group` >= 1; kNullBlock if there is none.
  BlockId companion(BlockId first, std::size_t group) const { return companions_[companion_place(first, group)]; }
  bool has_all_companions(BlockId first) const;

  /// `block`, which has no name, becomes the companion in `group` of `first`, which has none there.
  void add_companion(BlockId first, std::size_t group, BlockId block);

  /// The keyed block has no name any more; nor have its companions, which are appended to `orphans`.
  void forget(BlockId block, std::vector<BlockId>& orphans);

  /// The first violation of X1..X3, or nullopt. Recomputes all keys.
  std::optional<std::string> validate(const BlockPool& pool) const;

 private:
  static constexpr std::size_t kMaxCandidates = 4;
  struct Entry {
    std::uint64_t number = 0;  ///< 0: not keyed
    PrefixEnd parent;
    BlockKey key, parent_key;
    std::string salt;
  };
  /// What a companion goes with.
  struct Place {
    BlockId first = kNullBlock;  ///< kNullBlock: the block is no companion
    std::size_t group = 0;
  };
  struct Candidates {
    std::array<BlockId, kMaxCandidates> blocks;  ///< the latest first
    std::size_t count = 0;
  };

  Place place_of(BlockId block) const;
  std::span<const TokenId> tokens_of(BlockId block) const;
  bool continues(BlockId block, PrefixEnd parent, std::string_view salt) const;
  bool holds(BlockId block, const BlockContent& content) const;
  void add_candidate(const BlockKey& parent_key, BlockId block);
  void remove_candidate(const BlockKey& parent_key, BlockId block);
  std::size_t companion_place(BlockId first, std::size_t group) const {
    return first.value * (num_groups_ - 1) + group - 1;
  }
  std::optional<std::string> validate_entry(BlockId block) const;
  std::optional<std::string> validate_companion(BlockId block) const;
  std::optional<std::string> validate_candidates() const;

  BlockKey hash(std::string_view salt, const BlockKey* parent, std::span<const TokenId> tokens) const;

  const std::int32_t block_size_;
  const CacheIdentity identity_;
  const std::size_t num_groups_;
  std::vector<BlockId> companions_;                                  ///< [num_blocks + 1, num_groups - 1]
  std::vector<Place> place_of_;                                      ///< [num_blocks + 1]; empty with one group
  std::vector<Entry> entries_;                                       ///< [num_blocks + 1]
  std::vector<TokenId> tokens_;                                      ///< [num_blocks + 1][block_size]
  std::unordered_map<BlockKey, BlockId, BlockKeyHash> block_of_;     ///< looked up, never walked
  std::unordered_map<BlockKey, Candidates, BlockKeyHash> children_;  ///< by parent key; likewise
  std::uint64_t next_number_ = 1;
};

}  // namespace quire
