#pragma once
// Little-endian integers in a byte string, for the command log.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace quire {

class ByteWriter {
 public:
  template <class Integer>
  void put(Integer value) {
    const auto bits = static_cast<std::make_unsigned_t<Integer>>(value);
    for (std::size_t i = 0; i < sizeof bits; ++i) bytes_.push_back(static_cast<std::byte>(bits >> (8 * i) & 0xFF));
  }
  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    for (char c : text) bytes_.push_back(static_cast<std::byte>(c));
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads past the end give 0 and set failed(); nothing is sized from a count before it is compared with the bytes left.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class Integer>
  Integer get() {
    std::make_unsigned_t<Integer> bits = 0;
    if (bytes_left() < sizeof bits) return failed_ = true, Integer{0};
    for (std::size_t i = 0; i < sizeof bits; ++i)
      bits |= static_cast<std::make_unsigned_t<Integer>>(
          static_cast<std::make_unsigned_t<Integer>>(std::to_integer<std::uint8_t>(bytes_[at_ + i])) << (8 * i));
    at_ += sizeof bits;
    return static_cast<Integer>(bits);
  }

  /// A u32 count of items of item_bytes each; 0, and failed(), if the bytes left cannot hold them.
  std::uint32_t get_count(std::size_t item_bytes) {
    const auto count = get<std::uint32_t>();
    if (count > bytes_left() / item_bytes) return failed_ = true, 0;
    return count;
  }

  std::string get_text() {
    std::string text(get_count(1), '\0');
    for (char& c : text) c = static_cast<char>(get<std::uint8_t>());
    return text;
  }

  std::size_t position() const { return at_; }
  std::size_t bytes_left() const { return bytes_.size() - at_; }
  bool failed() const { return failed_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace quire
