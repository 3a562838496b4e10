#pragma once
// The alphabet of byte-level vocabularies: each byte is written as one printable character, bytes that print as
// themselves (! to ~, U+00A1 to U+00AC, U+00AE to U+00FF), the other 68 as U+0100 and on, in order of the byte. So a
// space is U+0120. Internal to text/.

#include <optional>
#include <string>
#include <string_view>

namespace quire {

/// The character, in UTF-8, that a byte-level vocabulary writes for `byte`.
std::string byte_level_character(unsigned char byte);

/// The bytes of a token's name; nullopt if it has a character outside the alphabet or is not UTF-8.
std::optional<std::string> byte_level_bytes(std::string_view name);

}  // namespace quire
