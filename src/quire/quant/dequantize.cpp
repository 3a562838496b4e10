#include "quire/quant/dequantize.h"

#include <bit>
#include <cstring>

#include "quire/quant/group_codes.h"

namespace quire::quant {
namespace {

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

}  // namespace

float f16_to_f32(std::uint16_t half) {
  std::uint32_t sign = (half & 0x8000u) << 16;
  std::uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 31) {  // infinity, or a NaN, which becomes quiet as in hardware
    return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13 | (fraction != 0 ? 0x400000u : 0u));
  }
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact
    float magnitude = static_cast<float>(fraction) * 0x1.0p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

std::uint16_t f32_to_f16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 1023));
  if (magnitude >= 0x47800000u) return sign | 0x7C00u;  // 2^16 and more; 65520 and more get there by rounding
  if (magnitude < 0x38800000u) {                        // below 2^-14: a multiple of 2^-24
    // Adding 0.5 leaves a last place of 2^-24, so that the addition does the rounding.
    float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u));
  }
  std::uint32_t rounded = magnitude - (112u << 23) + 0xFFFu + (magnitude >> 13 & 1);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

float bf16_to_f32(std::uint16_t half) { return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16); }

std::uint16_t f32_to_bf16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

void dequantize(DType dtype, const std::byte* source, std::int64_t elements, float* out) {
  switch (dtype) {
    case DType::f32:
      std::memcpy(out, source, static_cast<std::size_t>(elements) * 4);
      return;
    case DType::f16:
      for (std::int64_t i = 0; i < elements; ++i) out[i] = f16_to_f32(load<std::uint16_t>(source + i * 2));
      return;
    case DType::bf16:
      for (std::int64_t i = 0; i < elements; ++i) out[i] = bf16_to_f32(load<std::uint16_t>(source + i * 2));
      return;
    default:
      for (std::int64_t group = 0; group < elements / 32; ++group) {
        decode_group(dtype, read_file_group(dtype, source, group), out + group * 32);
      }
  }
}

}  // namespace quire::quant
