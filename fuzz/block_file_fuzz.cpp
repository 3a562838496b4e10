// Fuzzes the reader of block files: any bytes are taken or refused, and nothing is taken that does not say of itself,
// in every field, that it is what was asked for.

#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <string>
#include <vector>

#include "quire/base/check.h"
#include "quire/blockfile/block_file.h"

namespace {

using namespace quire;

/// Asked for by every input; fuzz/corpus/block_file has files of it.
struct Wanted {
  std::string salt = "salt";
  std::vector<TokenId> tokens{TokenId{1}, TokenId{2}, TokenId{300}};
  BlockIdentity identity() const {
    BlockIdentity identity{{}, {}, salt, tokens};
    identity.domain.bytes.fill(std::byte{0xD0});
    identity.key.bytes.fill(std::byte{0x4B});
    return identity;
  }
};

constexpr std::size_t kPayloadBytes = 64;

void decode(std::span<const std::byte> file) {
  const Wanted wanted;
  std::vector<std::byte> payload(kPayloadBytes);
  if (decode_block_file(file, wanted.identity(), payload) != BlockFileFault::none) return;
  // What is taken says the same as what we would have written.
  const Compression compression = file[84] == std::byte{0} ? Compression::none : Compression::zstd;
  const std::vector<std::byte> again = encode_block_file(wanted.identity(), payload, compression);
  QUIRE_CHECK(again.size() >= 108 && std::equal(again.begin(), again.begin() + 88, file.begin()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  decode(std::as_bytes(std::span(bytes, size)));
  // Also files that are nearly right.
  FuzzedDataProvider in(bytes, size);
  const Wanted wanted;
  std::vector<std::byte> payload(kPayloadBytes);
  for (std::byte& byte : payload) byte = static_cast<std::byte>(in.ConsumeIntegralInRange(0, 3));
  std::vector<std::byte> file =
      encode_block_file(wanted.identity(), payload, in.ConsumeBool() ? Compression::zstd : Compression::none);
  for (int i = in.ConsumeIntegralInRange(0, 4); i > 0; --i)
    file[in.ConsumeIntegralInRange<std::size_t>(0, file.size() - 1)] =
        static_cast<std::byte>(in.ConsumeIntegral<std::uint8_t>());
  if (in.ConsumeBool()) file.resize(in.ConsumeIntegralInRange<std::size_t>(0, file.size() + 8));
  decode(file);
  return 0;
}
