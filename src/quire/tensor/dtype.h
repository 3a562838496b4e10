#pragma once
// DType: the storage formats of weights. Quantised formats store whole blocks of consecutive elements along a row.

#include <cstdint>
#include <optional>
#include <string_view>

namespace quire {

enum class DType : std::uint8_t { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };

inline constexpr DType kAllDTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0,
                                       DType::q5_1, DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k};

struct DTypeInfo {
  std::string_view name;         ///< as GGUF tools print it: "Q4_1"
  std::uint32_t block_elements;  ///< 1 for the float formats
  std::uint32_t block_bytes;
};

const DTypeInfo& info(DType dtype);

/// The format of that name, in upper or lower case; nothing if there is none.
std::optional<DType> find_dtype(std::string_view name);

/// Float formats are multiplied with f32 activations, quantised ones with int8 activations.
constexpr bool is_quantized(DType dtype) { return dtype >= DType::q4_0; }

/// Bytes of a row of `elements`, which must be a multiple of the block.
std::int64_t row_bytes(DType dtype, std::int64_t elements);

}  // namespace quire
