#pragma once
// KvMemory: a reference to one of the two physical KV memories, blocks (kv_store.h) or contiguous ranges
// (virtual_kv_store.h). The same bits come out of both.

#include <cstdint>

#include "quire/attention/contiguous_attention.h"
#include "quire/attention/paged_attention.h"

namespace quire::attention {

class KvMemory {
 public:
  // Not explicit: whoever has a store has a memory.
  KvMemory(KvStore& store) : paged_(&store) {}
  KvMemory(VirtualKvStore& store) : contiguous_(&store) {}

  KvStore* paged() const { return paged_; }                   ///< null: the other
  VirtualKvStore* contiguous() const { return contiguous_; }  ///< null: the other

  const KvLayout& layout() const { return paged_ ? paged_->layout() : contiguous_->layout(); }

  /// As write_kv and paged_attention or contiguous_attention.
  void write(Worker& worker, CpuTier tier, std::int64_t layer, const KvWrite& write) const {
    if (paged_) return write_kv(worker, tier, *paged_, layer, write);
    write_kv(worker, tier, *contiguous_, layer, write);
  }
  void attend(Worker& worker, CpuTier tier, std::int64_t layer, const AttentionCall& call,
              AttentionScratch& scratch) const {
    if (paged_) return paged_attention(worker, tier, *paged_, layer, call, scratch);
    contiguous_attention(worker, tier, *contiguous_, layer, call, scratch);
  }

 private:
  KvStore* paged_ = nullptr;
  VirtualKvStore* contiguous_ = nullptr;
};

}  // namespace quire::attention
