#include "quire/quant/packed_matrix.h"

#include <cstring>
#include <utility>

#include "quire/base/check.h"
#include "quire/base/checked.h"
#include "quire/quant/dequantize.h"
#include "quire/quant/group_codes.h"

namespace quire::quant {
namespace {

/// Four codes at a time as one word.
std::uint32_t load_word(const std::uint8_t* p) {
  std::uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

void store_word(std::uint8_t* p, std::uint32_t word) { std::memcpy(p, &word, 4); }

/// Places the codes of one row of a group: see packed_layout.h. `out` is the lane's word of the group's first vector.
void write_quants(int bits, const std::uint8_t* code, std::uint8_t* out) {
  constexpr int kVector = 64;
  std::uint32_t words[8];
  for (int k4 = 0; k4 < 8; ++k4) words[k4] = load_word(code + k4 * 4);
  if (bits == 8) {
    for (int k4 = 0; k4 < 8; ++k4) store_word(out + k4 * kVector, words[k4]);
    return;
  }
  for (int j = 0; j < 4; ++j) {
    store_word(out + j * kVector, (words[j] & 0x0F0F0F0Fu) | (words[j + 4] & 0x0F0F0F0Fu) << 4);
  }
  if (bits == 5) {
    std::uint32_t high = 0;
    for (int k4 = 0; k4 < 8; ++k4) high |= (words[k4] >> 4 & 0x01010101u) << k4;
    store_word(out + 4 * kVector, high);
  }
  if (bits == 6) {
    std::uint32_t high[2] = {0, 0};
    for (int k4 = 0; k4 < 8; ++k4) high[k4 / 4] |= (words[k4] >> 4 & 0x03030303u) << k4 % 4 * 2;
    store_word(out + 4 * kVector, high[0]);
    store_word(out + 5 * kVector, high[1]);
  }
}

void put_u16(std::uint8_t* out, std::uint16_t value) { std::memcpy(out, &value, 2); }

/// Places the scales of one row of a group; `scales` is the start of the block's scales.
void write_scales(DType dtype, const GroupCodes& codes, int within, int lane, std::uint8_t* scales) {
  int groups_per_block = packed_layout(dtype).groups_per_block;
  if (groups_per_block == 2) {
    put_u16(scales + within * 32 + lane * 2, codes.d);
    return;
  }
  put_u16(scales + lane * 2, codes.d);
  if (has_minimum(dtype)) put_u16(scales + 32 + lane * 2, codes.m);
  if (groups_per_block == 1) return;
  std::uint8_t* sub = scales + kSubScalesAt + within * 32 + lane;
  sub[0] = codes.scale[0];
  sub[16] = dtype == DType::q6_k ? codes.scale[1] : codes.min;
}

/// `source` is the strip's first row; rows past `rows`, at most 16, stay zero.
void pack_quantized_strip(DType dtype, std::int64_t rows, std::int64_t cols, const std::byte* source,
                          std::uint8_t* strip) {
  const PackedLayout& layout = packed_layout(dtype);
  std::int64_t stride = row_bytes(dtype, cols);
  int bits = code_bits(dtype);
  for (std::int64_t group = 0; group < cols / 32; ++group) {
    std::uint8_t* block = strip + group / layout.groups_per_block * layout.block_bytes();
    int within = static_cast<int>(group % layout.groups_per_block);
    for (int lane = 0; lane < rows; ++lane) {
      GroupCodes codes = read_file_group(dtype, source + lane * stride, group);
      write_quants(bits, codes.code, block + within * layout.quant_bytes + lane * 4);
      write_scales(dtype, codes, within, lane, block + layout.groups_per_block * layout.quant_bytes);
    }
  }
}

template <class Element>
void pack_float_strip(std::int64_t rows, std::int64_t cols, const std::byte* source, std::byte* strip) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Element));
  for (std::int64_t k = 0; k < cols; ++k) {
    for (std::int64_t lane = 0; lane < rows; ++lane) {
      std::memcpy(strip + (k * kStripRows + lane) * kBytes, source + (lane * cols + k) * kBytes, sizeof(Element));
    }
  }
}

std::int64_t strip_size(DType dtype, std::int64_t cols) {
  if (!is_quantized(dtype)) return round_up(cols * kStripRows * info(dtype).block_bytes, 64);
  const PackedLayout& layout = packed_layout(dtype);
  return ceil_div(cols / 32, layout.groups_per_block) * layout.block_bytes();
}

}  // namespace

PackedMatrix PackedMatrix::view(DType dtype, std::int64_t rows, std::int64_t cols, const std::byte* data,
                                std::shared_ptr<const void> owner) {
  QUIRE_CHECK(reinterpret_cast<std::uintptr_t>(data) % 64 == 0, "packed data off a 64-byte boundary");
  PackedMatrix out;
  out.dtype_ = dtype;
  out.rows_ = rows;
  out.cols_ = cols;
  out.strip_bytes_ = strip_size(dtype, cols);
  out.data_ = data;
  out.owner_ = std::move(owner);
  return out;
}

std::size_t PackedMatrix::packed_bytes(DType dtype, std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(ceil_div(rows, std::int64_t{kStripRows}) * strip_size(dtype, cols));
}

PackedMatrix PackedMatrix::pack(DType dtype, std::int64_t rows, std::int64_t cols, const std::byte* source) {
  QUIRE_CHECK(rows > 0 && cols > 0 && cols % info(dtype).block_elements == 0, info(dtype).name, " ", rows, " x ", cols);
  PackedMatrix out;
  out.dtype_ = dtype;
  out.rows_ = rows;
  out.cols_ = cols;
  out.strip_bytes_ = strip_size(dtype, cols);
  out.memory_ = AlignedBuffer(out.bytes());
  out.data_ = out.memory_.data();
  for (std::int64_t index = 0; index < out.num_strips(); ++index) {
    std::int64_t first = index * kStripRows;
    std::int64_t count = rows - first < kStripRows ? rows - first : kStripRows;
    const std::byte* from = source + first * row_bytes(dtype, cols);
    std::byte* strip = out.memory_.data() + index * out.strip_bytes_;
    if (is_quantized(dtype)) {
      pack_quantized_strip(dtype, count, cols, from, reinterpret_cast<std::uint8_t*>(strip));
    } else if (dtype == DType::f32) {
      pack_float_strip<std::uint32_t>(count, cols, from, strip);
    } else {
      pack_float_strip<std::uint16_t>(count, cols, from, strip);
    }
  }
  return out;
}

void PackedMatrix::dequantize_row(std::int64_t row, float* out) const {
  QUIRE_CHECK(row >= 0 && row < rows_, "row ", row, " of ", rows_);
  const std::byte* from = strip(row / kStripRows);
  int lane = static_cast<int>(row % kStripRows);
  if (is_quantized(dtype_)) {
    for (std::int64_t group = 0; group < cols_ / 32; ++group) {
      decode_group(dtype_, read_packed_group(dtype_, from, group, lane), out + group * 32);
    }
    return;
  }
  std::int64_t element_bytes = info(dtype_).block_bytes;
  for (std::int64_t k = 0; k < cols_; ++k) {
    dequantize(dtype_, from + (k * kStripRows + lane) * element_bytes, 1, out + k);
  }
}

}  // namespace quire::quant
