#include <immintrin.h>

#include "quire/base/crc32c_kernels.h"

namespace quire {

std::uint32_t crc32c_avx2(const std::byte* bytes, std::size_t count, std::uint32_t crc) {
  std::uint64_t state = crc;
  std::size_t at = 0;
  for (; at + 8 <= count; at += 8) {
    std::uint64_t word;
    __builtin_memcpy(&word, bytes + at, 8);
    state = _mm_crc32_u64(state, word);
  }
  crc = static_cast<std::uint32_t>(state);
  for (; at < count; ++at) crc = _mm_crc32_u8(crc, static_cast<std::uint8_t>(bytes[at]));
  return crc;
}

}  // namespace quire
