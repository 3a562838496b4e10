#include "quire/kv/tier_changes.h"

#include <algorithm>

namespace quire {
namespace {

void add_content(Digest& digest, const FileContent& content) {
  digest.add_bytes(content.key.bytes);
  digest.add_text(content.salt);
  digest.add(std::uint64_t{static_cast<std::uint32_t>(content.tokens_offset)} << 32 |
             static_cast<std::uint32_t>(content.num_tokens));
}

}  // namespace

void TierChanges::clear() {
  writes.clear();
  stores.clear();
  loads.clear();
  reads.clear();
  tokens.clear();
  last_stretch = 0;
}

std::int32_t TierChanges::add_tokens(std::span<const TokenId> prefix) {
  const std::size_t num_known = std::min(tokens.size() - last_stretch, prefix.size());
  if (!std::equal(prefix.begin(), prefix.begin() + static_cast<std::ptrdiff_t>(num_known),
                  tokens.begin() + static_cast<std::ptrdiff_t>(last_stretch)))
    last_stretch = tokens.size();
  const std::size_t num_there = std::min(tokens.size() - last_stretch, prefix.size());
  tokens.insert(tokens.end(), prefix.begin() + static_cast<std::ptrdiff_t>(num_there), prefix.end());
  return static_cast<std::int32_t>(last_stretch);
}

void TierChanges::add_to(Digest& digest) const {
  digest.add(writes.size());
  for (const FileWrite& write : writes) {
    digest.add(write.transfer.value);
    digest.add(std::uint64_t{write.block.value} << 32 | write.frame.value);
    add_content(digest, write.content);
  }
  digest.add(stores.size());
  for (const FrameStore& store : stores) digest.add(std::uint64_t{store.from.value} << 32 | store.to.value);
  digest.add(loads.size());
  for (const FrameLoad& load : loads) digest.add(std::uint64_t{load.from.value} << 32 | load.to.value);
  digest.add(reads.size());
  for (const FileRead& read : reads) {
    digest.add(read.transfer.value);
    digest.add(read.to.value);
    add_content(digest, read.content);
  }
  digest.add(tokens.size());
  for (TokenId token : tokens) digest.add(static_cast<std::uint32_t>(token.value));
}

std::string_view to_string(TransferOutcome outcome) {
  switch (outcome) {
    case TransferOutcome::done:
      return "done";
    case TransferOutcome::missing:
      return "missing";
    case TransferOutcome::io_error:
      return "io_error";
    case TransferOutcome::damaged:
      return "damaged";
    case TransferOutcome::mismatch:
      return "mismatch";
    case TransferOutcome::no_space:
      return "no_space";
    case TransferOutcome::timed_out:
      return "timed_out";
  }
  return "unknown";
}

}  // namespace quire
