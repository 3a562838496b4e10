#pragma once
// ApiKeys: who may ask, and whose cached prefixes a request may find. With keys set, a request needs one of them as
// `Authorization: Bearer KEY`; requests of different keys share no cached content.
//
// Only SHA-256 digests of keys are kept and compared, so that neither the time of a comparison nor a log of salts tells
// anything about a key.
//
// Thread-safety: const methods from any thread.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/result.h"
#include "quire/kv/block_key.h"

namespace quire::server {

class ApiKeys {
 public:
  /// No keys: everybody may ask, and all are one tenant.
  ApiKeys() = default;

  /// Each key: 8 to 256 printable ASCII characters without spaces; an error says which (by number) is not.
  static Result<ApiKeys> create(const std::vector<std::string>& keys, const BlockHasher& hasher);

  /// True if a key is needed.
  bool required() const { return !digests_.empty(); }

  /// The tenant whose key the Authorization header names: a text that tells keys apart and does not reveal them. "" if
  /// no key is required; nullopt: the header (null: none came) has no key of ours.
  std::optional<std::string> tenant(const std::string* authorization) const;

 private:
  const BlockHasher* hasher_ = nullptr;  ///< outlives this
  std::vector<BlockKey> digests_;
};

/// The cache salt of a tenant's request that asked for `requested`. Different for different pairs.
std::string tenant_salt(std::string_view tenant, std::string_view requested);

}  // namespace quire::server
