#pragma once
// BlockKey: the name of a full KV block's content: everything that decides it, hashed. Two blocks with equal keys hold
// equal bits unless the hash collides, and a collision is harmless: whoever finds a block by its key compares tokens.
//
//     key = H( version | domain | salt | parent key | token ids )
//
// Each field is written as a tag (one byte), its length in bytes (u64) and its bytes, so that no two lists of fields
// give the same message; token ids are 32-bit little-endian integers. The parent of a sequence's first block is the
// root of its salt: the same message without tokens and without a parent.
//
// A block holds the layers of one layer group (kv/layer_groups.h). A chain has the keys of the first group; in_group()
// has those of the others. The group goes into the key behind the hash, so that what is compared says it too: of one
// content (salt and tokens of the whole prefix) keys of different groups differ, whatever the hash.
//
// What must be part of `domain` is listed at engine/cache_domain.h. The hash is an interface, because the deciding half
// links no crypto library: the engine brings SHA-256 (engine/sha256_hasher.h).

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

struct BlockKey {
  std::array<std::byte, 32> bytes{};
  friend auto operator<=>(const BlockKey&, const BlockKey&) = default;
};

/// The key of the block that holds, of layer group `group` < kMaxLayerGroups, what the block with `key` holds of the
/// first one, whose keys stay as they are.
inline BlockKey in_group(BlockKey key, std::size_t group) {
  key.bytes[0] ^= static_cast<std::byte>(group);
  return key;
}

/// For hash tables that are looked up and never walked.
struct BlockKeyHash {
  std::size_t operator()(const BlockKey& key) const {
    std::size_t word = 0;
    std::memcpy(&word, key.bytes.data(), sizeof word);
    return word;
  }
};

class BlockHasher {
 public:
  virtual ~BlockHasher() = default;
  /// A function of the message alone.
  virtual BlockKey hash(std::span<const std::byte> message) const = 0;
};

/// A hasher without a crypto library, from Digest: for replay, the simulator and tests. Anybody can make it collide, so
/// a server must not use it.
class DigestHasher final : public BlockHasher {
 public:
  BlockKey hash(std::span<const std::byte> message) const override;
};

/// Gives every message the same key: for tests of what collisions do (nothing but lost hits).
class CollidingHasher final : public BlockHasher {
 public:
  BlockKey hash(std::span<const std::byte>) const override { return BlockKey{}; }
};

/// Whose blocks these are. `hasher` outlives whoever gets it; null: a DigestHasher.
struct CacheIdentity {
  const BlockHasher* hasher = nullptr;
  BlockKey domain;  ///< model, formats and arithmetic: blocks of another domain are never found
};

inline constexpr std::uint32_t kBlockKeyVersion = 1;

/// The message that is hashed; tokens may be empty, parent null: see above.
std::vector<std::byte> block_key_message(const BlockKey& domain, std::string_view salt, const BlockKey* parent,
                                         std::span<const TokenId> tokens);

/// The keys of one sequence's full blocks. Kept by whoever owns the tokens, filled by the KV manager, valid for as long
/// as the tokens are only appended to.
struct KeyChain {
  std::string salt;  ///< sequences of different salts share nothing
  BlockKey root;     ///< meaningful once has_root
  bool has_root = false;
  std::vector<BlockKey> keys;  ///< of blocks 0, 1, ...
  SequenceId kept;             ///< the preempted sequence whose content the KV manager keeps; 0: none

  const BlockKey& parent_of(std::size_t block) const { return block == 0 ? root : keys[block - 1]; }
};

/// Fills in the keys of the full blocks of `tokens` that the chain lacks.
void extend_chain(KeyChain& chain, const CacheIdentity& identity, std::size_t block_size,
                  std::span<const TokenId> tokens);

}  // namespace quire
