#pragma once
// The parser behind GgufFile: an image of bytes to keys and tensors, or an error. Nothing is allocated for a count or a
// length of the file before it was compared with the bytes that are left; memory stays within a small multiple of the
// image. Names quoted in messages are cut and escaped, so that a file cannot write to the terminal.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/model/gguf.h"

namespace quire::model::gguf {

inline constexpr std::uint64_t kMaxArrayElements = 1u << 24;
inline constexpr std::uint64_t kMinAlignment = 8, kMaxAlignment = 65536;

struct Contents {
  std::uint32_t version = 0;
  std::uint32_t alignment = 0;
  std::vector<GgufKey> keys;
  std::vector<GgufTensor> tensors;
};

Result<Contents> read_contents(std::span<const std::byte> image);

/// The number of a format in a file.
std::uint32_t type_number(DType dtype);

/// A name from a file, in single quotes, made fit for a message.
std::string quoted(std::string_view name);

}  // namespace quire::model::gguf
