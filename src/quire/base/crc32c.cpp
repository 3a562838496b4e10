#include "quire/base/crc32c.h"

#include <array>
#include <cstring>

#include "quire/base/cpu.h"
#include "quire/base/crc32c_kernels.h"

namespace quire {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

/// tables[n][b]: the remainder of byte b followed by n zero bytes, so that eight bytes are taken at a time.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ ((remainder & 1) != 0 ? 0x82F63B78u : 0);
    tables[0][byte] = remainder;
  }
  for (std::size_t n = 1; n < tables.size(); ++n) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[n - 1][byte];
      tables[n][byte] = before >> 8 ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32c_by_table(const std::byte* bytes, std::size_t count, std::uint32_t crc) {
  std::size_t at = 0;
  for (; at + 8 <= count; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes + at, 8);
    word ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][word >> 8 * i & 0xFF];
  }
  for (; at < count; ++at) crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<std::uint32_t>(bytes[at])) & 0xFF];
  return crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  const auto kernel = cpu_supports(CpuTier::avx2) ? crc32c_avx2 : crc32c_by_table;
  return ~kernel(bytes.data(), bytes.size(), ~before);
}

}  // namespace quire
