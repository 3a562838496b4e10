#pragma once
// CRC-32C without the inversions at both ends. Internal to crc32c.cpp.

#include <cstddef>
#include <cstdint>

namespace quire {

std::uint32_t crc32c_by_table(const std::byte* bytes, std::size_t count, std::uint32_t crc);
/// By the CPU's own instruction, which every CPU of the tier avx2 has.
std::uint32_t crc32c_avx2(const std::byte* bytes, std::size_t count, std::uint32_t crc);

}  // namespace quire
