#include "quire/quant/packed_matrix.h"

#include <cstring>

#include "quire/base/check.h"
#include "quire/base/checked.h"
#include "quire/quant/dequantize.h"
#include "quire/quant/group_codes.h"

namespace quire::quant {
namespace {

/// Places the codes of 16 rows side by side: see packed_layout.h.
void write_quants(int bits, const GroupCodes (&rows)[kStripRows], std::uint8_t* out) {
  for (int lane = 0; lane < kStripRows; ++lane) {
    const std::uint8_t* code = rows[lane].code;
    for (int i = 0; i < 32; ++i) {
      int k4 = i / 4, at = lane * 4 + i % 4;
      if (bits == 8) {
        out[k4 * 64 + at] = code[i];
        continue;
      }
      out[k4 % 4 * 64 + at] |= (code[i] & 15) << k4 / 4 * 4;
      if (bits == 5) out[256 + at] |= (code[i] >> 4) << k4;
      if (bits == 6) out[256 + k4 / 4 * 64 + at] |= (code[i] >> 4) << k4 % 4 * 2;
    }
  }
}

void put_u16(std::uint8_t* out, std::uint16_t value) { std::memcpy(out, &value, 2); }

void write_scales(DType dtype, const GroupCodes (&rows)[kStripRows], int within, std::uint8_t* scales) {
  int groups_per_block = packed_layout(dtype).groups_per_block;
  for (int lane = 0; lane < kStripRows; ++lane) {
    const GroupCodes& codes = rows[lane];
    if (groups_per_block == 2) {
      put_u16(scales + within * 32 + lane * 2, codes.d);
      continue;
    }
    put_u16(scales + lane * 2, codes.d);
    if (has_minimum(dtype)) put_u16(scales + 32 + lane * 2, codes.m);
    if (groups_per_block == 1) continue;
    std::uint8_t* sub = scales + kSubScalesAt + within * 32 + lane;
    sub[0] = codes.scale[0];
    sub[16] = dtype == DType::q6_k ? codes.scale[1] : codes.min;
  }
}

/// `source` is the strip's first row, `rows` at most 16.
void pack_quantized_strip(DType dtype, std::int64_t rows, std::int64_t cols, const std::byte* source,
                          std::uint8_t* strip) {
  const PackedLayout& layout = packed_layout(dtype);
  std::int64_t stride = row_bytes(dtype, cols);
  for (std::int64_t group = 0; group < cols / 32; ++group) {
    GroupCodes codes[kStripRows];
    for (int lane = 0; lane < kStripRows; ++lane) {
      if (lane < rows) {
        codes[lane] = read_file_group(dtype, source + lane * stride, group);
      } else {
        std::memset(codes[lane].code, 0, 32);
      }
    }
    std::uint8_t* block = strip + group / layout.groups_per_block * layout.block_bytes();
    int within = static_cast<int>(group % layout.groups_per_block);
    write_quants(code_bits(dtype), codes, block + within * layout.quant_bytes);
    write_scales(dtype, codes, within, block + layout.groups_per_block * layout.quant_bytes);
  }
}

void pack_float_strip(std::int64_t rows, std::int64_t cols, std::int64_t element_bytes, const std::byte* source,
                      std::byte* strip) {
  for (std::int64_t lane = 0; lane < rows; ++lane) {
    for (std::int64_t k = 0; k < cols; ++k) {
      std::memcpy(strip + (k * kStripRows + lane) * element_bytes, source + (lane * cols + k) * element_bytes,
                  static_cast<std::size_t>(element_bytes));
    }
  }
}

std::int64_t strip_size(DType dtype, std::int64_t cols) {
  if (!is_quantized(dtype)) return round_up(cols * kStripRows * info(dtype).block_bytes, 64);
  const PackedLayout& layout = packed_layout(dtype);
  return ceil_div(cols / 32, layout.groups_per_block) * layout.block_bytes();
}

}  // namespace

PackedMatrix PackedMatrix::pack(DType dtype, std::int64_t rows, std::int64_t cols, const std::byte* source) {
  QUIRE_CHECK(rows > 0 && cols > 0 && cols % info(dtype).block_elements == 0, info(dtype).name, " ", rows, " x ", cols);
  PackedMatrix out;
  out.dtype_ = dtype;
  out.rows_ = rows;
  out.cols_ = cols;
  out.strip_bytes_ = strip_size(dtype, cols);
  out.data_ = AlignedBuffer(static_cast<std::size_t>(out.num_strips() * out.strip_bytes_));
  for (std::int64_t index = 0; index < out.num_strips(); ++index) {
    std::int64_t first = index * kStripRows;
    std::int64_t count = rows - first < kStripRows ? rows - first : kStripRows;
    const std::byte* from = source + first * row_bytes(dtype, cols);
    std::byte* strip = out.data_.data() + index * out.strip_bytes_;
    if (is_quantized(dtype)) {
      pack_quantized_strip(dtype, count, cols, from, reinterpret_cast<std::uint8_t*>(strip));
    } else {
      pack_float_strip(count, cols, info(dtype).block_bytes, from, strip);
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
