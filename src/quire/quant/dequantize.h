#pragma once
// Weight formats to f32. The definition of what a quantised file means; every packed kernel is tested against it.
// Formats: the GGUF specification; bit-equal to the PyPI package `gguf` (tests/differential).

#include <cstddef>
#include <cstdint>

#include "quire/tensor/dtype.h"

namespace quire::quant {

/// Writes `elements` floats (a multiple of the block) decoded from `source`, which holds row_bytes(dtype, elements).
void dequantize(DType dtype, const std::byte* source, std::int64_t elements, float* out);

/// IEEE half and bfloat16 to and from f32: round to nearest even, subnormals kept, overflow gives infinity.
float f16_to_f32(std::uint16_t half);
std::uint16_t f32_to_f16(float value);
float bf16_to_f32(std::uint16_t half);
std::uint16_t f32_to_bf16(float value);

}  // namespace quire::quant
