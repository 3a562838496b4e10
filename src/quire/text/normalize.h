#pragma once
// Unicode normalisation of texts before tokenising. Internal to text/.

#include <string>
#include <string_view>

namespace quire {

/// `text` (valid UTF-8) in Unicode normalisation form C. O(n log n) in any text, also in long runs of combining marks.
std::string normalize_nfc(std::string_view text);

}  // namespace quire
