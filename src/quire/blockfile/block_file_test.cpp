#include "quire/blockfile/block_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "quire/base/crc32c.h"
#include "quire/base/rng.h"

namespace quire {
namespace {

std::vector<std::byte> random_bytes(std::uint64_t seed, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(random_at(seed, i / 50) & 0xFF);
  return bytes;
}

struct Sample {
  std::vector<TokenId> tokens{TokenId{1}, TokenId{-1}, TokenId{70000}, TokenId{321}};
  std::string salt = "tenant";
  std::vector<std::byte> payload = random_bytes(1, 1000);
  BlockIdentity identity() const {
    BlockIdentity identity{{}, {}, salt, tokens};
    identity.domain.bytes[3] = std::byte{7};
    identity.key.bytes[31] = std::byte{9};
    return identity;
  }
};

BlockFileFault decode(const std::vector<std::byte>& file, const BlockIdentity& wanted,
                      std::size_t payload_bytes = 1000) {
  std::vector<std::byte> payload(payload_bytes);
  return decode_block_file(file, wanted, payload);
}

TEST(BlockFile, GivesBackWhatWasPutIn) {
  const Sample sample;
  for (Compression compression : {Compression::none, Compression::zstd}) {
    const auto file = encode_block_file(sample.identity(), sample.payload, compression);
    std::vector<std::byte> payload(1000);
    EXPECT_EQ(decode_block_file(file, sample.identity(), payload), BlockFileFault::none);
    EXPECT_EQ(payload, sample.payload);
    EXPECT_LE(file.size(), max_block_file_bytes(sample.identity(), 1000));
    EXPECT_EQ(file.size() < 1000, compression == Compression::zstd);
  }
}

// I12: a file that says it is something else in any field is not taken.
TEST(BlockFile, OtherContentIsNotTaken) {
  const Sample sample;
  const auto file = encode_block_file(sample.identity(), sample.payload, Compression::none);
  BlockIdentity wanted = sample.identity();
  wanted.domain.bytes[0] = std::byte{1};
  EXPECT_EQ(decode(file, wanted), BlockFileFault::other_domain);
  wanted = sample.identity();
  wanted.key.bytes[0] = std::byte{1};
  EXPECT_EQ(decode(file, wanted), BlockFileFault::other_content);
  for (const std::string salt : {"", "tenans", "tenant2"}) {
    wanted = sample.identity();
    wanted.salt = salt;
    EXPECT_EQ(decode(file, wanted), BlockFileFault::other_content) << salt;
  }
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    auto tokens = sample.tokens;
    tokens[i].value += 256;
    wanted = sample.identity();
    wanted.tokens = tokens;
    EXPECT_EQ(decode(file, wanted), BlockFileFault::other_content) << i;
  }
  wanted = sample.identity();
  wanted.tokens = std::span(sample.tokens).first(3);
  EXPECT_EQ(decode(file, wanted), BlockFileFault::other_content);
  EXPECT_EQ(decode(file, sample.identity(), 999), BlockFileFault::other_content);
  EXPECT_EQ(decode(file, sample.identity()), BlockFileFault::none);
}

TEST(BlockFile, EveryFlippedBitIsNoticed) {
  const Sample sample;
  for (Compression compression : {Compression::none, Compression::zstd}) {
    auto file = encode_block_file(sample.identity(), sample.payload, compression);
    for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
      const auto mask = static_cast<std::byte>(1 << bit % 8);
      file[bit / 8] ^= mask;
      ASSERT_NE(decode(file, sample.identity()), BlockFileFault::none) << "bit " << bit;
      file[bit / 8] ^= mask;
    }
  }
}

TEST(BlockFile, AnyCutAndAnyTailIsNoticed) {
  const Sample sample;
  auto file = encode_block_file(sample.identity(), sample.payload, Compression::none);
  for (std::size_t size = 0; size < file.size(); ++size) {
    const std::vector<std::byte> part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_EQ(decode(part, sample.identity()), BlockFileFault::cut) << size;
  }
  file.push_back(std::byte{0});
  EXPECT_EQ(decode(file, sample.identity()), BlockFileFault::cut);
}

TEST(BlockFile, APayloadWhoseChecksumIsRightButIsNoZstdIsDamaged) {
  const Sample sample;
  auto file = encode_block_file(sample.identity(), sample.payload, Compression::none);
  file[84] = std::byte{1};  // the header says zstd, and its checksum is made right again
  const std::size_t header_bytes = 108 + sample.salt.size() + 4 * sample.tokens.size();
  const std::uint32_t crc = crc32c(std::span(file).first(header_bytes));
  std::memcpy(file.data() + header_bytes, &crc, 4);
  EXPECT_EQ(decode(file, sample.identity()), BlockFileFault::payload_damaged);
}

}  // namespace
}  // namespace quire
