#pragma once
// Digest: a 64-bit running digest for comparing runs (plans, logs, kernel grids). The same on every machine; not for
// security and not for identity of cached blocks, which use SHA-256 behind an interface.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace quire {

/// The finaliser of splitmix64: a bijection on 64 bits with good avalanche.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

class Digest {
 public:
  constexpr void add(std::uint64_t word) { state_ = mix64(state_ ^ (word + 0x9E3779B97F4A7C15ull)) + (state_ << 1); }

  void add_bytes(std::span<const std::byte> bytes) {
    add(bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, bytes.size() - at < 8 ? bytes.size() - at : 8);
      add(word);
    }
  }
  void add_text(std::string_view text) { add_bytes(std::as_bytes(std::span(text.data(), text.size()))); }
  void add_floats(std::span<const float> values) { add_bytes(std::as_bytes(values)); }

  constexpr std::uint64_t value() const { return mix64(state_); }

 private:
  std::uint64_t state_ = 0x51D2E5A1C0FFEE11ull;
};

}  // namespace quire
