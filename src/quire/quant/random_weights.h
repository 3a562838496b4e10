#pragma once
// Weights as a file would hold them, random but reproducible; for tests and benchmarks.

#include <cstdint>
#include <cstring>
#include <vector>

#include "quire/base/rng.h"
#include "quire/quant/dequantize.h"

namespace quire::quant {

enum class ScaleKind {
  usual,    ///< magnitudes of real models, minima negative as often as positive
  extreme,  ///< zeros of both signs, subnormals, the largest and the smallest normal, negative ones
};

/// Where the f16 scales of a block lie; -1: none.
struct ScalePlaces {
  int d, m;
};

inline ScalePlaces scale_places(DType dtype) {
  switch (dtype) {
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {0, 2};
    case DType::q6_k:
      return {208, -1};
    default:
      return {is_quantized(dtype) ? 0 : -1, -1};
  }
}

inline std::uint16_t random_f16(Rng& rng, ScaleKind kind) {
  static constexpr std::uint16_t kExtreme[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00};
  if (kind == ScaleKind::extreme) return kExtreme[rng.between(0, 8)];
  return f32_to_f16(static_cast<float>((rng.uniform() - 0.5) * 0.02));
}

/// `rows` rows of `cols` weights: codes are random bytes, half of the groups' bytes drawn from the ends of the range.
inline std::vector<std::byte> random_weights(DType dtype, std::int64_t rows, std::int64_t cols, ScaleKind kind,
                                             std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::byte> out(static_cast<std::size_t>(rows * row_bytes(dtype, cols)));
  if (!is_quantized(dtype)) {
    for (std::size_t i = 0; i < out.size(); i += info(dtype).block_bytes) {
      auto value = static_cast<float>(rng.uniform() - 0.5);
      if (kind == ScaleKind::extreme) value *= rng.chance(0.2) ? 0.0f : rng.chance(0.2) ? 0x1.0p-16f : 1000.0f;
      std::uint16_t half = dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
      std::memcpy(&out[i], dtype == DType::f32 ? static_cast<void*>(&value) : &half, info(dtype).block_bytes);
    }
    return out;
  }
  static constexpr unsigned char kEnds[] = {0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0};
  std::size_t block_bytes = info(dtype).block_bytes;
  for (std::size_t at = 0; at < out.size(); at += block_bytes) {
    bool ends = kind == ScaleKind::extreme && rng.chance(0.5);
    std::byte end = static_cast<std::byte>(kEnds[rng.between(0, 5)]);
    for (std::size_t i = 0; i < block_bytes; ++i) out[at + i] = ends ? end : static_cast<std::byte>(rng() & 0xFF);
    for (int place : {scale_places(dtype).d, scale_places(dtype).m}) {
      if (place < 0) continue;
      std::uint16_t scale = random_f16(rng, kind);
      std::memcpy(&out[at + static_cast<std::size_t>(place)], &scale, 2);
    }
  }
  return out;
}

/// [rows, cols] activations; a few are far larger than the rest, some whole groups are zero.
inline std::vector<float> random_activations(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(static_cast<std::size_t>(rows * cols));
  float factor = 1;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i % 32 == 0) factor = rng.chance(0.1) ? 0.0f : rng.chance(0.1) ? 100.0f : 1.0f;
    out[i] = static_cast<float>(rng.uniform() * 2 - 1) * factor;
  }
  return out;
}

}  // namespace quire::quant
