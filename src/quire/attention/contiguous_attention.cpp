#include "quire/attention/contiguous_attention.h"

#include "quire/attention/attention_work.h"

namespace quire::attention {
namespace {

/// One layer of a VirtualKvStore.
class ContiguousMemory {
 public:
  using Head = ContiguousHead;

  ContiguousMemory(const VirtualKvStore& store, std::int64_t layer) : store_(store), layer_(layer) {}

  const KvLayout& layout() const { return store_.layout(); }
  void check(const SequenceChunk& chunk) const { check_mapped(chunk, store_); }

  ContiguousHead head(const SequenceChunk& chunk, std::int64_t head) const {
    return {store_.k_panel(layer_, chunk.place, 0, head), store_.v_panel(layer_, chunk.place, 0, head),
            store_.tile_bytes(), layout().type};
  }

  static void attend_span(const AttentionKernels& kernels, const QueryRows& rows, const ContiguousHead& cache,
                          const SpanPart<ContiguousHead>& part, const WorkArea& area, const PartialRows& out) {
    kernels.attend_span_contiguous(rows, cache, part, area, out);
  }

 private:
  const VirtualKvStore& store_;
  const std::int64_t layer_;
};

}  // namespace

void contiguous_attention(Worker& worker, CpuTier tier, const VirtualKvStore& store, std::int64_t layer,
                          const AttentionCall& call, AttentionScratch& scratch) {
  attend(worker, tier, ContiguousMemory(store, layer), call, scratch);
}

}  // namespace quire::attention
