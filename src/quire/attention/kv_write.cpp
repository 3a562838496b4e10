#include <algorithm>

#include "quire/attention/call_support.h"
#include "quire/attention/contiguous_attention.h"
#include "quire/attention/paged_attention.h"

namespace quire::attention {
namespace {

/// Tokens are dealt out in runs of this many, so that two threads seldom write to one cache line of K.
constexpr std::int64_t kRun = 16;

/// Stores one token of one head: a column of the K panel or a row of the V panel.
bool store(const AttentionKernels& kernels, KvType type, const float* x, std::int64_t n, std::byte* panel,
           std::int64_t offset, std::int64_t stride) {
  switch (type) {
    case KvType::f32:
      return kernels.store_f32(x, n, reinterpret_cast<float*>(panel) + offset, stride);
    case KvType::f16:
      return kernels.store_f16(x, n, reinterpret_cast<std::uint16_t*>(panel) + offset, stride);
    case KvType::bf16:
      return kernels.store_bf16(x, n, reinterpret_cast<std::uint16_t*>(panel) + offset, stride);
    case KvType::int8:
      break;  // has scales beside its elements: store_int8
  }
  QUIRE_CHECK(false, "unknown KV type");
}

/// The same in int8. The scales lie behind the codes, of K as [group][token], of V as [token][group].
bool store_int8(const AttentionKernels& kernels, const KvLayout& layout, const float* k, const float* v,
                std::int64_t slot, std::byte* k_panel, std::byte* v_panel) {
  std::int64_t codes = layout.block_size * layout.head_dim;
  auto out = [&](std::byte* panel, std::int64_t code, std::int64_t code_stride, std::int64_t scale,
                 std::int64_t scale_stride) {
    return Int8Out{reinterpret_cast<std::int8_t*>(panel) + code, code_stride,
                   reinterpret_cast<std::uint16_t*>(panel + codes) + scale, scale_stride};
  };
  bool k_fits = kernels.store_int8(k, layout.head_dim, out(k_panel, slot, layout.block_size, slot, layout.block_size));
  bool v_fits = kernels.store_int8(v, layout.head_dim,
                                   out(v_panel, slot * layout.head_dim, 1, slot * scale_groups(layout.head_dim), 1));
  return k_fits && v_fits;
}

struct Panels {
  std::byte *k, *v;
};

/// Of the tokens around `position`, one layer and head.
Panels panels_of(KvStore& store, const SequenceChunk& chunk, std::int64_t layer, std::int64_t head,
                 std::int64_t position) {
  BlockId block = chunk.blocks[static_cast<std::size_t>(position / store.layout().block_size)];
  QUIRE_CHECK(block != kNullBlock && block.value < store.num_blocks(), "block ", block);
  return {store.k_panel(layer, block, head), store.v_panel(layer, block, head)};
}
Panels panels_of(VirtualKvStore& store, const SequenceChunk& chunk, std::int64_t layer, std::int64_t head,
                 std::int64_t position) {
  std::int64_t tile = position / kTileTokens;
  return {store.k_panel(layer, chunk.place, tile, head), store.v_panel(layer, chunk.place, tile, head)};
}

void check_writable(const SequenceChunk& chunk, const KvStore& store) { check_covered(chunk, store.layout()); }
void check_writable(const SequenceChunk& chunk, const VirtualKvStore& store) { check_mapped(chunk, store); }

std::int64_t element_bytes(KvType type) { return type == KvType::f32 ? 4 : type == KvType::int8 ? 1 : 2; }

/// Asks for the lines that a token's K and V will be written to: a column of the K panel lies in many.
void fetch_for_writing(const KvLayout& layout, const Panels& panels, std::int64_t slot) {
  const std::int64_t bytes = element_bytes(layout.type), row = layout.block_size * bytes;
  for (std::int64_t at = slot * bytes; at < layout.head_dim * row; at += std::max<std::int64_t>(row, 64))
    __builtin_prefetch(panels.k + at, 1);
  for (std::int64_t at = 0; at < layout.head_dim * bytes; at += 64)
    __builtin_prefetch(panels.v + slot * layout.head_dim * bytes + at, 1);
}

template <class Store>
void write_token(const AttentionKernels& kernels, Store& store_to, std::int64_t layer, const KvWrite& write,
                 const SequenceChunk& chunk, std::int64_t token) {
  const KvLayout& layout = store_to.layout();
  std::int64_t position = chunk.first_position + token, row = chunk.first_row + token;
  std::int64_t slot = position % layout.block_size, dim = layout.head_dim;
  for (std::int64_t head = 0; head < layout.num_kv_heads; ++head)
    fetch_for_writing(layout, panels_of(store_to, chunk, layer, head, position), slot);
  if (write.before.complete) write.before.complete(write.before.context, row, position);
  bool fits = true;
  for (std::int64_t head = 0; head < layout.num_kv_heads; ++head) {
    const float* k = write.k + row * write.k_stride + head * dim;
    const float* v = write.v + row * write.v_stride + head * dim;
    const auto [k_panel, v_panel] = panels_of(store_to, chunk, layer, head, position);
    if (layout.type == KvType::int8) {
      fits &= store_int8(kernels, layout, k, v, slot, k_panel, v_panel);
      continue;
    }
    fits &= store(kernels, layout.type, k, dim, k_panel, slot, layout.block_size);
    fits &= store(kernels, layout.type, v, dim, v_panel, slot * dim, 1);
  }
  if (!fits) write.row_failed[row] = 1;
}

template <class Store>
void write_rows(Worker& worker, CpuTier tier, Store& store_to, std::int64_t layer, const KvWrite& write) {
  const AttentionKernels& kernels = attention_kernels(tier);
  // Runs go round the workers by index; `run` counts them over all chunks.
  std::int64_t run = 0;
  for (const SequenceChunk& chunk : write.chunks) {
    check_writable(chunk, store_to);
    for (std::int64_t begin = 0; begin < chunk.num_tokens; begin += kRun, ++run) {
      if (run % worker.count() != worker.index()) continue;
      for (std::int64_t token = begin; token < std::min(begin + kRun, chunk.num_tokens); ++token) {
        write_token(kernels, store_to, layer, write, chunk, token);
      }
    }
  }
  worker.barrier();
}

}  // namespace

void write_kv(Worker& worker, CpuTier tier, KvStore& store, std::int64_t layer, const KvWrite& write) {
  write_rows(worker, tier, store, layer, write);
}

void write_kv(Worker& worker, CpuTier tier, VirtualKvStore& store, std::int64_t layer, const KvWrite& write) {
  write_rows(worker, tier, store, layer, write);
}

}  // namespace quire::attention
