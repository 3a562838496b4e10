#include "quire/quant/group_codes.h"

#include <cstring>

#include "quire/base/check.h"
#include "quire/quant/dequantize.h"

namespace quire::quant {
namespace {

using Bytes = const std::uint8_t*;

std::uint16_t read_u16(Bytes p) { return static_cast<std::uint16_t>(p[0] | p[1] << 8); }
std::uint32_t read_u32(Bytes p) { return read_u16(p) | static_cast<std::uint32_t>(read_u16(p + 2)) << 16; }

/// 16 bytes: byte i holds code i in the low nibble, code i + 16 in the high one.
void read_nibbles(Bytes p, GroupCodes& out) {
  for (int i = 0; i < 16; ++i) {
    out.code[i] = p[i] & 15;
    out.code[i + 16] = p[i] >> 4;
  }
}

/// Bit i of a 32-bit word is the fifth bit of code i.
void read_fifth_bits(Bytes p, GroupCodes& out) {
  std::uint32_t bits = read_u32(p);
  for (int i = 0; i < 32; ++i) out.code[i] |= (bits >> i & 1) << 4;
}

GroupCodes read_legacy(DType dtype, Bytes block) {
  GroupCodes out;
  out.d = read_u16(block);
  block += 2;
  if (dtype == DType::q8_0) {
    std::memcpy(out.code, block, 32);
    return out;
  }
  if (has_minimum(dtype)) {
    out.m = read_u16(block);
    block += 2;
  }
  bool five_bits = code_bits(dtype) == 5;
  read_nibbles(five_bits ? block + 4 : block, out);
  if (five_bits) read_fifth_bits(block, out);
  return out;
}

/// Q4_K and Q5_K keep eight 6-bit scales and eight 6-bit minima in 12 bytes.
void read_sub_scales(Bytes packed, int group, GroupCodes& out) {
  if (group < 4) {
    out.scale[0] = packed[group] & 63;
    out.min = packed[group + 4] & 63;
  } else {
    out.scale[0] = static_cast<std::uint8_t>((packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4);
    out.min = static_cast<std::uint8_t>(packed[group + 4] >> 4 | (packed[group] >> 6) << 4);
  }
}

/// d, dmin, 12 bytes of sub-scales, Q5_K: 32 bytes of fifth bits, then 128 bytes: nibbles of groups 2c and 2c + 1 share
/// 32 bytes.
GroupCodes read_k45(DType dtype, Bytes block, int group) {
  GroupCodes out;
  out.d = read_u16(block);
  out.m = read_u16(block + 2);
  read_sub_scales(block + 4, group, out);
  Bytes high = block + 16;
  Bytes low = (dtype == DType::q5_k ? high + 32 : high) + group / 2 * 32;
  for (int i = 0; i < 32; ++i) out.code[i] = low[i] >> group % 2 * 4 & 15;
  if (dtype == DType::q5_k) {
    for (int i = 0; i < 32; ++i) out.code[i] |= (high[i] >> group & 1) << 4;
  }
  return out;
}

/// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 scales, d. Each half of the block (four groups) has 64 and
/// 32 bytes of its own: groups 0 and 2 share the first 32 nibble bytes, 1 and 3 the next; all four share the pairs.
GroupCodes read_k6(Bytes block, int group) {
  GroupCodes out;
  int half = group / 4, quarter = group % 4;
  Bytes low = block + half * 64 + quarter % 2 * 32;
  Bytes high = block + 128 + half * 32;
  for (int i = 0; i < 32; ++i) {
    out.code[i] = static_cast<std::uint8_t>((low[i] >> quarter / 2 * 4 & 15) | (high[i] >> quarter * 2 & 3) << 4);
  }
  out.scale[0] = block[192 + group * 2];
  out.scale[1] = block[192 + group * 2 + 1];
  out.d = read_u16(block + 208);
  return out;
}

/// The bits above the low four of the code at column i, row `lane`, from the vectors after the nibbles.
unsigned packed_high_bits(int bits, Bytes high, int i, int lane) {
  int k4 = i / 4, at = lane * 4 + i % 4;
  if (bits == 5) return high[at] >> k4 & 1;
  if (bits == 6) return high[k4 / 4 * 64 + at] >> k4 % 4 * 2 & 3;
  return 0;
}

}  // namespace

const PackedLayout& packed_layout(DType dtype) {
  switch (dtype) {
    case DType::q4_0:
      return kLayoutQ4_0;
    case DType::q4_1:
      return kLayoutQ4_1;
    case DType::q5_0:
      return kLayoutQ5_0;
    case DType::q5_1:
      return kLayoutQ5_1;
    case DType::q8_0:
      return kLayoutQ8_0;
    case DType::q4_k:
      return kLayoutQ4_K;
    case DType::q5_k:
      return kLayoutQ5_K;
    case DType::q6_k:
      return kLayoutQ6_K;
    default:
      QUIRE_CHECK(false, info(dtype).name, " has no groups");
  }
}

int code_offset(DType dtype) {
  return dtype == DType::q4_0 ? 8 : dtype == DType::q5_0 ? 16 : dtype == DType::q6_k ? 32 : 0;
}

int code_bits(DType dtype) {
  switch (dtype) {
    case DType::q4_0:
    case DType::q4_1:
    case DType::q4_k:
      return 4;
    case DType::q5_0:
    case DType::q5_1:
    case DType::q5_k:
      return 5;
    case DType::q6_k:
      return 6;
    default:
      return 8;
  }
}

bool has_minimum(DType dtype) {
  return dtype == DType::q4_1 || dtype == DType::q5_1 || dtype == DType::q4_k || dtype == DType::q5_k;
}

float group_scale(DType dtype, const GroupCodes& codes, int half) {
  float d = f16_to_f32(codes.d);
  if (dtype == DType::q4_k || dtype == DType::q5_k) return d * static_cast<float>(codes.scale[0]);
  if (dtype == DType::q6_k) return d * static_cast<float>(static_cast<std::int8_t>(codes.scale[half]));
  return d;
}

float group_minimum(DType dtype, const GroupCodes& codes) {
  float m = f16_to_f32(codes.m);
  return dtype == DType::q4_k || dtype == DType::q5_k ? -(m * static_cast<float>(codes.min)) : m;
}

void decode_group(DType dtype, const GroupCodes& codes, float* out) {
  for (int half = 0; half < 2; ++half) {
    float scale = group_scale(dtype, codes, half);
    for (int i = half * 16; i < half * 16 + 16; ++i) {
      out[i] = scale * static_cast<float>(signed_code(dtype, codes, i));
    }
  }
  if (!has_minimum(dtype)) return;
  float minimum = group_minimum(dtype, codes);
  for (int i = 0; i < 32; ++i) out[i] = out[i] + minimum;
}

GroupCodes read_file_group(DType dtype, const std::byte* row, std::int64_t group) {
  std::int64_t groups_per_block = info(dtype).block_elements / 32;
  Bytes block = reinterpret_cast<Bytes>(row) + group / groups_per_block * info(dtype).block_bytes;
  int within = static_cast<int>(group % groups_per_block);
  if (dtype == DType::q6_k) return read_k6(block, within);
  if (dtype == DType::q4_k || dtype == DType::q5_k) return read_k45(dtype, block, within);
  return read_legacy(dtype, block);
}

GroupCodes read_packed_group(DType dtype, const std::byte* strip, std::int64_t group, int lane) {
  const PackedLayout& layout = packed_layout(dtype);
  Bytes block = reinterpret_cast<Bytes>(strip) + group / layout.groups_per_block * layout.block_bytes();
  int within = static_cast<int>(group % layout.groups_per_block);
  Bytes quants = block + within * layout.quant_bytes;
  Bytes scales = block + layout.groups_per_block * layout.quant_bytes;
  int bits = code_bits(dtype);
  GroupCodes out;
  for (int i = 0; i < 32; ++i) {
    int k4 = i / 4, at = lane * 4 + i % 4;
    out.code[i] = bits == 8 ? quants[k4 * 64 + at]
                            : static_cast<std::uint8_t>((quants[k4 % 4 * 64 + at] >> k4 / 4 * 4 & 15) |
                                                        packed_high_bits(bits, quants + 256, i, lane) << 4);
  }
  if (layout.groups_per_block == 8) {
    Bytes sub = scales + kSubScalesAt + within * 32 + lane;
    out.d = read_u16(scales + lane * 2);
    out.m = read_u16(scales + 32 + lane * 2);
    out.scale[0] = sub[0];
    (dtype == DType::q6_k ? out.scale[1] : out.min) = sub[16];
  } else {
    out.d = read_u16(scales + (layout.groups_per_block == 2 ? within * 32 : 0) + lane * 2);
    if (has_minimum(dtype)) out.m = read_u16(scales + 32 + lane * 2);
  }
  return out;
}

}  // namespace quire::quant
