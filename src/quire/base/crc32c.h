#pragma once
// CRC-32C (Castagnoli; reflected polynomial 0x82F63B78, as in iSCSI, RFC 3720 B.4): finds damaged bytes. No identity:
// anybody can make it collide.

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

/// Of `bytes`; or, with the value of what came before, of both together: crc32c(b, crc32c(a)) is that of a and b
/// joined.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace quire
