#include "quire/kv/block_key.h"

#include "quire/base/hash.h"

namespace quire {
namespace {

enum class FieldTag : std::uint8_t { version = 1, domain = 2, salt = 3, parent = 4, tokens = 5 };

template <class Integer>
void put(std::vector<std::byte>& out, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i) & 0xFF));
}

void put_field(std::vector<std::byte>& out, FieldTag tag, std::uint64_t num_bytes) {
  put(out, static_cast<std::uint8_t>(tag));
  put(out, num_bytes);
}

void put_key(std::vector<std::byte>& out, FieldTag tag, const BlockKey& key) {
  put_field(out, tag, key.bytes.size());
  out.insert(out.end(), key.bytes.begin(), key.bytes.end());
}

}  // namespace

BlockKey DigestHasher::hash(std::span<const std::byte> message) const {
  BlockKey key;
  for (std::uint64_t lane = 0; lane < 4; ++lane) {
    Digest digest;
    digest.add(lane);
    digest.add_bytes(message);
    const std::uint64_t word = digest.value();
    for (std::size_t i = 0; i < 8; ++i) key.bytes[8 * lane + i] = static_cast<std::byte>(word >> (8 * i) & 0xFF);
  }
  return key;
}

std::vector<std::byte> block_key_message(const BlockKey& domain, std::string_view salt, const BlockKey* parent,
                                         std::span<const TokenId> tokens) {
  std::vector<std::byte> message;
  message.reserve(5 * 9 + 4 + 64 + salt.size() + 4 * tokens.size());
  put_field(message, FieldTag::version, sizeof kBlockKeyVersion);
  put(message, kBlockKeyVersion);
  put_key(message, FieldTag::domain, domain);
  put_field(message, FieldTag::salt, salt.size());
  for (char c : salt) message.push_back(static_cast<std::byte>(c));
  if (parent) put_key(message, FieldTag::parent, *parent);
  put_field(message, FieldTag::tokens, 4 * tokens.size());
  for (TokenId token : tokens) put(message, static_cast<std::uint32_t>(token.value));
  return message;
}

void extend_chain(KeyChain& chain, const CacheIdentity& identity, std::size_t block_size,
                  std::span<const TokenId> tokens) {
  const auto hash = [&](const BlockKey* parent, std::span<const TokenId> block) {
    const std::vector<std::byte> message = block_key_message(identity.domain, chain.salt, parent, block);
    return identity.hasher ? identity.hasher->hash(message) : DigestHasher().hash(message);
  };
  if (!chain.has_root) chain.root = hash(nullptr, {});
  chain.has_root = true;
  while ((chain.keys.size() + 1) * block_size <= tokens.size()) {
    const std::size_t block = chain.keys.size();
    chain.keys.push_back(hash(&chain.parent_of(block), tokens.subspan(block * block_size, block_size)));
  }
}

}  // namespace quire
