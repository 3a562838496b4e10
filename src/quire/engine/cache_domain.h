#pragma once
// The domain of cached KV blocks: everything beside tokens and salt that decides a block's bits. Blocks of different
// domains are never taken for each other.
//
// The digest is SHA-256 over tagged, length-prefixed fields: the arithmetic revision; the digest of the whole model
// file (weights, tokenizer, RoPE settings and architecture are all in it; two files of the same name are two models),
// which also names its packed weights on disk (model/repack_cache.h); the KV type and layout (layers, KV heads, head
// dimension, block size); which layers share a block; and whether weights are computed in f32. Nothing that leaves the
// bits alone is part of it: threads, CPU tier, batch limits, context, pool size.

#include <cstddef>
#include <span>

#include "quire/attention/kv_store.h"
#include "quire/base/thread_pool.h"
#include "quire/kv/block_key.h"
#include "quire/model/layer_grouping.h"

namespace quire::engine {

/// Raised whenever any bit of the K and V that a model computes changes.
inline constexpr std::uint32_t kArithmeticRevision = 1;

struct CacheDomain {
  BlockKey model_digest;
  attention::KvLayout layout;
  const model::LayerGrouping& grouping;
  bool reference_arithmetic = false;
};

/// Of a whole file: the hash of its length and of the hashes of its pieces of 4 MiB, which all threads compute
/// together.
BlockKey model_digest(const BlockHasher& hasher, std::span<const std::byte> file, ThreadPool& pool);

BlockKey domain_digest(const BlockHasher& hasher, const CacheDomain& domain);

}  // namespace quire::engine
