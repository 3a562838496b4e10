#include "quire/server/api_keys.h"

#include <algorithm>
#include <span>

#include "quire/base/cat.h"

namespace quire::server {
namespace {

BlockKey digest_of(const BlockHasher& hasher, std::string_view key) {
  const std::string message = cat("quire-api-key:", key);
  return hasher.hash(std::as_bytes(std::span(message)));
}

bool is_key(std::string_view key) {
  return key.size() >= 8 && key.size() <= 256 &&
         std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < '\x7F'; });
}

/// RFC 9110, 11.1: the scheme's name is case-insensitive.
bool is_bearer(std::string_view scheme) {
  constexpr std::string_view kBearer = "bearer";
  return std::equal(scheme.begin(), scheme.end(), kBearer.begin(), kBearer.end(),
                    [](char a, char b) { return (a | 0x20) == b; });
}

}  // namespace

Result<ApiKeys> ApiKeys::create(const std::vector<std::string>& keys, const BlockHasher& hasher) {
  ApiKeys result;
  result.hasher_ = &hasher;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!is_key(keys[i]))
      return fail(cat("API key ", i + 1, ": wanted 8 to 256 printable ASCII characters without spaces, found ",
                      keys[i].size(), " bytes"));
    result.digests_.push_back(digest_of(hasher, keys[i]));
  }
  return result;
}

std::optional<std::string> ApiKeys::tenant(const std::string* authorization) const {
  if (!required()) return "";
  if (authorization == nullptr) return std::nullopt;
  const std::string_view header = *authorization;
  const std::size_t space = header.find(' ');
  if (space == std::string_view::npos || !is_bearer(header.substr(0, space))) return std::nullopt;
  const std::size_t begin = header.find_first_not_of(' ', space);
  if (begin == std::string_view::npos) return std::nullopt;
  const BlockKey digest = digest_of(*hasher_, header.substr(begin));
  if (std::find(digests_.begin(), digests_.end(), digest) == digests_.end()) return std::nullopt;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string tenant;
  for (std::byte byte : digest.bytes) {
    tenant += kDigits[std::to_integer<unsigned>(byte) >> 4];
    tenant += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return tenant;
}

std::string tenant_salt(std::string_view tenant, std::string_view requested) {
  if (tenant.empty()) return std::string(requested);
  return cat("key ", tenant, requested.empty() ? "" : " salt ", requested);
}

}  // namespace quire::server
