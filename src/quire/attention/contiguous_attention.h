#pragma once
// Attention over contiguous KV memory (virtual_kv_store.h): the same definition and the same bits as paged_attention,
// without block tables. A tile's address is the sequence's base and a stride; nothing is looked up. Everything said in
// paged_attention.h about rows, invariants and scratch holds here too.

#include <cstdint>

#include "quire/attention/attention_call.h"
#include "quire/attention/virtual_kv_store.h"
#include "quire/base/cpu.h"
#include "quire/base/thread_pool.h"

namespace quire::attention {

/// Stores K and V of the step's tokens in layer `layer`. Called by every worker; ends with a barrier.
void write_kv(Worker& worker, CpuTier tier, VirtualKvStore& store, std::int64_t layer, const KvWrite& write);

/// Called by every worker; ends with a barrier. The step's K and V must have been written.
void contiguous_attention(Worker& worker, CpuTier tier, const VirtualKvStore& store, std::int64_t layer,
                          const AttentionCall& call, AttentionScratch& scratch);

}  // namespace quire::attention
