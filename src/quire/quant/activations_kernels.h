#pragma once
// quantize_row of each instruction set on plain pointers. Internal; included by files compiled with wider instruction
// sets, so it includes nothing that emits code.

#include <cstdint>

namespace quire::quant {

inline constexpr float kSmallestAmax = 0x1.0p-100f;  ///< groups below it are all zero (rule 5)

/// Where one quantised row goes: q [cols], d and s [cols / 32], sum16 [cols / 16].
struct QuantizedRowOut {
  std::int8_t* q;
  float* d;
  float* s;
  std::int16_t* sum16;
};

bool quantize_row_scalar(const float* x, std::int64_t cols, const QuantizedRowOut& out);
bool quantize_row_avx2(const float* x, std::int64_t cols, const QuantizedRowOut& out);
bool quantize_row_avx512(const float* x, std::int64_t cols, const QuantizedRowOut& out);

}  // namespace quire::quant
