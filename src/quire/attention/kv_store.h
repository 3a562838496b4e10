#pragma once
// KvStore: the physical KV cache, blocks of `block_size` tokens for every layer and KV head. It knows addresses and
// formats; who owns which block is decided in kv/ and reaches it as spans of block ids.
// Layout, per layer: [block][kv head]{K | V}, 64-byte aligned; K as [head_dim][token], V as [token][head_dim].
// Formats: f32, f16 and bf16 hold each value rounded to nearest even, subnormals kept. A value that does not fit (not
// finite, or rounds to infinity) fails its row.
// int8: a code for each element and an f16 scale for each 32 consecutive elements of one token's head, K and V alike.
// The codes lie as the elements of the other formats do; behind them the scales, of K as [group][token], of V as
// [token][group]. For a group of largest magnitude amax: d = f16(amax / 127); q = 0 where d is 0, else
// clamp(round-to-even(x / d), -127, 127), all in f32. The value is q * d, exact in f32, and differs from x by at most
// d / 2 where amax is 0.001 or more (below, d loses bits as a subnormal half, and the error stays below 4e-6). amax
// from 8,321,040 on (d would be infinite) fails the row.
// Speed: bf16 as f16. int8 takes 53 % of the memory of f16 at head_dim 64, and attention over it three quarters of the
// time where memory is what limits; from the caches it takes a fifth longer. Thread-safety: different (block, slot,
// head) may be written by different threads at once; readers need a barrier. Memory starts as zero; what an unused slot
// holds never matters.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quire/attention/kv_type.h"
#include "quire/base/ids.h"
#include "quire/base/result.h"
#include "quire/tensor/aligned_buffer.h"

namespace quire::attention {

std::string_view to_string(KvType type);
Result<KvType> parse_kv_type(std::string_view name);

struct KvLayout {
  std::int64_t num_layers = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;     ///< even; kernels are made for multiples of 16, others cost a copy of each tile
  std::int64_t block_size = 16;  ///< tokens a block: 8, 16, 32, 64 or 128, all about equally fast
  KvType type = KvType::f16;

  /// Bytes of K (or of V) of one token, layer and head.
  std::int64_t token_bytes() const {
    if (type == KvType::int8) return head_dim + 2 * scale_groups(head_dim);
    return head_dim * (type == KvType::f32 ? 4 : 2);
  }
  /// Bytes of K (or of V) of one block, layer and head.
  std::int64_t panel_bytes() const { return block_size * token_bytes(); }
  /// Bytes of one block over all layers and heads, K and V: what the pool's capacity is counted in.
  std::int64_t block_bytes() const { return num_layers * num_kv_heads * 2 * panel_bytes(); }
};

class KvStore {
 public:
  /// num_blocks counts the null block (id 0), which is never read or written. Throws std::bad_alloc when the system has
  /// no such memory.
  KvStore(const KvLayout& layout, std::int64_t num_blocks);

  /// What bytes() of such a store is.
  static std::size_t bytes_for(const KvLayout& layout, std::int64_t num_blocks);

  const KvLayout& layout() const { return layout_; }
  std::int64_t num_blocks() const { return num_blocks_; }
  std::size_t bytes() const { return memory_.size(); }  ///< num_blocks * block_bytes and a little padding
  /// All of it, so that its owner can have the pages mapped before the first request.
  std::span<std::byte> memory() { return {memory_.data(), memory_.size()}; }

  std::byte* k_panel(std::int64_t layer, BlockId block, std::int64_t head);  ///< [head_dim][block_size]
  std::byte* v_panel(std::int64_t layer, BlockId block, std::int64_t head);  ///< [block_size][head_dim]
  const std::byte* k_panel(std::int64_t layer, BlockId block, std::int64_t head) const;
  const std::byte* v_panel(std::int64_t layer, BlockId block, std::int64_t head) const;

  /// Copies the whole block `from` to `to`, all layers and heads. For one thread, between steps or after a barrier.
  void copy_block(BlockId from, BlockId to);

  /// The whole block out into `bytes` [block_bytes], and back in. Likewise.
  void read_block(BlockId block, std::span<std::byte> bytes) const;
  void write_block(BlockId block, std::span<const std::byte> bytes);

 private:
  KvLayout layout_;
  std::int64_t num_blocks_;
  AlignedBuffer memory_;
};

}  // namespace quire::attention
