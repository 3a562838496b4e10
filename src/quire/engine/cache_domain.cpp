#include "quire/engine/cache_domain.h"

#include <algorithm>
#include <vector>

namespace quire::engine {
namespace {

class Fields {
 public:
  void add(std::uint64_t number) {
    put(8);
    put(number);
  }
  void add(std::span<const std::byte> bytes) {
    put(bytes.size());
    message_.insert(message_.end(), bytes.begin(), bytes.end());
  }
  std::span<const std::byte> message() const { return message_; }

 private:
  void put(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) message_.push_back(static_cast<std::byte>(number >> shift & 0xFF));
  }
  std::vector<std::byte> message_;
};

}  // namespace

BlockKey model_digest(const BlockHasher& hasher, std::span<const std::byte> file, ThreadPool& pool) {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  const std::size_t count = (file.size() + kPiece - 1) / kPiece;
  std::vector<BlockKey> pieces(count);
  pool.run([&](Worker& worker) {
    worker.for_each(static_cast<std::int64_t>(count), 1, [&](std::int64_t i) {
      const std::size_t at = static_cast<std::size_t>(i) * kPiece;
      pieces[static_cast<std::size_t>(i)] = hasher.hash(file.subspan(at, std::min(kPiece, file.size() - at)));
    });
  });
  Fields fields;
  fields.add(file.size());
  for (const BlockKey& piece : pieces) fields.add(piece.bytes);
  return hasher.hash(fields.message());
}

BlockKey domain_digest(const BlockHasher& hasher, const CacheDomain& domain) {
  const attention::KvLayout& layout = domain.layout;
  Fields fields;  // always in this order, each with its length
  fields.add(kArithmeticRevision);
  fields.add(domain.model_digest.bytes);
  fields.add(std::as_bytes(std::span(attention::to_string(layout.type))));
  for (std::int64_t number : {layout.num_layers, layout.num_kv_heads, layout.head_dim, layout.block_size})
    fields.add(static_cast<std::uint64_t>(number));
  fields.add(domain.grouping.places.size());
  for (const model::LayerGrouping::Place& place : domain.grouping.places) {
    fields.add(static_cast<std::uint64_t>(place.group));
    fields.add(static_cast<std::uint64_t>(place.index));
  }
  fields.add(std::uint64_t{domain.reference_arithmetic});
  return hasher.hash(fields.message());
}

}  // namespace quire::engine
