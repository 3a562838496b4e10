#pragma once
// The number formats of the KV cache. kv_store.h says how each lies in a block. Free of other headers, so that files
// compiled for one instruction set may include it.

#include <cstdint>

namespace quire::attention {

enum class KvType : std::uint8_t { f32, f16, bf16 };
inline constexpr KvType kAllKvTypes[] = {KvType::f32, KvType::f16, KvType::bf16};

}  // namespace quire::attention
