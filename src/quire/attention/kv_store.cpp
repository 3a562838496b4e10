#include "quire/attention/kv_store.h"

#include <cstring>

#include "quire/base/check.h"
#include "quire/base/checked.h"

namespace quire::attention {
namespace {

/// Kernels load sixteen elements at a time, so the last row of the last panel may be read past its end.
constexpr std::int64_t kPadding = 64;

void check_layout(const KvLayout& layout) {
  QUIRE_CHECK(layout.num_layers > 0 && layout.num_kv_heads > 0);
  QUIRE_CHECK(layout.head_dim > 0 && layout.head_dim % 2 == 0, "head_dim ", layout.head_dim);
  auto size = layout.block_size;
  QUIRE_CHECK(size == 8 || size == 16 || size == 32 || size == 64 || size == 128, "block_size ", size);
}

}  // namespace

std::string_view to_string(KvType type) {
  switch (type) {
    case KvType::f32:
      return "f32";
    case KvType::f16:
      return "f16";
    case KvType::bf16:
      return "bf16";
    case KvType::int8:
      return "int8";
  }
  QUIRE_CHECK(false, "unknown KV type");
}

Result<KvType> parse_kv_type(std::string_view name) {
  for (KvType type : kAllKvTypes) {
    if (name == to_string(type)) return type;
  }
  return fail("KV type '", name, "' is unknown; wanted f16, bf16, int8 or f32");
}

std::size_t KvStore::bytes_for(const KvLayout& layout, std::int64_t num_blocks) {
  auto bytes = checked_mul(static_cast<std::uint64_t>(layout.block_bytes()), static_cast<std::uint64_t>(num_blocks));
  QUIRE_CHECK(bytes.has_value(), num_blocks, " blocks of ", layout.block_bytes(), " bytes");
  return static_cast<std::size_t>(*bytes) + kPadding;
}

KvStore::KvStore(const KvLayout& layout, std::int64_t num_blocks) : layout_(layout), num_blocks_(num_blocks) {
  check_layout(layout);
  QUIRE_CHECK(num_blocks >= 1);
  memory_ = AlignedBuffer(bytes_for(layout, num_blocks));
}

const std::byte* KvStore::k_panel(std::int64_t layer, BlockId block, std::int64_t head) const {
  auto index = (layer * num_blocks_ + static_cast<std::int64_t>(block.value)) * layout_.num_kv_heads + head;
  return memory_.data() + index * 2 * layout_.panel_bytes();
}
const std::byte* KvStore::v_panel(std::int64_t layer, BlockId block, std::int64_t head) const {
  return k_panel(layer, block, head) + layout_.panel_bytes();
}
std::byte* KvStore::k_panel(std::int64_t layer, BlockId block, std::int64_t head) {
  return const_cast<std::byte*>(std::as_const(*this).k_panel(layer, block, head));
}
std::byte* KvStore::v_panel(std::int64_t layer, BlockId block, std::int64_t head) {
  return const_cast<std::byte*>(std::as_const(*this).v_panel(layer, block, head));
}

void KvStore::copy_block(BlockId from, BlockId to) {
  QUIRE_CHECK(from.value < num_blocks_ && to.value < num_blocks_ && to != kNullBlock);
  auto bytes = static_cast<std::size_t>(layout_.num_kv_heads * 2 * layout_.panel_bytes());
  for (std::int64_t layer = 0; layer < layout_.num_layers; ++layer) {
    std::memmove(k_panel(layer, to, 0), k_panel(layer, from, 0), bytes);
  }
}

void KvStore::read_block(BlockId block, std::span<std::byte> bytes) const {
  const auto layer_bytes = static_cast<std::size_t>(layout_.num_kv_heads * 2 * layout_.panel_bytes());
  QUIRE_CHECK(block.value < num_blocks_ && bytes.size() == static_cast<std::size_t>(layout_.block_bytes()));
  for (std::int64_t layer = 0; layer < layout_.num_layers; ++layer)
    std::memcpy(bytes.data() + static_cast<std::size_t>(layer) * layer_bytes, k_panel(layer, block, 0), layer_bytes);
}

void KvStore::write_block(BlockId block, std::span<const std::byte> bytes) {
  const auto layer_bytes = static_cast<std::size_t>(layout_.num_kv_heads * 2 * layout_.panel_bytes());
  QUIRE_CHECK(block.value < num_blocks_ && block != kNullBlock &&
              bytes.size() == static_cast<std::size_t>(layout_.block_bytes()));
  for (std::int64_t layer = 0; layer < layout_.num_layers; ++layer)
    std::memcpy(k_panel(layer, block, 0), bytes.data() + static_cast<std::size_t>(layer) * layer_bytes, layer_bytes);
}

}  // namespace quire::attention
