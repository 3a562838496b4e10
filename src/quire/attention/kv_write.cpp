#include <algorithm>

#include "quire/attention/call_support.h"
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
  }
  QUIRE_CHECK(false, "unknown KV type");
}

void write_token(const AttentionKernels& kernels, KvStore& store_to, std::int64_t layer, const KvWrite& write,
                 const SequenceChunk& chunk, std::int64_t token) {
  const KvLayout& layout = store_to.layout();
  std::int64_t position = chunk.first_position + token, row = chunk.first_row + token;
  BlockId block = chunk.blocks[static_cast<std::size_t>(position / layout.block_size)];
  QUIRE_CHECK(block != kNullBlock && block.value < store_to.num_blocks(), "block ", block);
  std::int64_t slot = position % layout.block_size, dim = layout.head_dim;
  bool fits = true;
  for (std::int64_t head = 0; head < layout.num_kv_heads; ++head) {
    fits &= store(kernels, layout.type, write.k + row * write.k_stride + head * dim, dim,
                  store_to.k_panel(layer, block, head), slot, layout.block_size);
    fits &= store(kernels, layout.type, write.v + row * write.v_stride + head * dim, dim,
                  store_to.v_panel(layer, block, head), slot * dim, 1);
  }
  if (!fits) write.row_failed[row] = 1;
}

}  // namespace

void write_kv(Worker& worker, CpuTier tier, KvStore& store_to, std::int64_t layer, const KvWrite& write) {
  const AttentionKernels& kernels = attention_kernels(tier);
  // Runs go round the workers by index; `run` counts them over all chunks.
  std::int64_t run = 0;
  for (const SequenceChunk& chunk : write.chunks) {
    check_covered(chunk, store_to.layout());
    for (std::int64_t begin = 0; begin < chunk.num_tokens; begin += kRun, ++run) {
      if (run % worker.count() != worker.index()) continue;
      for (std::int64_t token = begin; token < std::min(begin + kRun, chunk.num_tokens); ++token) {
        write_token(kernels, store_to, layer, write, chunk, token);
      }
    }
  }
  worker.barrier();
}

}  // namespace quire::attention
