#pragma once
// The number formats of the KV cache. kv_store.h says how each lies in a block. Free of other headers, so that files
// compiled for one instruction set may include it.

#include <cstdint>

namespace quire::attention {

enum class KvType : std::uint8_t { f32, f16, bf16, int8 };
inline constexpr KvType kAllKvTypes[] = {KvType::f32, KvType::f16, KvType::bf16, KvType::int8};

/// int8: consecutive elements of one token's head that share a scale; the last group of a head may be shorter.
inline constexpr std::int64_t kScaleGroup = 32;

constexpr std::int64_t scale_groups(std::int64_t head_dim) { return (head_dim + kScaleGroup - 1) / kScaleGroup; }

}  // namespace quire::attention
