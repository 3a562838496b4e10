#include "quire/attention/paged_attention.h"

#include <bit>

#include "quire/attention/attention_work.h"

namespace quire::attention {
namespace {

/// One layer of a KvStore.
class PagedMemory {
 public:
  using Head = CachedHead;

  PagedMemory(const KvStore& store, std::int64_t layer) : store_(store), layer_(layer) {}

  const KvLayout& layout() const { return store_.layout(); }
  void check(const SequenceChunk& chunk) const { check_covered(chunk, layout()); }

  CachedHead head(const SequenceChunk& chunk, std::int64_t head) const {
    CachedHead cache;
    cache.base = store_.k_panel(layer_, kNullBlock, head);
    cache.block_stride = layout().num_kv_heads * 2 * layout().panel_bytes();
    cache.panel_bytes = layout().panel_bytes();
    cache.block_size = layout().block_size;
    cache.block_shift = std::countr_zero(static_cast<std::uint64_t>(layout().block_size));
    cache.type = layout().type;
    static_assert(sizeof(BlockId) == sizeof(std::uint32_t));
    cache.blocks = &chunk.blocks.data()->value;
    return cache;
  }

  static void attend_span(const AttentionKernels& kernels, const QueryRows& rows, const CachedHead& cache,
                          const SpanPart<CachedHead>& part, const WorkArea& area, const PartialRows& out) {
    kernels.attend_span(rows, cache, part, area, out);
  }

 private:
  const KvStore& store_;
  const std::int64_t layer_;
};

}  // namespace

void paged_attention(Worker& worker, CpuTier tier, const KvStore& store, std::int64_t layer, const AttentionCall& call,
                     AttentionScratch& scratch) {
  attend(worker, tier, PagedMemory(store, layer), call, scratch);
}

}  // namespace quire::attention
