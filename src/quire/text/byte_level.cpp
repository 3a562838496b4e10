#include "quire/text/byte_level.h"

#include <array>

#include "quire/text/utf8.h"

namespace quire {
namespace {

constexpr char32_t kAlphabetEnd = 0x144;  // 256 + 68: one above the last character

constexpr bool prints_as_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, kAlphabetEnd> byte{};  // -1: not in the alphabet

  constexpr Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      character[b] = prints_as_itself(b) ? b : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

std::string byte_level_character(unsigned char byte) {
  std::string out;
  append_utf8(out, kAlphabet.character[byte]);
  return out;
}

std::optional<std::string> byte_level_bytes(std::string_view name) {
  std::string out;
  out.reserve(name.size());
  while (!name.empty()) {
    const Utf8Step step = utf8_step(name);
    if (step.kind != Utf8Step::Kind::character || step.code_point >= kAlphabetEnd) return std::nullopt;
    const std::int16_t byte = kAlphabet.byte[step.code_point];
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    name.remove_prefix(step.length);
  }
  return out;
}

}  // namespace quire
