#include "quire/base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "quire/base/crc32c_kernels.h"

namespace quire {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Crc32c, HasTheValuesOfTheStandard) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0x00})), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43u);
  std::vector<std::byte> rising(32);
  for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
}

TEST(Crc32c, OfPartsIsThatOfTheWhole) {
  constexpr std::string_view kText = "a block of KV, a strip of weights, anything at all";
  for (std::size_t cut = 0; cut <= kText.size(); ++cut) {
    EXPECT_EQ(crc32c(bytes_of(kText.substr(cut)), crc32c(bytes_of(kText.substr(0, cut)))), crc32c(bytes_of(kText)));
  }
}

TEST(Crc32c, IsTheSameByTableOnEveryCpu) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < 300; ++i) bytes.push_back(static_cast<std::byte>(i * 37 >> 3));
  for (std::size_t count = 0; count <= bytes.size(); ++count) {
    for (std::uint32_t before : {0u, 0xFFFFFFFFu, 0x12345678u}) {
      ASSERT_EQ(crc32c(std::span(bytes).first(count), before), ~crc32c_by_table(bytes.data(), count, ~before)) << count;
    }
  }
}

TEST(Crc32c, AnyFlippedBitChangesIt) {
  std::vector<std::byte> bytes(37, std::byte{0x5A});
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_NE(crc32c(bytes), whole) << "bit " << bit;
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
  }
}

}  // namespace
}  // namespace quire
