#pragma once
// The definition of paged attention in plain scalar code, one row after another: rules 9 to 14 of the arithmetic, read
// literally. Every kernel gives its bits. For tests; hundreds of times slower than the kernels.

#include <cstdint>

#include "quire/attention/kv_store.h"
#include "quire/attention/paged_attention.h"

namespace quire::attention {

/// The same result as paged_attention.
void reference_attention(const KvStore& store, std::int64_t layer, const AttentionCall& call);

}  // namespace quire::attention
