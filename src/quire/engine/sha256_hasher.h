#pragma once
// Sha256Hasher: SHA-256 from libcrypto, for the keys of cached blocks and for digests of files.
// Thread-safety: hash() may be called from any thread.

#include <memory>
#include <span>

#include "quire/base/result.h"
#include "quire/kv/block_key.h"

namespace quire::engine {

class Sha256Hasher final : public BlockHasher {
 public:
  /// An error if libcrypto has no SHA-256 to offer.
  static Result<std::unique_ptr<Sha256Hasher>> create();
  ~Sha256Hasher() override;

  BlockKey hash(std::span<const std::byte> message) const override;

 private:
  struct State;
  explicit Sha256Hasher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire::engine
