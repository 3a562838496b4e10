#include "quire/engine/sha256_hasher.h"

#include <openssl/evp.h>

#include "quire/base/check.h"

namespace quire::engine {

/// The algorithm is fetched once: looking it up by name costs more than hashing a block.
struct Sha256Hasher::State {
  EVP_MD* algorithm;
  ~State() { EVP_MD_free(algorithm); }
};

Sha256Hasher::Sha256Hasher(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sha256Hasher::~Sha256Hasher() = default;

Result<std::unique_ptr<Sha256Hasher>> Sha256Hasher::create() {
  EVP_MD* algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  if (algorithm == nullptr) return fail("libcrypto offers no SHA-256; the prefix cache needs it");
  return std::unique_ptr<Sha256Hasher>(new Sha256Hasher(std::unique_ptr<State>(new State{algorithm})));
}

BlockKey Sha256Hasher::hash(std::span<const std::byte> message) const {
  BlockKey key;
  unsigned int length = 0;
  const int done = EVP_Digest(message.data(), message.size(), reinterpret_cast<unsigned char*>(key.bytes.data()),
                              &length, state_->algorithm, nullptr);
  QUIRE_CHECK(done == 1 && length == key.bytes.size(), "SHA-256 failed, of ", message.size(), " bytes");
  return key;
}

}  // namespace quire::engine
