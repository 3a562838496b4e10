#include "quire/blockfile/block_file.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "quire/base/check.h"
#include "quire/base/crc32c.h"

namespace quire {
namespace {

constexpr std::string_view kMagic = "QUIREKVB";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kFixedBytes = 108;
constexpr int kZstdLevel = 1;

using Bytes = std::span<const std::byte>;

template <class T>
void put(std::vector<std::byte>& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), first, first + sizeof value);
}

template <class T>
T read_at(Bytes bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::vector<std::byte> compress(Bytes payload) {
  std::vector<std::byte> out(ZSTD_compressBound(payload.size()));
  const std::size_t size = ZSTD_compress(out.data(), out.size(), payload.data(), payload.size(), kZstdLevel);
  QUIRE_CHECK(ZSTD_isError(size) == 0, "zstd: ", ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

/// Header and salt and tokens, without the checksum; compared with a file's bytes as they are.
std::vector<std::byte> encode_header(const BlockIdentity& identity, Bytes stored, std::size_t payload_bytes,
                                     Compression compression) {
  std::vector<std::byte> out;
  out.reserve(kFixedBytes + identity.salt.size() + 4 * identity.tokens.size() + 4 + stored.size());
  for (char c : kMagic) out.push_back(static_cast<std::byte>(c));
  put(out, kVersion);
  put(out, identity.domain.bytes);
  put(out, identity.key.bytes);
  put(out, static_cast<std::uint32_t>(identity.salt.size()));
  put(out, static_cast<std::uint32_t>(identity.tokens.size()));
  put(out, static_cast<std::uint32_t>(compression));
  put(out, static_cast<std::uint64_t>(stored.size()));
  put(out, static_cast<std::uint64_t>(payload_bytes));
  put(out, crc32c(stored));
  QUIRE_CHECK(out.size() == kFixedBytes, out.size());
  for (char c : identity.salt) out.push_back(static_cast<std::byte>(c));
  for (TokenId token : identity.tokens) put(out, token.value);
  return out;
}

bool unpack(Bytes stored, std::uint32_t compression, std::span<std::byte> payload) {
  if (compression == static_cast<std::uint32_t>(Compression::none)) {
    if (stored.size() != payload.size()) return false;
    std::copy(stored.begin(), stored.end(), payload.begin());
    return true;
  }
  if (compression != static_cast<std::uint32_t>(Compression::zstd)) return false;
  return ZSTD_decompress(payload.data(), payload.size(), stored.data(), stored.size()) == payload.size();
}

bool holds(Bytes header, const BlockIdentity& wanted) {
  const auto salt = header.subspan(kFixedBytes, wanted.salt.size());
  const auto tokens = header.subspan(kFixedBytes + wanted.salt.size());
  return std::ranges::equal(header.subspan(44, 32), wanted.key.bytes) &&
         std::ranges::equal(salt, std::as_bytes(std::span(wanted.salt))) &&
         std::ranges::equal(tokens.first(4 * wanted.tokens.size()), std::as_bytes(wanted.tokens));
}

}  // namespace

std::vector<std::byte> encode_block_file(const BlockIdentity& identity, Bytes payload, Compression compression) {
  static_assert(sizeof(TokenId) == 4);
  std::vector<std::byte> packed;
  if (compression == Compression::zstd) packed = compress(payload);
  const Bytes stored = compression == Compression::zstd ? Bytes(packed) : payload;
  std::vector<std::byte> out = encode_header(identity, stored, payload.size(), compression);
  put(out, crc32c(out));
  out.insert(out.end(), stored.begin(), stored.end());
  return out;
}

std::uint64_t max_block_file_bytes(const BlockIdentity& identity, std::size_t payload_bytes) {
  return kFixedBytes + identity.salt.size() + 4 * identity.tokens.size() + 4 + ZSTD_compressBound(payload_bytes);
}

BlockFileFault decode_block_file(Bytes file, const BlockIdentity& wanted, std::span<std::byte> payload) {
  if (file.size() < kFixedBytes) return BlockFileFault::cut;
  if (!std::ranges::equal(file.first(8), std::as_bytes(std::span(kMagic))) ||
      read_at<std::uint32_t>(file, 8) != kVersion)
    return BlockFileFault::not_a_block_file;
  const std::uint64_t salt_bytes = read_at<std::uint32_t>(file, 76);
  const std::uint64_t num_tokens = read_at<std::uint32_t>(file, 80);
  const std::uint64_t header_bytes = kFixedBytes + salt_bytes + 4 * num_tokens;  // below 2^36
  if (file.size() < header_bytes + 4) return BlockFileFault::cut;
  const Bytes header = file.first(header_bytes);
  if (read_at<std::uint32_t>(file, header_bytes) != crc32c(header)) return BlockFileFault::header_damaged;
  if (!std::ranges::equal(file.subspan(12, 32), wanted.domain.bytes)) return BlockFileFault::other_domain;
  if (salt_bytes != wanted.salt.size() || num_tokens != wanted.tokens.size() || !holds(header, wanted) ||
      read_at<std::uint64_t>(file, 96) != payload.size())
    return BlockFileFault::other_content;
  const Bytes stored = file.subspan(header_bytes + 4);
  if (read_at<std::uint64_t>(file, 88) != stored.size()) return BlockFileFault::cut;
  if (read_at<std::uint32_t>(file, 104) != crc32c(stored)) return BlockFileFault::payload_damaged;
  return unpack(stored, read_at<std::uint32_t>(file, 84), payload) ? BlockFileFault::none
                                                                   : BlockFileFault::payload_damaged;
}

TransferOutcome outcome_of(BlockFileFault fault) {
  switch (fault) {
    case BlockFileFault::none:
      return TransferOutcome::done;
    case BlockFileFault::other_domain:
    case BlockFileFault::other_content:
      return TransferOutcome::mismatch;
    default:
      return TransferOutcome::damaged;
  }
}

}  // namespace quire
