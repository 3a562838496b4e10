#pragma once
// GroupCodes: 32 consecutive weights of one row as their integer codes and scales, the common form between a file's
// blocks, packed strips and values. A weight is (scale) * (code - offset) + (minimum):
//
//   Q4_0, Q5_0   d * (code - 8 or 16)
//   Q4_1, Q5_1   d * code + m
//   Q8_0         d * int8(code)
//   Q4_K, Q5_K   (d * scale[0]) * code - (m * min), m being the file's dmin
//   Q6_K         (d * int8(scale[i / 16])) * (code - 32)

#include <cstddef>
#include <cstdint>

#include "quire/quant/packed_layout.h"
#include "quire/tensor/dtype.h"

namespace quire::quant {

struct GroupCodes {
  std::uint8_t code[32];
  std::uint16_t d = 0, m = 0;  ///< f16 bits
  std::uint8_t scale[2] = {0, 0};
  std::uint8_t min = 0;
};

/// Group `group` (32 columns) of a row as stored in a file. dtype is a quantised format.
GroupCodes read_file_group(DType dtype, const std::byte* row, std::int64_t group);

/// The same from row `lane` of a packed strip.
GroupCodes read_packed_group(DType dtype, const std::byte* strip, std::int64_t group, int lane);

/// The layout of a quantised format.
const PackedLayout& packed_layout(DType dtype);

/// 8, 16 or 32 for formats with unsigned codes around it, else 0.
int code_offset(DType dtype);

/// Bits of a code: 4, 5, 6 or 8 (8: signed).
int code_bits(DType dtype);

/// True for formats that add a minimum: Q4_1, Q5_1, Q4_K, Q5_K.
bool has_minimum(DType dtype);

/// The factor of codes 0..15 (half 0) or 16..31 (half 1) of the group.
float group_scale(DType dtype, const GroupCodes& codes, int half);

/// What is added to every weight of the group; only where has_minimum().
float group_minimum(DType dtype, const GroupCodes& codes);

/// The 32 weights.
void decode_group(DType dtype, const GroupCodes& codes, float* out);

/// code - offset, or the signed byte of Q8_0.
inline int signed_code(DType dtype, const GroupCodes& codes, int i) {
  return dtype == DType::q8_0 ? static_cast<std::int8_t>(codes.code[i]) : codes.code[i] - code_offset(dtype);
}

}  // namespace quire::quant
