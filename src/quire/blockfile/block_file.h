#pragma once
// A block file: the K and V of one full block, all heads and all layers of its layer group, with everything that has to
// agree before they may be used. Blocks of all groups are of one size. Little-endian:
//
//     0    8 bytes  "QUIREKVB"
//     8    u32      version, 1
//    12    32 bytes domain (engine/cache_domain.h): model, KV type and layout, arithmetic
//    44    32 bytes key of the block, which says the layer group too (kv/block_key.h)
//    76    u32      bytes of the salt
//    80    u32      number of tokens: those of the whole prefix, from position 0 to the end of the block
//    84    u32      compression: 0 none, 1 zstd
//    88    u64      bytes of the payload as stored
//    96    u64      bytes of the payload
//   104    u32      CRC-32C of the payload as stored
//   108    the salt, then an i32 for each token
//    then  u32      CRC-32C of all bytes before
//    then  the payload as stored, to the end of the file
//
// The key is a hash and is not trusted: salt and tokens are compared. So a file that is taken holds exactly what was
// asked for, whatever its name says (invariant I12).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"
#include "quire/kv/block_key.h"
#include "quire/kv/tier_changes.h"

namespace quire {

/// What a block file is of.
struct BlockIdentity {
  BlockKey domain, key;
  std::string_view salt;
  std::span<const TokenId> tokens;
};

enum class Compression : std::uint8_t { none = 0, zstd = 1 };

std::vector<std::byte> encode_block_file(const BlockIdentity& identity, std::span<const std::byte> payload,
                                         Compression compression);

/// No block file of this is larger.
std::uint64_t max_block_file_bytes(const BlockIdentity& identity, std::size_t payload_bytes);

enum class BlockFileFault : std::uint8_t {
  none,
  not_a_block_file,  ///< other magic or version
  cut,               ///< the file ends early, or goes on behind its end
  header_damaged,
  payload_damaged,
  other_domain,
  other_content,  ///< another key, salt, token or payload size
};

/// Fills `payload`, whose size is the expected one, from a file's bytes. They may be anything. Unless the result is
/// none, what `payload` holds is unspecified.
BlockFileFault decode_block_file(std::span<const std::byte> file, const BlockIdentity& wanted,
                                 std::span<std::byte> payload);

/// done, damaged or mismatch.
TransferOutcome outcome_of(BlockFileFault fault);

}  // namespace quire
