#pragma once
// PackedMatrix: a weight matrix [rows, cols] rearranged for the kernels, about the size of the file's tensor. Rows are
// cut into strips of 16 output rows (the last one padded with zero rows); within a strip the elements of 16 rows lie
// side by side, so that lanes are output rows and the sum along K is a chain per lane. The layout is the same on all
// tiers. Immutable; safe to read from many threads. Owns its memory, or shares that of a mapped file.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "quire/tensor/aligned_buffer.h"
#include "quire/tensor/dtype.h"

namespace quire::quant {

inline constexpr int kStripRows = 16;

class PackedMatrix {
 public:
  PackedMatrix() = default;
  /// Source: `rows` rows of row_bytes(dtype, cols) bytes each, as in a GGUF tensor with ne = {cols, rows}.
  static PackedMatrix pack(DType dtype, std::int64_t rows, std::int64_t cols, const std::byte* source);

  /// A matrix that was packed before: `data` is what strip(0) pointed to, packed_bytes() of it, on a 64-byte boundary,
  /// and lives as long as `owner`. Null: a shape, whose sizes alone may be asked for.
  static PackedMatrix view(DType dtype, std::int64_t rows, std::int64_t cols, const std::byte* data,
                           std::shared_ptr<const void> owner);
  /// Bytes of a packed matrix; rows > 0, cols > 0 and in whole blocks, of a source that exists.
  static std::size_t packed_bytes(DType dtype, std::int64_t rows, std::int64_t cols);

  DType dtype() const { return dtype_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t num_strips() const { return (rows_ + kStripRows - 1) / kStripRows; }
  std::int64_t strip_bytes() const { return strip_bytes_; }
  const std::byte* strip(std::int64_t index) const { return data_ + index * strip_bytes_; }
  std::size_t bytes() const { return static_cast<std::size_t>(num_strips() * strip_bytes_); }

  /// Decodes row `row` to f32 [cols]: the same values as quant::dequantize of the source row. Embedding look-ups on a
  /// tied matrix read through this, so that it is held once.
  void dequantize_row(std::int64_t row, float* out) const;

 private:
  DType dtype_ = DType::f32;
  std::int64_t rows_ = 0, cols_ = 0, strip_bytes_ = 0;
  const std::byte* data_ = nullptr;
  AlignedBuffer memory_;               ///< where data_ is, if it is ours
  std::shared_ptr<const void> owner_;  ///< who keeps it, if it is not
};

}  // namespace quire::quant
