#pragma once
// How values are stored in the formats of the KV cache (kv_store.h), as a template over a tier's Lanes. Part of the
// kernels of attention_kernels.h.

#include <cstddef>
#include <cstdint>

#include "quire/attention/attention_kernels.h"
#include "quire/ops/inline.h"

namespace quire::attention {

template <class Lanes>
struct StoreKernels {
  static QUIRE_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

  static bool store_f16(const float* x, std::int64_t n, std::uint16_t* out, std::int64_t stride) {
    // From 65,520 on rounding to nearest gives infinity.
    const Lanes limit = Lanes::broadcast(65520.0f);
    bool fits = true;
    for (std::int64_t i = 0; i < n; i += 16) {
      std::int64_t count = smaller(16, n - i);
      Lanes value = count == 16 ? Lanes::load(x + i) : Lanes::load_partial(x + i, count);
      fits &= bits(less(abs(value), limit)) == 0xFFFF;
      std::uint16_t halves[16];
      value.store_f16(halves);
      for (std::int64_t j = 0; j < count; ++j) out[(i + j) * stride] = halves[j];
    }
    return fits;
  }

  /// Rounds to nearest even on the bits: a carry out of the fraction is the next exponent, the last of them infinity.
  static bool store_bf16(const float* x, std::int64_t n, std::uint16_t* out, std::int64_t stride) {
    bool fits = true;
    for (std::int64_t i = 0; i < n; ++i) {
      auto word = __builtin_bit_cast(std::uint32_t, x[i]);
      std::uint32_t rounded = word + 0x7FFFu + (word >> 16 & 1u);
      // Of a NaN the rounding may leave anything; what it was shows in the bits before.
      fits &= (word & 0x7FFFFFFFu) < 0x7F7F8000u;
      out[i * stride] = static_cast<std::uint16_t>(rounded >> 16);
    }
    return fits;
  }

  /// The largest magnitude; a NaN counts as larger than infinity.
  static QUIRE_INLINE float largest_magnitude(const float* x, std::int64_t n) {
    std::uint32_t most = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, x[i]) & 0x7FFFFFFFu;
      most = magnitude > most ? magnitude : most;
    }
    return __builtin_bit_cast(float, most);
  }

  /// One group of int8; true if it fits.
  static QUIRE_INLINE bool quantize_group(const float* x, std::int64_t n, std::int8_t* codes, std::int64_t stride,
                                          std::uint16_t* scale) {
    float amax = largest_magnitude(x, n);
    std::uint16_t halves[16];
    Lanes::broadcast(amax / 127.0f).store_f16(halves);
    bool fits = halves[0] < 0x7C00;  // neither infinite nor NaN
    *scale = fits ? halves[0] : 0;
    if (*scale == 0) {
      for (std::int64_t i = 0; i < n; ++i) codes[i * stride] = 0;
      return fits;
    }
    // Adding 1.5 * 2^23 leaves a last place of 1, so that the addition rounds to the nearest, ties to even.
    const Lanes d = Lanes::load_f16(halves), shift = Lanes::broadcast(0x1.8p23f);
    for (std::int64_t i = 0; i < n; i += 16) {
      std::int64_t count = smaller(16, n - i);
      float rounded[16];
      (((count == 16 ? Lanes::load(x + i) : Lanes::load_partial(x + i, count)) / d + shift) - shift).store(rounded);
      for (std::int64_t j = 0; j < count; ++j) {
        int q = static_cast<int>(rounded[j]);
        codes[(i + j) * stride] = static_cast<std::int8_t>(q > 127 ? 127 : q < -127 ? -127 : q);
      }
    }
    return fits;
  }

  static bool store_int8(const float* x, std::int64_t n, const Int8Out& out) {
    bool fits = true;
    for (std::int64_t first = 0, group = 0; first < n; first += kScaleGroup, ++group) {
      fits &= quantize_group(x + first, smaller(kScaleGroup, n - first), out.codes + first * out.code_stride,
                             out.code_stride, out.scales + group * out.scale_stride);
    }
    return fits;
  }

  static bool store_f32(const float* x, std::int64_t n, float* out, std::int64_t stride) {
    bool fits = true;
    for (std::int64_t i = 0; i < n; ++i) {
      fits &= __builtin_fabsf(x[i]) < __builtin_inff();
      out[i * stride] = x[i];
    }
    return fits;
  }
};

}  // namespace quire::attention
