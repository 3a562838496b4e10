#pragma once
// Paged attention: softmax(q k^T * scale) v, exact and causal, over KV blocks found through a block table. One
// definition for prefill and decode (rules 9 to 12 of the arithmetic): tiles of 64 absolute positions, spans of 256,
// merged in a fixed order. A row's bits depend on its own q, the cached K and V, its position and the window; never on
// its neighbours, the chunking, block ids, block size, threads or tier.
//
// Invariants
// 1. What a row does not see is never part of its result, whatever it holds (NaN in unused slots, other sequences'
//    tokens). Table entries whose positions no row of the call sees are not looked up: those behind a window may be
//    null.
// 2. A row whose q is not finite has no defined result; no other row is touched by it.
// 3. In steady state nothing is allocated.
//
// The definition in plain scalar code is reference_attention.h; the kernels are in tile_kernels.h.

#include <cstdint>

#include "quire/attention/attention_call.h"
#include "quire/attention/kv_store.h"
#include "quire/base/cpu.h"
#include "quire/base/thread_pool.h"

namespace quire::attention {

/// Stores K and V of the step's tokens in layer `layer`. Called by every worker; ends with a barrier.
void write_kv(Worker& worker, CpuTier tier, KvStore& store, std::int64_t layer, const KvWrite& write);

/// Called by every worker; ends with a barrier. The step's K and V must have been written.
void paged_attention(Worker& worker, CpuTier tier, const KvStore& store, std::int64_t layer, const AttentionCall& call,
                     AttentionScratch& scratch);

}  // namespace quire::attention
