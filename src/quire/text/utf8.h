#pragma once
// UTF-8: checking, decoding, and turning arbitrary bytes into valid text.
//
// Valid means well-formed by Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
// Replacement follows the Unicode recommendation (section 3.9, "U+FFFD substitution of maximal subparts"): each maximal
// subpart of an ill-formed sequence becomes one U+FFFD, the same as in web browsers and in Python's errors="replace".
//
// All functions are linear in the bytes they are given.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  ///< U+FFFD

/// What stands at the front of some bytes.
struct Utf8Step {
  enum class Kind : std::uint8_t {
    character,   ///< one code point of `length` bytes
    invalid,     ///< `length` bytes that no continuation can make valid: a maximal subpart
    incomplete,  ///< all of the bytes given, `length` of them (1 to 3), begin a character and end too early
  };
  Kind kind;
  std::uint8_t length;  ///< at least 1
  char32_t code_point;  ///< of a character; otherwise U+FFFD
};

/// Looks at the first bytes of `bytes`, which is not empty.
Utf8Step utf8_step(std::string_view bytes);

/// The position of the first byte of the first ill-formed (or cut) sequence; nullopt if all of it is valid.
std::optional<std::size_t> first_invalid_utf8(std::string_view bytes);

inline bool is_valid_utf8(std::string_view bytes) { return !first_invalid_utf8(bytes); }

/// `bytes` with every maximal subpart of ill-formed bytes replaced by one U+FFFD; valid text comes back unchanged.
std::string replace_invalid_utf8(std::string_view bytes);

void append_utf8(std::string& out, char32_t code_point);

/// Bytes that arrive in pieces, as text. Invariants, whatever the split into pieces:
///  1. each returned string is valid UTF-8;
///  2. the strings returned by all push() and the finish() joined = replace_invalid_utf8(all bytes joined);
///  3. at most 3 bytes are held, and only while they can still become a character.
/// One per stream; not thread-safe.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  /// The end of the stream: a held beginning of a character becomes one U+FFFD. The stream is then as new.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace quire
