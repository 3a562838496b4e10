#pragma once
// Files as bytes: read whole, gunzipped if they are gzip, and the members of a tar archive. The only module that sees
// zlib. Errors name the file, and what was found and wanted.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"

namespace quire {

/// Bounds against files that are something else.
inline constexpr std::uint64_t kMaxTraceBytes = std::uint64_t{2} << 30;

/// The whole file, unpacked if it begins like gzip. At most kMaxTraceBytes, before and after.
Result<std::string> read_trace_bytes(const std::string& path);

/// `bytes` as they are, or unpacked if they begin like gzip (several members one after another are joined). A stream
/// that is cut or damaged is an error that says behind how many bytes, and, the unpacked part being text, in which row
/// and column.
Result<std::string> unpack(std::string_view name, std::string_view bytes);

/// A regular file in a tar archive; both views point into the archive.
struct TarMember {
  std::string name;
  std::string_view content;
};
bool looks_like_tar(std::string_view bytes);
Result<std::vector<TarMember>> read_tar(std::string_view name, std::string_view bytes);

}  // namespace quire
