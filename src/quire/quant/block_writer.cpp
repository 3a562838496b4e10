#include "quire/quant/block_writer.h"

#include <cstring>

namespace quire::quant {
namespace {

using Bytes = std::uint8_t*;

std::uint8_t low_byte(std::uint32_t value) { return static_cast<std::uint8_t>(value); }

void write_u16(Bytes p, std::uint16_t value) {
  p[0] = low_byte(value);
  p[1] = low_byte(value >> 8u);
}

void write_legacy(DType dtype, const GroupCodes& codes, Bytes block) {
  write_u16(block, codes.d);
  block += 2;
  if (dtype == DType::q8_0) {
    std::memcpy(block, codes.code, 32);
    return;
  }
  if (has_minimum(dtype)) {
    write_u16(block, codes.m);
    block += 2;
  }
  if (code_bits(dtype) == 5) {
    for (int i = 0; i < 32; ++i) block[i / 8] |= low_byte((codes.code[i] >> 4u & 1u) << i % 8);
    block += 4;
  }
  for (int i = 0; i < 16; ++i) block[i] = low_byte((codes.code[i] & 15u) | (codes.code[i + 16] & 15u) << 4u);
}

void write_sub_scales(const GroupCodes& codes, int group, Bytes packed) {
  const std::uint32_t scale = codes.scale[0], min = codes.min;
  if (group < 4) {
    packed[group] |= low_byte(scale);
    packed[group + 4] |= low_byte(min);
  } else {
    packed[group + 4] |= low_byte((scale & 15u) | (min & 15u) << 4u);
    packed[group - 4] |= low_byte((scale >> 4u) << 6u);
    packed[group] |= low_byte((min >> 4u) << 6u);
  }
}

void write_k45(DType dtype, const GroupCodes& codes, Bytes block, int group) {
  write_u16(block, codes.d);
  write_u16(block + 2, codes.m);
  write_sub_scales(codes, group, block + 4);
  Bytes high = block + 16;
  Bytes low = (dtype == DType::q5_k ? high + 32 : high) + group / 2 * 32;
  for (int i = 0; i < 32; ++i) low[i] |= low_byte((codes.code[i] & 15u) << group % 2 * 4);
  if (dtype != DType::q5_k) return;
  for (int i = 0; i < 32; ++i) high[i] |= low_byte((codes.code[i] >> 4u & 1u) << group);
}

void write_k6(const GroupCodes& codes, Bytes block, int group) {
  const int half = group / 4, quarter = group % 4;
  Bytes low = block + half * 64 + quarter % 2 * 32;
  Bytes high = block + 128 + half * 32;
  for (int i = 0; i < 32; ++i) {
    low[i] |= low_byte((codes.code[i] & 15u) << quarter / 2 * 4);
    high[i] |= low_byte((codes.code[i] >> 4u & 3u) << quarter * 2);
  }
  block[192 + group * 2] = codes.scale[0];
  block[192 + group * 2 + 1] = codes.scale[1];
  write_u16(block + 208, codes.d);
}

}  // namespace

void write_file_group(DType dtype, const GroupCodes& codes, std::byte* row, std::int64_t group) {
  const std::int64_t groups_per_block = info(dtype).block_elements / 32;
  Bytes block = reinterpret_cast<Bytes>(row) + group / groups_per_block * info(dtype).block_bytes;
  const int within = static_cast<int>(group % groups_per_block);
  if (dtype == DType::q6_k) return write_k6(codes, block, within);
  if (dtype == DType::q4_k || dtype == DType::q5_k) return write_k45(dtype, codes, block, within);
  write_legacy(dtype, codes, block);
}

}  // namespace quire::quant
